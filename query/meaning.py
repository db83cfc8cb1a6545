"""The dense channel: chunks that are close to a question in meaning.

A small table is compared whole. A large one has an index, which is searched where many rows come into question and left
aside where few do: a filter that leaves one row in a hundred leaves most partitions of the index empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.stores.tables import sql_list
from query.filters import Filters
from query.found import Found

if TYPE_CHECKING:
    import numpy as np
    from lancedb.table import Table
    from numpy.typing import NDArray

#: Partitions of the index that are searched where no filter narrows.
PROBES = 40
#: Partitions searched at most, for a filter that leaves few rows in each.
_MOST_PROBES = 200
#: So many times the wanted hits are compared by their whole vectors after the index has chosen them by its short forms.
_REFINE = 2
#: With no more rows than this each is compared, which takes no longer than a wide search of the index.
EXACT_ROWS = 10_000
_COLUMNS = ["chunk_id", "source", "access", "vector", "_distance"]


class Meaning:
    """The released vectors of a chunk table. Safe to share by threads."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.indexed = any("vector" in index.columns for index in table.list_indices())
        self._size = table.count_rows()
        self._rows = lru_cache(maxsize=512)(table.count_rows)

    def near(self, vectors: NDArray[np.float32], filters: Filters, limit: int) -> list[list[Found]]:
        """The `limit` chunks closest to each of several vectors of length 1, shape (n, dimensions), best first.

        The score is the cosine, whatever distance the index was built with.
        """
        condition = filters.narrowing()
        query = self._search(vectors, self._reach(condition), limit)
        return _found(query if condition is None else query.where(condition, prefilter=True), vectors, filters)

    def among(self, vector: NDArray[np.float32], filters: Filters, limit: int, chunk_ids: Sequence[str]) -> list[Found]:
        """The closest of certain chunks."""
        condition = " and ".join(filter(None, (f"chunk_id in ({sql_list(chunk_ids)})", filters.narrowing())))
        vectors = vector.reshape(1, -1)
        return _found(self._search(vectors, 0, limit).where(condition, prefilter=True), vectors, filters)[0]

    def _reach(self, condition: str | None) -> int:
        """How many partitions to search; 0: compare every row that meets the condition."""
        if not self.indexed:
            return 0
        if condition is None:
            return PROBES
        rows = self._rows(condition)
        if rows <= EXACT_ROWS:
            return 0
        return min(math.ceil(PROBES * math.sqrt(self._size / rows)), _MOST_PROBES)

    def _search(self, vectors: NDArray[np.float32], probes: int, limit: int) -> Any:
        query: Any = self._table.search(vectors if len(vectors) > 1 else vectors[0], vector_column_name="vector")
        query = query.distance_type("cosine").select(_COLUMNS).limit(limit)
        return query.nprobes(probes).refine_factor(_REFINE) if probes else query.bypass_vector_index()


def _found(query: Any, vectors: NDArray[np.float32], filters: Filters) -> list[list[Found]]:
    rows = query.to_arrow()
    each: list[list[Found]] = [[] for _ in vectors]
    if not rows.num_rows:
        return each
    stored = rows["vector"].combine_chunks().values.to_numpy().reshape(rows.num_rows, -1)
    of = rows["query_index"].to_pylist() if len(vectors) > 1 else [0] * rows.num_rows
    cosines = (stored * vectors[of]).sum(axis=1).tolist()
    labels, chunks, sources = (rows[name].to_pylist() for name in ("access", "chunk_id", "source"))
    for place, carried, chunk, source, cosine in zip(of, labels, chunks, sources, cosines, strict=True):
        if filters.admits(carried):
            each[place].append(Found(chunk, source, cosine))
    return each
