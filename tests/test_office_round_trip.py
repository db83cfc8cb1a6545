"""Office files written with known content are read back: every word, in order, tables cell by cell."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from hypothesis import given, settings
from hypothesis import strategies as st
from pptx.util import Inches

from aps_rag_pipeline.content.assembly import Partition
from aps_rag_pipeline.content.partition import partition
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.stores.blobs import BlobStore

ZONE = ZoneInfo("America/Chicago")

# Words of any script; numbers with signs, names of process variables, marks that Markdown or a list would take away.
_WORD = st.one_of(
    st.text(st.characters(categories=("L", "N")), min_size=1, max_size=9),
    st.sampled_from(
        ["S-DCCT:CurrentM", "-5", "−3.2", "*", "1.", "a|b", "#4", "≤", "µm", "•", "(x)", "_a_", "100%", "Ω"]
    ),
)
_LINE = st.lists(_WORD, min_size=1, max_size=7).map(" ".join)
_CELL = st.one_of(st.just(""), _LINE)


@st.composite
def _grids(draw: st.DrawFn) -> list[list[str]]:
    """A table with headings; no column and no row is blank, and the first cell of a row never is."""
    width, height = draw(st.integers(2, 5)), draw(st.integers(1, 5))
    head = draw(st.lists(_LINE, min_size=width, max_size=width))
    body = [[draw(_LINE), *(draw(_CELL) for _ in range(width - 1))] for _ in range(height)]
    return [head, *body]


@dataclass(frozen=True)
class Heading:
    text: str
    level: int


_BLOCKS = st.lists(st.one_of(_LINE, st.builds(Heading, _LINE, st.integers(1, 4)), _grids()), min_size=1, max_size=8)


def read(data: bytes, name: str, tmp_path_factory: pytest.TempPathFactory) -> Partition:
    return partition(data, name, Limits(), BlobStore(tmp_path_factory.getbasetemp() / "office"), ZONE)


def cells(table: str) -> list[list[str]]:
    rows = [line for index, line in enumerate(table.split("\n")) if index != 1]
    return [[cell.strip().replace("\0", "|") for cell in row.replace("\\|", "\0").split("|")[1:-1]] for row in rows]


def words(found: Partition) -> list[str]:
    """Every word of a document in order; headings, which stand in locators, before what they head."""
    said: list[str] = []
    before: list[str] = []
    for part in found.parts:
        trail = part.locator.split(" > ") if part.locator else []
        same = next((n for n, pair in enumerate(zip(trail, before, strict=False)) if pair[0] != pair[1]), None)
        new = trail[min(len(trail), len(before)) if same is None else same :]
        if part.kind == "prose" and new and part.text.startswith(new[-1]):
            new = new[:-1]  # a heading with nothing below it is kept as text
        said += " ".join(new).split()
        lines = [cell for row in cells(part.text) for cell in row] if part.kind == "table" else [part.text]
        said += [word for line in lines for word in line.split()]
        before = trail
    return said


def tables(found: Partition) -> list[list[list[str]]]:
    return [cells(part.text) for part in found.parts if part.kind == "table"]


def saved(file: object) -> bytes:
    target = io.BytesIO()
    file.save(target)
    return target.getvalue()


def written(blocks: Sequence[str | Heading | list[list[str]]]) -> bytes:
    document = docx.Document()
    for block in blocks:
        if isinstance(block, str):
            document.add_paragraph(block)
        elif isinstance(block, Heading):
            document.add_heading(block.text, block.level)
        else:
            table = document.add_table(len(block), len(block[0]))
            for row, texts in enumerate(block):
                for column, text in enumerate(texts):
                    table.cell(row, column).text = text
    return saved(document)


def flat(blocks: Sequence[str | Heading | list[list[str]]]) -> list[str]:
    said: list[str] = []
    for block in blocks:
        lines = [cell for row in block for cell in row] if isinstance(block, list) else [getattr(block, "text", block)]
        said += [word for line in lines for word in line.split()]
    return said


@settings(max_examples=12, deadline=None)
@given(blocks=_BLOCKS)
def test_word_files_come_back(
    blocks: list[str | Heading | list[list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Headings are told apart by a number, so that one that repeats is not taken for the section before it.
    told = [Heading(f"§{n} {b.text}", b.level) if isinstance(b, Heading) else b for n, b in enumerate(blocks)]
    found = read(written(told), "w.docx", tmp_path_factory)
    assert tables(found) == [block for block in told if isinstance(block, list)]
    assert unmarked(words(found)) == unmarked(flat(told))


def unmarked(said: list[str]) -> list[str]:
    """Without the marks of lists, of which a reader may choose another."""
    return [word for word in said if word not in ("•", "*", "-")]


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def inserted(text: str) -> Any:
    return parse_xml(f'<w:ins {W} w:id="1" w:author="x"><w:r><w:t>{text}</w:t></w:r></w:ins>')


def deleted(text: str) -> Any:
    return parse_xml(f'<w:del {W} w:id="2" w:author="x"><w:r><w:delText>{text}</w:delText></w:r></w:del>')


def test_tracked_changes_read_as_accepted_in_tables_and_across_paragraphs(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    document = docx.Document()
    table = document.add_table(2, 2)
    for cell, text in zip(table.rows[0].cells, ("limit", "value"), strict=True):
        cell.text = text
    table.cell(1, 0).text = "HVPS"
    changed = table.cell(1, 1).paragraphs[0]._p
    changed.append(deleted("28 kV"))
    changed.append(inserted("31 kV"))
    for text, tag in (("a row taken out", "del"), ("a row put in", "ins")):
        row = table.add_row()
        row.cells[0].text = text
        row._tr.get_or_add_trPr().append(parse_xml(f'<w:{tag} {W} w:id="5" w:author="x"/>'))
    first = document.add_paragraph("Wait for the")
    first._p.get_or_add_pPr().append(parse_xml(f'<w:rPr {W}><w:del w:id="7" w:author="x"/></w:rPr>'))
    document.add_paragraph(" interlock.")
    document.sections[0].header.paragraphs[0]._p.append(inserted("APS_1273342"))
    document.sections[0].header.paragraphs[0]._p.append(deleted("DRAFT"))
    found = read(saved(document), "t.docx", tmp_path_factory)
    assert tables(found) == [[["limit", "value"], ["HVPS", "31 kV"], ["a row put in", ""]]]
    assert [part.text for part in found.parts if part.kind == "prose"] == ["Wait for the interlock.", "APS_1273342"]


def test_tables_in_cells_and_boxes_keep_their_columns(tmp_path_factory: pytest.TempPathFactory) -> None:
    document = docx.Document()
    table = document.add_table(2, 2)
    for cell, text in zip((*table.rows[0].cells, table.cell(1, 0)), ("step", "values", "3"), strict=True):
        cell.text = text
    inner = table.cell(1, 1).add_table(2, 2)
    for row, texts in enumerate((("PV", "A"), ("S1A:Q1:CurrentAO", "80.5"))):
        for column, text in enumerate(texts):
            inner.cell(row, column).text = text
    frame = document.add_table(1, 1).cell(0, 0)
    frame.add_paragraph("Framed", style="Heading 1")
    framed = frame.add_table(2, 2)
    for row in range(2):
        for column in range(2):
            framed.cell(row, column).text = f"f{row}{column}"
    boxed = document.add_table(2, 2)
    for number, cell in enumerate(cell for row in boxed.rows for cell in row.cells):
        cell.text = f"b{number}"
    boxed.cell(1, 1).paragraphs[0]._p.append(
        parse_xml(
            f'<w:r {W} xmlns:v="urn:schemas-microsoft-com:vml"><w:pict><v:shape><v:textbox><w:txbxContent>'
            "<w:p><w:r><w:t>in a box</w:t></w:r></w:p></w:txbxContent></v:textbox></v:shape></w:pict></w:r>"
        )
    )
    found = read(saved(document), "n.docx", tmp_path_factory)
    assert tables(found) == [
        [["step", "values"], ["3", "(table below)"]],
        [["PV", "A"], ["S1A:Q1:CurrentAO", "80.5"]],
        [["f00", "f01"], ["f10", "f11"]],
        [["b0", "b1"], ["b2", "b3 in a box"]],
    ]
    assert found.parts[2].title == "Framed"


def test_a_long_table_is_read_in_seconds(tmp_path_factory: pytest.TempPathFactory) -> None:
    document = docx.Document()
    table = document.add_table(800, 6)
    for number, row in enumerate(table._tbl.tr_lst):
        for column, cell in enumerate(row.tc_lst):
            cell.p_lst[0].add_r().text = f"r{number}c{column}"
    data = saved(document)
    start = time.perf_counter()
    (grid,) = tables(read(data, "long.docx", tmp_path_factory))
    assert time.perf_counter() - start < 10
    assert grid == [[f"r{row}c{column}" for column in range(6)] for row in range(800)]


@settings(max_examples=15, deadline=None)
@given(
    slides=st.lists(st.tuples(_LINE, st.lists(_LINE, max_size=3), st.none() | _grids(), _CELL), min_size=1, max_size=3)
)
def test_slides_come_back(
    slides: list[tuple[str, list[str], list[list[str]] | None, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    deck = pptx.Presentation()
    for title, lines, grid, notes in slides:
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        slide.shapes.title.text = title
        for number, line in enumerate(lines):
            box = slide.shapes.add_textbox(Inches(1), Inches(2 + number / 2), Inches(4), Inches(0.4))
            box.text_frame.text = line
        if grid:
            shape = slide.shapes.add_table(len(grid), len(grid[0]), Inches(1), Inches(4), Inches(4), Inches(2))
            for row, texts in enumerate(grid):
                for column, text in enumerate(texts):
                    shape.table.cell(row, column).text = text
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    found = read(saved(deck), "s.pptx", tmp_path_factory)
    assert tables(found) == [grid for _, _, grid, _ in slides if grid]
    for number, (title, lines, _, notes) in enumerate(slides, 1):
        here = [part for part in found.parts if part.locator == f"slide {number}"]
        text = " ".join(" ".join(part.text.split()) for part in here if part.kind == "prose")
        wanted = [*lines, *([f"Notes: {notes}"] if notes else [])]
        assert text == " ".join(wanted or ([] if here[0].kind == "table" else [title]))
        assert all(part.title in (title, "") for part in here)
        assert here[0].title == title or here[0].text == title


def test_merged_cells_of_a_slide_stay_in_their_columns(tmp_path_factory: pytest.TempPathFactory) -> None:
    deck = pptx.Presentation()
    shapes = deck.slides.add_slide(deck.slide_layouts[6]).shapes
    table = shapes.add_table(3, 3, Inches(1), Inches(1), Inches(4), Inches(2)).table
    for row, column in ((0, 0), (0, 2), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)):
        table.cell(row, column).text = f"c{row}{column}"
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(1, 0).merge(table.cell(2, 0))
    found = read(saved(deck), "m.pptx", tmp_path_factory)
    assert tables(found) == [[["c00", "", "c02"], ["c10", "c11", "c12"], ["c10", "c21", "c22"]]]


@settings(max_examples=15, deadline=None)
@given(sheets=st.lists(st.tuples(st.lists(_LINE, max_size=2), _grids()), min_size=1, max_size=3))
def test_workbooks_come_back(
    sheets: list[tuple[list[str], list[list[str]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, (captions, grid) in enumerate(sheets, 1):
        sheet = book.create_sheet(f"S{number}")
        for line in captions:
            sheet.append([line])
        for row in grid:
            sheet.append([cell or None for cell in row])
    found = read(saved(book), "b.xlsx", tmp_path_factory)
    assert tables(found) == [grid for _, grid in sheets]
    for number, (captions, _) in enumerate(sheets, 1):
        (part,) = (part for part in found.parts if part.locator == f"sheet S{number}")
        assert part.title.split() == (" ".join(captions) or f"S{number}").split()


def sheet_of(rows: Sequence[Sequence[object]]) -> bytes:
    book = openpyxl.Workbook()
    book.active.title = "S"
    for number, row in enumerate(rows, 1):
        for column, value in enumerate(row, 1):
            if value is not None:
                book.active.cell(number, column, value)
    return saved(book)


def test_tables_below_each_other_are_tables_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = read(
        sheet_of(
            [
                ["Currents"], ["PV", "A"], ["S1A:Q1", 80.5], [], ["S1A:Q2", 81], [],
                ["Pumps"], ["pump", "gpm", "state"], ["P3", 12, "on"], [],
                ["valve", "turns"], ["V1", 3], [], ["Checked in May."],
            ]
        ),
        "t.xlsx",
        tmp_path_factory,
    )  # fmt: skip
    assert [(part.title, cells(part.text)) for part in found.parts if part.kind == "table"] == [
        ("Currents", [["PV", "A"], ["S1A:Q1", "80.5"], ["S1A:Q2", "81"]]),
        ("Pumps", [["pump", "gpm", "state"], ["P3", "12", "on"]]),
        ("S", [["valve", "turns"], ["V1", "3"]]),
    ]
    assert found.parts[-1].text == "Checked in May."


def test_blank_rows_inside_a_table_of_words_do_not_end_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [
        ["task", "who", "state"],
        ["align", "Kim", "open"],
        [],
        ["survey", "Roe", "done"],
        [],
        ["vent", None, "open"],
    ]
    assert tables(read(sheet_of(rows), "t.xlsx", tmp_path_factory)) == [
        [["task", "who", "state"], ["align", "Kim", "open"], ["survey", "Roe", "done"], ["vent", "", "open"]]
    ]


def test_a_printed_report_is_read_by_its_entries(tmp_path_factory: pytest.TempPathFactory) -> None:
    rows: list[list[object]] = [["SCRAM Report"], []]
    for number in range(8):
        rows += [
            [f"Plant {number}", None, "Event Date", "Region"],
            ["Cause", None, f"2020-03-{number + 1:02d}", number],
        ]
        rows += [[None, f"The turbine of unit {number} tripped."], []]
    found = read(sheet_of(rows), "r.xlsx", tmp_path_factory)
    assert found.parts[0].text == "SCRAM Report"
    assert [(part.kind, part.title, part.text) for part in found.parts[1:]] == [
        (
            "prose",
            f"Plant {n}",
            f"Cause | Event Date: 2020-03-{n + 1:02d} | Region: {n}\nThe turbine of unit {n} tripped.",
        )
        for n in range(8)
    ]
    assert found.parts[3].locator == "sheet S rows 11-13"


def test_a_table_in_which_words_come_often_is_no_report(tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [["PV", "state", "unit"], *([f"S{n}", ("on", "off")[n % 2], ("A", "V")[n % 2]] for n in range(60))]
    assert tables(read(sheet_of(rows), "t.xlsx", tmp_path_factory)) == [rows]


def test_real_reports_and_blank_ranges(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = shared / "downtime" / "nrc"
    found = read((folder / "SCRAM.xlsx").read_bytes(), "SCRAM.xlsx", tmp_path_factory)
    palo = next(part for part in found.parts if part.title == "Palo Verde")
    assert palo.text.startswith("Description | Event Date: 03/03/2020 | En No.: 54560 | Region: 4\nREACTOR TRIP DUE TO")
    assert sum("Event Date: " in part.text for part in found.parts) == 549
    start = time.perf_counter()
    found = read((folder / "LERSearchResults2018.xlsx").read_bytes(), "LER.xlsx", tmp_path_factory)
    assert time.perf_counter() - start < 10, "its declared range is blank for the most part"
    (grid,) = tables(found)
    assert (len(grid), len(grid[0])) == (208, 6)
