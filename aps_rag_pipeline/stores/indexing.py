"""Indexes of the released tables: built when a table is large enough for them, brought up to date with each release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Kind = Literal["BTREE", "BITMAP", "LABEL_LIST", "VECTOR"]

#: Scalar indexes pay from this size on; below it a scan is as fast.
SCALAR_FROM_ROWS = 20_000


def ensure(table: Any, wanted: Mapping[str, Kind]) -> bool:
    there = {column for index in table.list_indices() for column in index.columns}
    if table.count_rows() >= SCALAR_FROM_ROWS:
        for column, kind in wanted.items():
            if column not in there and kind != "VECTOR":
                table.create_scalar_index(column, index_type=kind)
    return False
