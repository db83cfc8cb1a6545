"""Rows of tables that a page end breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from aps_rag_pipeline.stores.blobs import BlobStore
from tests.pdf_writer import Page, document
from tests.test_pdf import LOREM, cells, read

WIDTHS = (90, 150, 150)
HEAD = ["device", "finding", "action"]
ROWS = [HEAD, ["Q1", "reads low", "none"], ["Q2", "trips when the", "swap the supply"]]


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def tables(
    below: list[list[list[str]]], blobs: BlobStore, rows: list[list[str]] = ROWS
) -> list[tuple[str, list[list[str]]]]:
    """Each table by its page, of a document that begins with `rows` at the end of its first page."""
    pages = [Page() for _ in range(len(below) + 1)]
    pages[0].paragraph(72, 100, LOREM, 468)
    pages[0].text(72, 685, "Table 1: Findings")
    pages[0].table(72, 700, rows, WIDTHS, "grid")
    for page, further in zip(pages[1:], below, strict=True):
        page.table(72, 60, further, WIDTHS, "grid")
    return found_in(pages, blobs)


def found_in(pages: list[Page], blobs: BlobStore) -> list[tuple[str, list[list[str]]]]:
    found = read(document(pages), blobs)
    return [(part.locator, cells(part.text)) for part in found.parts if part.kind == "table"]


WHOLE = ["Q2", "trips when the water runs warm", "swap the supply on Monday"]


@pytest.mark.parametrize("above", [[], [HEAD]], ids=["plain", "header repeated"])
def test_a_row_that_goes_on_behind_the_page_end_is_one_row(above: list[list[str]], blobs: BlobStore) -> None:
    rest = ["", "water runs warm", "on Monday"]
    assert tables([[*above, rest, ["Q3", "hums", "listen"]]], blobs) == [
        ("page 1", [*ROWS[:2], WHOLE]),
        ("page 2", [HEAD, ["Q3", "hums", "listen"]]),
    ]


def test_a_row_goes_on_behind_a_word_that_nothing_ends_with(blobs: BlobStore) -> None:
    rows = [["name", "meaning", "default"], ["PATH", "of the helper, may be", ""]]
    assert tables([[["", "an absolute one", ""], ["SIZE", "in bytes", "512"]]], blobs, rows) == [
        ("page 1", [rows[0], ["PATH", "of the helper, may be an absolute one", ""]]),
        ("page 2", [rows[0], ["SIZE", "in bytes", "512"]]),
    ]


@pytest.mark.parametrize(
    "row",
    [["", "Water runs warm", ""], ["", "12.5", "13"], ["q3", "hums", "listen"]],
    ids=["a sentence of its own", "values", "a key of its own"],
)
def test_a_row_of_its_own_stays_one(row: list[str], blobs: BlobStore) -> None:
    assert tables([[row, ["Q4", "hums", "listen"]]], blobs) == [
        ("page 1", ROWS),
        ("page 2", [HEAD, row, ["Q4", "hums", "listen"]]),
    ]


@pytest.mark.parametrize(
    ("rows", "further"),
    [
        ([["S1", "valve a", "open"], ["", "valve b", "shut"]], [["", "valve c", "open"], ["S2", "valve a", "open"]]),
        (
            [["S1", "valve a", "open"]],
            [["", "valve b", "in use"], ["", "valve c", "shut"], ["S2", "valve a", "open"]],
        ),
        ([["S1", "valve a", "open"]], [["", "valve b", "shut"], ["S2", "valve a", "open"]]),
    ],
    ids=["blank before", "blank below", "blank once"],
)
def test_rows_of_a_group_that_is_named_once_stay_rows(
    rows: list[list[str]], further: list[list[str]], blobs: BlobStore
) -> None:
    rows = [["sector", "device", "state"], *rows]
    assert tables([further], blobs, rows) == [("page 1", rows), ("page 2", [rows[0], *further])]


def broken_off(page: Page, top: float, last: list[str]) -> None:
    """A last row of which one cell has several lines."""
    bottom = top + 4 + 12 * len(last)
    for x in (72, 162, 252):
        page.line(x, top, x, bottom)
    page.line(72, bottom, 252, bottom)
    page.text(75, top + 11, "Q2", 9)
    for number, line in enumerate(last):
        page.text(165, top + 11 + 12 * number, line, 9)


def cell_by_cell(
    first: str, last: list[str], further: list[str], blobs: BlobStore
) -> list[tuple[str, list[list[str]]]]:
    """Tables of two pages, the last row of the first with a cell of several lines that are full."""
    pages = [Page(), Page()]
    pages[0].paragraph(72, 100, LOREM, 468)
    pages[0].table(72, 660, [["device", "finding"], [first, "none"]], (90, 90), "grid")
    broken_off(pages[0], 692, last)
    pages[1].table(72, 60, [further, ["Q3", "none"]], (90, 90), "grid")
    return found_in(pages, blobs)


@pytest.mark.parametrize(
    ("first", "last", "goes_on"),
    [
        ("Q1", ["trips soon after a", "start of the pump"], True),
        ("Q1", ["trips soon after a", "start"], False),
        ("Q2", ["trips soon after a", "start of the pump"], False),
    ],
    ids=["a full line", "room for more", "a group"],
)
def test_a_row_goes_on_where_the_line_at_the_page_end_was_full(
    first: str, last: list[str], goes_on: bool, blobs: BlobStore
) -> None:
    head, row = ["device", "finding"], ["Q2", " ".join(last)]
    further = ["", "circuit or later"]
    whole = [*row[:1], f"{row[1]} {further[1]}"]
    assert cell_by_cell(first, last, further, blobs) == [
        ("page 1", [head, [first, "none"], whole if goes_on else row]),
        ("page 2", [head, *([] if goes_on else [further]), ["Q3", "none"]]),
    ]


@pytest.mark.parametrize("said", [True, False], ids=["heading said again", "heading said once"])
def test_a_row_goes_on_behind_later_page_ends_too(said: bool, blobs: BlobStore) -> None:
    head, last = ["device", "finding"], ["trips soon after a", "start of the pump"]
    pages = [Page(), Page(), Page()]
    pages[0].paragraph(72, 100, LOREM, 468)
    pages[0].table(72, 660, [head, ["P1", "none"], ["P2", "fine"]], (90, 90), "grid")
    pages[1].table(72, 60, [head if said else ["Q0", "none"], ["Q1", "none"]], (90, 90), "grid")
    broken_off(pages[1], 92, last)
    pages[2].table(72, 60, [["", "circuit or later"], ["Q3", "none"]], (90, 90), "grid")
    assert found_in(pages, blobs)[1:] == [
        (
            "page 2",
            [head, *([] if said else [["Q0", "none"]]), ["Q1", "none"], ["Q2", " ".join([*last, "circuit or later"])]],
        ),
        ("page 3", [head, ["Q3", "none"]]),
    ]
