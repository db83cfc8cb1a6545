"""Indexes of the released tables: built once a table is large enough for them, brought up to date with each release.

A scalar index tells which rows meet a condition. The index of the vectors sorts them into partitions around centres and
keeps each in a byte a dimension, so that a search reads a few partitions instead of the table. New rows are sorted in
around the old centres; once the table has grown by half, and when pieces pile up, the centres are found anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from aps_rag_pipeline.failpoints import passing

log = logging.getLogger(__name__)

Kind = Literal["BTREE", "BITMAP", "LABEL_LIST", "VECTOR"]

#: Scalar indexes pay from this size on; below it a scan is as fast.
SCALAR_FROM_ROWS = 20_000
#: Below this, comparing with every vector takes less than 40 ms and finds everything.
VECTOR_FROM_ROWS = 30_000
#: Vectors of a partition, roughly.
PARTITION_ROWS = 400
#: The centres are found anew when there are so many times the rows that they were found among.
_GROWN = 1.5
#: Each release may leave a piece of the vector index, and four make a search take half as long again.
_MOST_PIECES = 4
#: Rounds and vectors a partition that finding the centres takes: more make it slower and no better.
_ROUNDS, _SAMPLE = 20, 64
#: Compaction leaves old versions alone: the collector drops them when no release needs them.
_NEVER = timedelta(days=36_500)


def bring_up_to_date(table: Any, wanted: Mapping[str, Kind], *, compact: bool) -> None:
    """Build the indexes of `wanted` (column: kind) that are missing and pay, and put new rows into those there are.

    Args:
        compact: join small pieces of the table although it has no index.
    """
    rows = int(table.count_rows())
    there = {column: index.name for index in _oldest_first(table) for column in index.columns}
    if compact or there:
        passing("lance.optimize.before")
        table.optimize(cleanup_older_than=_NEVER)
        passing("lance.optimize.after")
    for column, kind in wanted.items():
        if kind == "VECTOR":
            if rows >= VECTOR_FROM_ROWS and _worn(table, there.get(column), rows):
                there[column] = _build_vectors(table, column, rows)
            _drop_others(table, column, there.get(column))
        elif column not in there and rows >= SCALAR_FROM_ROWS:
            _build(table, column, kind)


def _build(table: Any, column: str, kind: Kind) -> None:
    from lancedb.index import Bitmap, BTree, LabelList

    config = {"BTREE": BTree, "BITMAP": Bitmap, "LABEL_LIST": LabelList}[kind]
    passing("lance.index.before")
    table.create_index(column, config=config())
    passing("lance.index.after")


def _build_vectors(table: Any, column: str, rows: int) -> str:
    from lancedb.index import IvfSq

    config = IvfSq(
        distance_type="cosine",
        num_partitions=max(rows // PARTITION_ROWS, 1),
        max_iterations=_ROUNDS,
        sample_rate=_SAMPLE,
    )
    passing("lance.vectors.before")
    # The name tells among how many rows the centres were found; it is in the table's version, as the index is.
    name = f"{column}_{rows}"
    table.create_index(column, config=config, name=name)
    passing("lance.vectors.after")
    log.info("the vectors of %d rows were indexed anew", rows)
    return name


def _drop_others(table: Any, column: str, kept: str | None) -> None:
    """Drop what a newer index has replaced, now or before a run that died in between."""
    for index in _oldest_first(table):
        if column in index.columns and index.name != kept:
            table.drop_index(index.name)


def _oldest_first(table: Any) -> list[Any]:
    return sorted(table.list_indices(), key=lambda index: _among(index.name))


def partitions(table: Any, column: str = "vector") -> int:
    """How many partitions the index of a table's vectors was made with; 0: there is none."""
    names = [index.name for index in table.list_indices() if column in index.columns]
    return max(_among(names[0]) // PARTITION_ROWS, 1) if names else 0


def _among(name: str) -> int:
    told = name.rpartition("_")[2]
    return int(told) if told.isdigit() else 1


def _worn(table: Any, name: str | None, rows: int) -> bool:
    """Whether the index of the vectors is missing, is of far fewer rows, or has fallen into pieces."""
    if name is None or rows > _GROWN * _among(name):
        return True
    stats = table.index_stats(name)
    return stats is None or (stats.num_indices or 1) > _MOST_PIECES
