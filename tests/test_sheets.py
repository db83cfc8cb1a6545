"""Sheets with several tables: which stand side by side, and which only look as if they did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import openpyxl
import pytest

from tests.test_office_round_trip import cells, read, saved, sheet_of, tables

CURRENTS = [["PV", "A"], ["S1A:Q1", 80.5], ["S1A:Q2", 81]]
PUMPS = [["pump", "gpm", "state"], ["P3", 12, "on"], ["P4", 14, "off"]]


def beside(left: Sequence[Sequence[object]], right: Sequence[Sequence[object]], gap: int = 1) -> list[list[object]]:
    width = max(map(len, left))
    lines = zip_longest(left, right, fillvalue=())
    return [[*one, *[None] * (width - len(one) + gap), *other] for one, other in lines]


@pytest.mark.parametrize(
    ("left", "right", "gap"),
    [
        (CURRENTS, PUMPS, 3),
        (CURRENTS, [*PUMPS, ["P5", 9, "on"]], 1),
        (CURRENTS, [["PV", "A"], ["S2A:Q1", 1], ["S2A:Q1", 2]], 1),
        ([["s", "mA"], [0, 101.5], [1, 101.4]], [["s", "Torr"], [0, 2e-9], [1, 3e-9]], 1),
    ],
    ids=["wide gap", "other rows", "same headings", "same headings of numbers"],
)
def test_tables_beside_each_other_are_tables_of_their_own(
    left: list[list[object]], right: list[list[object]], gap: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = tables(read(sheet_of(beside(left, right, gap)), "t.xlsx", tmp_path_factory))
    assert found == [[[str(cell) for cell in row] for row in table] for table in (left, right)]


def test_tables_beside_each_other_have_captions_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [["May"], *beside([["Currents"], *CURRENTS], [["Pumps"], *PUMPS], 2)]
    found = read(sheet_of(rows), "t.xlsx", tmp_path_factory)
    assert [(part.title, cells(part.text)[0]) for part in found.parts] == [
        ("May Currents", ["PV", "A"]),
        ("May Pumps", ["pump", "gpm", "state"]),
    ]


@pytest.mark.parametrize(
    ("above", "merged", "titles"),
    [
        ([["Currents"]], "", ("Currents", "S")),
        ([[None, None, None, None, "Pumps"]], "", ("S", "Pumps")),
        ([["Currents"], [None, None, None, None, "Pumps"]], "", ("Currents", "Pumps")),
        ([["May"], [None, None, None, None, "Pumps"], ["Currents"]], "", ("May Currents", "May Pumps")),
        ([["May"], ["Currents"]], "B2:H2", ("May Currents", "May")),
        ([["May"]], "B2:H2", ("May", "May")),
        ([["Currents"]], "B2:C2", ("Currents", "S")),
        ([[None, None, "May"]], "", ("May", "May")),
    ],
    ids=["left", "right", "each in a row", "title", "title over one", "merged over both", "merged over one", "between"],
)
def test_a_caption_names_what_it_stands_above(
    above: list[list[object]], merged: str, titles: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    book = openpyxl.Workbook()
    book.active.title = "S"
    for number, row in enumerate([*above, *beside(CURRENTS, PUMPS, 2)], 2):
        for column, value in enumerate(row, 2):  # the sheet's first row and column are blank
            book.active.cell(number, column, value)
    if merged:
        book.active.merge_cells(merged)
    found = read(saved(book), "t.xlsx", tmp_path_factory)
    assert [(part.title, cells(part.text)[0][0]) for part in found.parts] == [(titles[0], "PV"), (titles[1], "pump")]


def test_a_blank_column_for_looks_does_not_part_a_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    people = [["owner", "phone"], ["Kim", "1-23"], ["Roe", "1-24"]]
    limits = [["low", "high"], [10, 20], [11, 21]]
    for right in (people, limits, [["note"], ["new"], ["old"]], [["by", "note"], ["Kim", "new"], [None, "old"]]):
        check_one(CURRENTS, right, tmp_path_factory)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            [["Device", "State"], *([f"Q{n}", "on"] for n in range(4))],
            [["Note", "By"], ["hums", "Kim"], ["trips", "Roe"]],
        ),
        ([["Device", "A"], *([f"Q{n}", n] for n in range(4))], [["Note", "Hours"], ["hums", 3], ["trips", 4]]),
        ([["Name", "Value", "Unit"], ["Q1", 5, "A"], ["Q2", 6, "A"]], [["Limit", "Unit"], [10, "A"], [12, "A"]]),
        ([["Name", "Min", "Max"], ["Q1", 5, 6], ["Q2", 6, 7]], [["Read", "Min", "Max"], [5.5, 1, 9], [6.5, 1, 9]]),
        ([["Unit", "Value"], ["A", 5], ["A", 6]], [["Unit", "Limit"], ["A", 10], ["A", 12]]),
        (
            [["Magnet"], ["Name", "A"], ["Q1", 5], ["Q2", 6]],
            [["Measured"], ["Field", "Date"], [0.3, "May"], [0.4, "June"]],
        ),
        ([["Magnet", "Length"], ["Q1", 0.5], ["Q2", 0.6]], [["Girder", "Position"], ["G1", 12.5], ["G2", 13.5]]),
        (CURRENTS, PUMPS),
    ],
    ids=[
        "notes on the first rows",
        "notes with numbers on the first rows",
        "a unit twice",
        "limits twice",
        "units first",
        "group headings",
        "which magnet sits on which girder",
        "own keys",
    ],
)
def test_a_row_keeps_its_name_where_the_right_side_may_go_on_with_it(
    left: list[list[object]], right: list[list[object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_one(left, right, tmp_path_factory)


def check_one(left: list[list[object]], right: list[list[object]], tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = beside(left, right)
    width = max(map(len, rows))
    (table,) = tables(read(sheet_of(rows), "t.xlsx", tmp_path_factory))
    assert table == [
        ["" if cell is None else str(cell) for cell in [*row, *[None] * (width - len(row))]] for row in rows
    ]
