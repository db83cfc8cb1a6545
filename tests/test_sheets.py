"""Sheets with several tables: which stand side by side, and which only look as if they did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import pytest

from tests.test_office_round_trip import cells, read, sheet_of, tables

CURRENTS = [["PV", "A"], ["S1A:Q1", 80.5], ["S1A:Q2", 81]]
PUMPS = [["pump", "gpm", "state"], ["P3", 12, "on"], ["P4", 14, "off"]]


def beside(left: Sequence[Sequence[object]], right: Sequence[Sequence[object]], gap: int = 1) -> list[list[object]]:
    width = max(map(len, left))
    lines = zip_longest(left, right, fillvalue=())
    return [[*one, *[None] * (width - len(one) + gap), *other] for one, other in lines]


@pytest.mark.parametrize(
    ("left", "right", "gap"),
    [
        (CURRENTS, PUMPS, 1),
        (CURRENTS, PUMPS, 3),
        (CURRENTS, [*PUMPS, ["P5", 9, "on"]], 1),
        (CURRENTS, [["PV", "A"], ["S2A:Q1", 1], ["S2A:Q1", 2]], 1),
        ([["s", "mA"], [0, 101.5], [1, 101.4]], [["s", "Torr"], [0, 2e-9], [1, 3e-9]], 1),
    ],
    ids=["own keys", "wide gap", "other rows", "same headings", "same headings of numbers"],
)
def test_tables_beside_each_other_are_tables_of_their_own(
    left: list[list[object]], right: list[list[object]], gap: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = tables(read(sheet_of(beside(left, right, gap)), "t.xlsx", tmp_path_factory))
    assert found == [[[str(cell) for cell in row] for row in table] for table in (left, right)]


def test_tables_beside_each_other_have_captions_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [["May"], *beside([["Currents"], *CURRENTS], [["Pumps"], *PUMPS])]
    found = read(sheet_of(rows), "t.xlsx", tmp_path_factory)
    assert [(part.title, cells(part.text)[0]) for part in found.parts] == [
        ("May Currents", ["PV", "A"]),
        ("May Pumps", ["pump", "gpm", "state"]),
    ]


def test_a_blank_column_for_looks_does_not_part_a_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    people = [["owner", "phone"], ["Kim", "1-23"], ["Roe", "1-24"]]
    limits = [["low", "high"], [10, 20], [11, 21]]
    for right in (people, limits, [["note"], ["new"], ["old"]], [["by", "note"], ["Kim", "new"], [None, "old"]]):
        rows = beside(CURRENTS, right)
        (table,) = tables(read(sheet_of(rows), "t.xlsx", tmp_path_factory))
        assert table == [["" if cell is None else str(cell) for cell in row] for row in rows]
