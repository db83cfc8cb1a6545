"""The dense channel: chunks that are close to a question in meaning.

A small table is compared whole. A large one has an index of partitions, of which the nearest are searched; where a
filter leaves few rows in each of them, all are, since reading those rows without the index takes far longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.stores.indexing import partitions
from aps_rag_pipeline.stores.tables import sql_list
from query.filters import Filters
from query.found import Found, source_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from lancedb.table import Table
    from numpy.typing import NDArray

#: Part of the index that is searched where most rows come into question: finds 99 of the 100 nearest.
_SHARE = 0.4
#: Few partitions have much of a border: of those so many are searched.
_FEWEST = 40
#: Where a filter of labels leaves less than this part of the rows, or any other filter narrows, all of it is searched.
_MOST_ROWS = 0.3
#: The index knows a byte a dimension: of at least so many that it finds near, the whole vectors are compared.
_COMPARED = 200


class Meaning:
    """The released vectors of a chunk table. Safe to share by threads."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._size = table.count_rows()
        self._partitions = partitions(table)
        self._rows = lru_cache(maxsize=512)(table.count_rows)

    def near(self, vectors: NDArray[np.float32], filters: Filters, limit: int) -> list[list[Found]]:
        """The `limit` chunks closest to each of several vectors of length 1, shape (n, dimensions), best first.

        The score is the cosine.
        """
        condition = filters.narrowing()
        query = self._search(vectors, self._probes(filters), limit)
        return self._found(query if condition is None else query.where(condition, prefilter=True), len(vectors))

    def among(self, vector: NDArray[np.float32], filters: Filters, limit: int, chunk_ids: Sequence[str]) -> list[Found]:
        """The closest of certain chunks."""
        condition = " and ".join(filter(None, (f"chunk_id in ({sql_list(chunk_ids)})", filters.narrowing())))
        query = self._search(vector.reshape(1, -1), 2 * self._partitions, limit).where(condition, prefilter=True)
        return self._found(query, 1)[0]

    def _probes(self, filters: Filters) -> int:
        """How many partitions to search; 0: there is no index."""
        if not self._partitions:
            return 0
        # Readers and crowded kinds of source are few, so that their rows are counted once.
        coarse = Filters(groups=filters.groups, without=filters.without).narrowing()
        wide = filters.narrowing() == coarse and (coarse is None or self._rows(coarse) >= _MOST_ROWS * self._size)
        # Partitions may have been split since they were made.
        return max(_FEWEST, math.ceil(_SHARE * self._partitions)) if wide else 2 * self._partitions

    @cached_property
    def _names(self) -> tuple[NDArray[np.uint64], pa.Array]:
        """Row numbers in order, and the chunk of each: a hit's name is known without reading its row."""
        import numpy as np

        found = self._table.search().with_row_id(True).select(["chunk_id"]).limit(max(self._size, 1)).to_arrow()
        numbers = found["_rowid"].to_numpy()
        order = np.argsort(numbers)
        return numbers[order], found["chunk_id"].combine_chunks().take(order)

    def _found(self, query: Any, vectors: int) -> list[list[Found]]:
        rows = query.to_arrow()
        numbers, chunks = self._names
        names = chunks.take(numbers.searchsorted(rows["_rowid"].to_numpy())).to_pylist()
        of = rows["query_index"].to_pylist() if vectors > 1 else [0] * rows.num_rows
        each: list[list[Found]] = [[] for _ in range(vectors)]
        for place, chunk, distance in zip(of, names, rows["_distance"].to_pylist(), strict=True):
            each[place].append(Found(chunk, source_of(chunk), 1.0 - distance))
        return each

    def _search(self, vectors: NDArray[np.float32], probes: int, limit: int) -> Any:
        query: Any = self._table.search(vectors if len(vectors) > 1 else vectors[0], vector_column_name="vector")
        query = query.distance_type("cosine").with_row_id(True).select(["_distance"]).limit(limit)
        if not probes:
            return query.bypass_vector_index()
        return query.nprobes(probes).refine_factor(max(1, math.ceil(_COMPARED / limit)))
