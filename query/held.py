"""What of a release can be held in memory, so that a question need not look it up: vectors of chunks, and rows by name.

To read it takes longer than a few questions do without: a process that asks once never holds anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aps_rag_pipeline.stores.tables import sql_list

if TYPE_CHECKING:
    import pyarrow as pa
    from lancedb.table import Table
    from numpy.typing import NDArray

    Places = NDArray[np.intp]

#: Vectors that are read at once.
_READ_ROWS = 8_192
#: So many are all compared with a question in less time than a table or its index takes to be asked, if they lie in
#: single precision: up to 50 MB where they have 384 dimensions.
_COMPARED_WHOLE = 32_768


class Named:
    """Which row of a table has a name, by the hashes of the names: a tenth of what the names would take."""

    def __init__(self, names: Iterable[str], rows: NDArray[np.uint64]) -> None:
        hashes = np.fromiter((hash(name) for name in names), np.int64, len(rows))
        order = np.argsort(hashes)
        self._hashes, self._rows = hashes[order], rows[order]

    def rows(self, names: Iterable[str]) -> list[int]:
        """Rows that may have these names: all that do, and hardly ever another with the same hash."""
        wanted = np.fromiter((hash(name) for name in dict.fromkeys(names)), np.int64)
        first, last = (self._hashes.searchsorted(wanted, side) for side in ("left", "right"))
        return [int(row) for start, end in zip(first, last, strict=True) for row in self._rows[start:end]]


class Shelved:
    """Rows of a table of a release by the name in one of its columns."""

    def __init__(self, table: Table, column: str) -> None:
        self._table = table
        self._column = column
        self._named: Named | None = None

    def hold(self) -> None:
        """Keep in mind which row has which name."""
        if self._named is not None:
            return
        size = max(self._table.count_rows(), 1)
        found = self._table.search().with_row_id(True).select([self._column]).limit(size).to_arrow()
        self._named = Named(found[self._column].to_pylist(), found["_rowid"].to_numpy())

    def read(self, names: Sequence[str], columns: list[str]) -> list[dict[str, Any]]:
        """The rows with these names, in no order; `columns` must have the name's own."""
        wanted = set(names)
        if not wanted:
            return []
        if self._named is None:
            query: Any = self._table.search().where(f"{self._column} in ({sql_list(wanted)})").limit(len(wanted))
        elif rows := self._named.rows(names):
            query = self._table.take_row_ids(rows)
        else:
            return []
        found: list[dict[str, Any]] = query.select(columns).to_arrow().to_pylist()
        return [row for row in found if row[self._column] in wanted]


class Vectors:
    """Every chunk's name and vector: two bytes a dimension where there are many, since the pipeline keeps half
    precision; else four.

    Places are counted from 0 in the order of row numbers.
    """

    def __init__(self, table: Table) -> None:
        import pyarrow as pa

        size = table.count_rows()
        dimensions = table.schema.field("vector").type.list_size
        self._vectors: NDArray[np.float16] | NDArray[np.float32] = np.empty((size, dimensions), np.float16)
        read = np.empty(size, np.uint64)
        names: list[pa.Array] = []
        done = 0
        query = table.search().with_row_id(True).select(["chunk_id", "vector"]).limit(max(size, 1))
        for batch in query.to_batches(_READ_ROWS):
            rows = slice(done, done := done + batch.num_rows)
            read[rows] = batch["_rowid"].to_numpy()
            names.append(batch["chunk_id"])
            vectors = batch["vector"].flatten().to_numpy().reshape(batch.num_rows, -1)
            self._vectors[rows] = vectors
            if self._vectors.dtype == np.float16 and not np.array_equal(self._vectors[rows], vectors):
                before, self._vectors = self._vectors, np.empty(self._vectors.shape, np.float32)
                self._vectors[: rows.start] = before[: rows.start]
                self._vectors[rows] = vectors
        self._order = np.argsort(read)  # many vectors stay where they were read to: there is no room for them twice
        self._numbers = read[self._order]
        #: Whether they are few enough to compare all of them.
        self.few = size <= _COMPARED_WHOLE
        if self.few:
            whole = self._vectors[self._order].astype(np.float32, copy=False)
            whole /= _lengths(whole)[:, None]
            # What is no vector is near nothing.
            self._vectors, self._order = np.nan_to_num(whole, copy=False, nan=0.0), np.arange(size)
        self._names: pa.Array = pa.concat_arrays(names).take(self._order) if names else pa.array([], pa.string())
        self._named = Named(self._names.to_pylist(), np.arange(len(read), dtype=np.uint64))

    def at(self, numbers: NDArray[np.uint64]) -> Places:
        """Places of row numbers."""
        places: Places = self._numbers.searchsorted(numbers)
        return places

    def of(self, chunk_ids: Sequence[str]) -> Places:
        """Places of those of these chunks that there are."""
        places = self._named.rows(chunk_ids)
        wanted = set(chunk_ids)
        named = zip(places, self.names(np.array(places, dtype=np.intp)), strict=True)
        return np.array([place for place, name in named if name in wanted], dtype=np.intp)

    def names(self, places: Places) -> list[str]:
        found: list[str] = self._names.take(places).to_pylist()
        return found

    def all_cosines(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of all chunks, where they are few, to several vectors of length 1: shape (vectors, chunks)."""
        cosines: NDArray[np.float32] = vectors @ self._vectors.T
        return cosines

    def cosines(self, places: Places, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of chunks to a vector of length 1."""
        rows = self._vectors[self._order[places]].astype(np.float32, copy=False)
        cosines: NDArray[np.float32] = rows @ vector / _lengths(rows)
        return cosines


def _lengths(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths: NDArray[np.float32] = np.maximum(np.linalg.norm(vectors, axis=1), np.float32(1e-12))
    return lengths
