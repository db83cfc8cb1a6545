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


def tables(below: list[list[list[str]]], blobs: BlobStore) -> list[tuple[str, list[list[str]]]]:
    """Each table by its page, of a document that begins with `ROWS` at the end of its first page."""
    pages = [Page() for _ in range(len(below) + 1)]
    pages[0].paragraph(72, 100, LOREM, 468)
    pages[0].text(72, 685, "Table 1: Findings")
    pages[0].table(72, 700, ROWS, WIDTHS, "grid")
    for page, rows in zip(pages[1:], below, strict=True):
        page.table(72, 60, rows, WIDTHS, "grid")
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
