"""The dense channel: chunks that are close to a question in meaning.

A small table is compared whole. A large one has an index of partitions, of which the nearest are searched; where a
filter leaves few rows in each of them, all are, since reading those rows without the index takes far longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aps_rag_pipeline.stores.indexing import partitions
from aps_rag_pipeline.stores.tables import sql_list
from query.filters import Filters
from query.found import Found, source_of
from query.held import Vectors

if TYPE_CHECKING:
    import pyarrow as pa
    from lancedb.table import Table
    from numpy.typing import NDArray

#: Part of the index that is searched where most rows come into question: finds 99 of the 100 nearest.
_SHARE = 0.25
#: Few partitions have much of a border: of those so many are searched.
_FEWEST = 40
#: Where a filter of labels leaves less than this part of the rows, or any other filter narrows, all of it is searched.
_MOST_ROWS = 0.3
#: The index knows a byte a dimension: of at least so many that it finds near, the whole vectors are compared. To have
#: them read from the table for it takes twice as long as all the rest.
_COMPARED = 200


class Meaning:
    """The released vectors of a chunk table. Safe to share by threads."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._size = table.count_rows()
        self._partitions = partitions(table)
        self._rows = lru_cache(maxsize=512)(table.count_rows)
        self._held: Vectors | None = None
        self._whole: _Whole | None = None

    def hold(self) -> None:
        """Keep all vectors in memory, so that those found near need not be read."""
        if self._held is None:
            held = Vectors(self._table)
            self._whole = _Whole(self._table, held) if held.few else None
            self._held = held

    def near(self, vectors: NDArray[np.float32], filters: Filters, limit: int) -> list[list[Found]]:
        """The `limit` chunks closest to each of several vectors of length 1, shape (n, dimensions), best first.

        The score is the cosine.
        """
        condition, held = filters.narrowing(), self._held
        if self._whole is not None:
            return self._whole.near(vectors, condition, limit)
        query = self._search(vectors, self._probes(filters), limit, held is not None)
        rows = (query if condition is None else query.where(condition, prefilter=True)).to_arrow()
        of = rows["query_index"].to_numpy() if len(vectors) > 1 else np.zeros(rows.num_rows, dtype=np.int32)
        if held is None:
            return [_as_compared(rows.filter(of == place)) for place in range(len(vectors))]
        places = held.at(rows["_rowid"].to_numpy())
        return [_ranked(held, places[of == place], vector, limit) for place, vector in enumerate(vectors)]

    def among(self, vector: NDArray[np.float32], limit: int, chunk_ids: Sequence[str]) -> list[Found]:
        """The closest of certain chunks."""
        if self._held is not None:
            return _ranked(self._held, self._held.of(chunk_ids), vector, limit)
        if not chunk_ids:
            return []
        query = self._search(vector.reshape(1, -1), 2 * self._partitions, limit, compared=False)
        return _as_compared(query.where(f"chunk_id in ({sql_list(chunk_ids)})", prefilter=True).to_arrow())

    def _probes(self, filters: Filters) -> int:
        """How many partitions to search; 0: there is no index."""
        if not self._partitions:
            return 0
        # Readers and crowded kinds of source are few, so that their rows are counted once.
        coarse = Filters(groups=filters.groups, without=filters.without).narrowing()
        wide = filters.narrowing() == coarse and (coarse is None or self._rows(coarse) >= _MOST_ROWS * self._size)
        # Partitions may have been split since they were made.
        return max(_FEWEST, math.ceil(_SHARE * self._partitions)) if wide else 2 * self._partitions

    def _search(self, vectors: NDArray[np.float32], probes: int, limit: int, compared: bool) -> Any:
        """The nearest rows by number where vectors are `compared` afterwards, else by chunk and exact distance."""
        query: Any = self._table.search(vectors if len(vectors) > 1 else vectors[0], vector_column_name="vector")
        query = query.distance_type("cosine").with_row_id(compared)
        query = query.select(["_distance"] if compared else ["chunk_id", "_distance"])
        more = max(1, math.ceil(_COMPARED / limit))
        if not probes:
            return query.bypass_vector_index().limit(limit)
        query = query.nprobes(probes)
        return query.limit(limit * more) if compared else query.limit(limit).refine_factor(more)


class _Whole:
    """All vectors of a table of few, every one of which is compared."""

    def __init__(self, table: Table, held: Vectors) -> None:
        self._held = held
        self._all = np.arange(table.count_rows())
        # Readers and crowded kinds of source are few; a time is hardly asked for twice.
        self._admitted = lru_cache(maxsize=64)(partial(_admitted, table, held))

    def near(self, vectors: NDArray[np.float32], condition: str | None, limit: int) -> list[list[Found]]:
        places = self._all if condition is None else self._admitted(condition)
        return [_best(self._held, places, row[places], limit) for row in self._held.all_cosines(vectors)]


def _admitted(table: Table, held: Vectors, condition: str) -> NDArray[np.intp]:
    """Places of the chunks under a condition."""
    query = table.search().where(condition).with_row_id(True).select(["_rowid"]).limit(max(table.count_rows(), 1))
    return held.at(np.sort(query.to_arrow()["_rowid"].to_numpy()))


def _ranked(held: Vectors, places: NDArray[np.intp], vector: NDArray[np.float32], limit: int) -> list[Found]:
    if not len(places):
        return []
    return _best(held, places, held.cosines(places, vector), limit)


def _best(held: Vectors, places: NDArray[np.intp], cosines: NDArray[np.float32], limit: int) -> list[Found]:
    if len(cosines) > limit:
        # Those of the last one's score come along, so that among equals the first stand first.
        least = np.partition(cosines, -limit)[-limit]
        near = np.flatnonzero(cosines >= least)
        places, cosines = places[near], cosines[near]
    best = np.argsort(-cosines, kind="stable")[:limit]
    names = held.names(places[best])
    return [Found(chunk, source_of(chunk), cosine) for chunk, cosine in zip(names, cosines[best].tolist(), strict=True)]


def _as_compared(rows: pa.Table) -> list[Found]:
    """Hits of which the table itself has compared the vectors."""
    named = zip(rows["chunk_id"].to_pylist(), rows["_distance"].to_pylist(), strict=True)
    return [Found(chunk, source_of(chunk), 1.0 - distance) for chunk, distance in named]
