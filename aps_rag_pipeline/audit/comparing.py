"""Rows that should stand in a table against those that do: whole columns first, single rows where these differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Difference:
    """`kind` is missing_row, surplus_row, duplicate_row or different_row; `columns` are those that differ. `rid` is the
    record that the row belongs, or says it belongs, to."""

    kind: str
    id: str
    key: str
    rid: int
    columns: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        return {
            "missing_row": "is missing",
            "surplus_row": "should not be there",
            "duplicate_row": "is there more than once",
            "different_row": f"differs in {', '.join(self.columns)}",
        }[self.kind]


def differences(wanted: pa.Table, found: pa.Table, id_column: str) -> Iterator[Difference]:
    """Both directions, by id and by every column of `wanted`."""
    wanted, found = wanted.sort_by(id_column), found.sort_by(id_column)
    if wanted.num_rows == found.num_rows and all(
        wanted[name].equals(found[name].cast(wanted[name].type)) for name in wanted.column_names
    ):
        return
    wanted_ids, found_ids = wanted[id_column].to_pylist(), found[id_column].to_pylist()
    yield from _rows("missing_row", wanted, _outside(wanted_ids, found_ids), id_column)
    yield from _rows("surplus_row", found, _outside(found_ids, wanted_ids), id_column)
    places = {found_id: place for place, found_id in enumerate(found_ids)}
    again = {found_id for found_id, count in Counter(found_ids).items() if count > 1}
    yield from _rows("duplicate_row", found, sorted(places[i] for i in again.intersection(wanted_ids)), id_column)
    shared = [(place, places[i]) for place, i in enumerate(wanted_ids) if i in places and i not in again]
    yield from _unlike(_take(wanted, [a for a, _ in shared]), _take(found, [b for _, b in shared]), id_column)


def _unlike(wanted: pa.Table, found: pa.Table, id_column: str) -> Iterator[Difference]:
    """Rows of the same ids in the same order that differ, with the columns in which they do."""
    columns: dict[int, list[str]] = {}
    for name in wanted.column_names:
        for place in _places(wanted[name].combine_chunks(), found[name].cast(wanted[name].type).combine_chunks()):
            columns.setdefault(place, []).append(name)
    for place, names in sorted(columns.items()):
        yield from _rows("different_row", wanted, [place], id_column, tuple(names))


def _places(wanted: pa.Array, found: pa.Array) -> list[int]:
    if wanted.equals(found):
        return []
    if pa.types.is_fixed_size_list(wanted.type):  # vectors, bit by bit: a number that is none equals nothing
        import numpy as np

        size = wanted.type.list_size
        mine, other = (array.flatten().to_numpy(zero_copy_only=False).view(np.uint32) for array in (wanted, found))
        if len(mine) != len(other):  # a row without vector has no numbers
            return [place for place, value in enumerate(found.is_valid().to_pylist()) if not value]
        return [int(place) for place in np.flatnonzero((mine != other).reshape(-1, size).any(axis=1))]
    return [place for place, (a, b) in enumerate(zip(wanted.to_pylist(), found.to_pylist(), strict=True)) if a != b]


def _outside(ids: Sequence[str], others: Sequence[str]) -> list[int]:
    known = set(others)
    return [place for place, each in enumerate(ids) if each not in known]


def _rows(
    kind: str, table: pa.Table, places: Sequence[int], id_column: str, columns: tuple[str, ...] = ()
) -> Iterator[Difference]:
    for row in _take(table, places).to_pylist():
        yield Difference(kind, str(row[id_column]), row.get("key") or "", int(row.get("rid") or 0), columns)


def _take(table: pa.Table, places: Sequence[int]) -> pa.Table:
    return table.take(pa.array(places, pa.int64()))


def without(table: pa.Table, rids: set[int]) -> pa.Table:
    """Rows of other records than these."""
    return table.filter(pc.invert(pc.is_in(table["rid"], pa.array(sorted(rids), pa.int64())))) if rids else table
