"""PDFs of known content are read back word by word, in order, with their tables cell by cell."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content.assembly import Partition
from aps_rag_pipeline.content.guard import reading
from aps_rag_pipeline.content.pdf import partition_pdf
from aps_rag_pipeline.records import Part
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.pdf_writer import INDIRECT, Page, document

ZONE = ZoneInfo("America/Chicago")
LOREM = (
    "The storage ring was refilled after the klystron of sector 36 had tripped on reflected power and the operators "
    "had reset its modulator from the main control room while the vacuum readings near the cavity came back slowly "
    "to their usual values and the beam position monitors were checked against the orbit of the day before"
)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    return BlobStore(tmp_path_factory.mktemp("blobs"))


def read(data: bytes, blobs: BlobStore) -> Partition:
    """As the process for documents reads it, here in this process, so that its time can be taken."""
    with reading("pdf"):
        return partition_pdf(data, "paper.pdf", Limits(), blobs, ZONE)


def cells(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in row.split("|")[1:-1]] for index, row in enumerate(table.split("\n")) if index != 1
    ]


def prose(found: Partition, page: int | None = None) -> str:
    where = None if page is None else f"page {page}"
    return "\n".join(part.text for part in found.parts if part.kind == "prose" and where in (None, part.locator))


def words(count: int, source: random.Random) -> list[str]:
    return ["".join(source.choices(string.ascii_lowercase, k=source.randint(2, 9))) for _ in range(count)]


# Known documents, made at random


class _Made:
    """A document of columns with headings, tables and running heads, and what is to be read of it."""

    def __init__(self, seed: int, columns: int, count: int) -> None:
        self.random = random.Random(seed)
        self.columns = columns
        self.pages: list[Page] = []
        self.prose: list[list[str]] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.headings: list[str] = []
        self.head = " ".join(words(4, self.random)).title()
        for number in range(1, count + 1):
            self._page(number)

    def _page(self, number: int) -> None:
        page = Page()
        self.pages.append(page)
        self.prose.append([])
        page.text(72, 40, f"{self.head} {number}", 9)
        page.text(300, 765, f"- {number} -", 9)
        gutter = 18
        wide = (612 - 2 * 60 - (self.columns - 1) * gutter) / self.columns
        y = 80.0
        if self.random.random() < 0.7:
            y = self._heading(page, 60, y, 16, across=True)
        if self.columns > 1 and self.random.random() < 0.5:
            y = self._paragraph(page, 60, y, 492, 50)
        for column in range(self.columns):
            self._column(page, 60 + column * (wide + gutter), y, wide)

    def _column(self, page: Page, x: float, y: float, wide: float) -> None:
        y = self._paragraph(page, x, y, wide, 45)
        while y < 380:
            kind = self.random.random()
            if kind < 0.2:
                y = self._table(page, x, y, wide)
            elif kind < 0.4:
                y = self._heading(page, x, y + 8, 12)
            y = self._paragraph(page, x, y, wide, self.random.randint(30, 60))

    def _paragraph(self, page: Page, x: float, y: float, room: float, count: int) -> float:
        said = words(count, self.random)
        self.prose[-1] += said
        return page.paragraph(x, y + 6, " ".join(said), room) + 4

    def _heading(self, page: Page, x: float, y: float, size: float, *, across: bool = False) -> float:
        text = " ".join(words(8 if across else 2, self.random)).capitalize()
        self.headings.append(text)
        page.text(x, y + 8, text, size, bold=True)
        return y + 8 + size

    def _table(self, page: Page, x: float, y: float, wide: float) -> float:
        across = self.random.randint(3, 4) if wide > 180 else 3
        body = [
            [f"{self.random.uniform(-99, 99):.2f}" for _ in range(across)] for _ in range(self.random.randint(3, 6))
        ]
        rows = [[word[:5] for word in words(across, self.random)], *body]
        caption = f"Table {len(self.tables) + 1}: " + " ".join(words(4, self.random))
        y = page.paragraph(x, y + 14, caption, wide, 9)
        y = page.table(x, y, rows, [wide / across] * across, self.random.choice(("grid", "book", "")))
        self.tables.append((caption, rows))
        return y + 20


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), columns=st.integers(1, 3), count=st.integers(3, 5))
def test_documents_of_columns_headings_tables_and_running_heads_are_read_back(
    seed: int, columns: int, count: int, blobs: BlobStore
) -> None:
    made = _Made(seed, columns, count)
    found = read(document(made.pages), blobs)
    for number, said in enumerate(made.prose, 1):
        assert prose(found, number).split() == said, f"page {number}"
    tables = [(part.title, cells(part.text)) for part in found.parts if part.kind == "table"]
    assert tables == made.tables
    titles = list(dict.fromkeys(part.title for part in found.parts if part.kind == "prose" and part.title))
    assert titles == made.headings
    assert found.fields["running_heads"] == [f"{made.head} 1", "- 1 -"]
    assert not found.attachments


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 2), lines=st.integers(1, 12))
def test_nothing_is_taken_from_short_files_however_their_pages_repeat(
    seed: int, count: int, lines: int, blobs: BlobStore
) -> None:
    source = random.Random(seed)
    said = [" ".join(words(6, source)) for _ in range(lines)]
    pages = []
    for _ in range(count):
        page = Page()
        for index, line in enumerate(said):
            page.text(72, 40 + 60 * index, line)
        pages.append(page)
    found = read(document(pages), blobs)
    assert [prose(found, number).split() for number in range(1, count + 1)] == [" ".join(said).split()] * count
    assert "running_heads" not in found.fields


# Order


def _column_page(columns: int, gutter: float = 16) -> tuple[Page, list[str]]:
    page, said = Page(), []
    wide = (492 - (columns - 1) * gutter) / columns
    for column in range(columns):
        text = f"column{string.ascii_lowercase[column]} {LOREM}"
        said += text.split()
        page.paragraph(60 + column * (wide + gutter), 100 + 3 * column, text, wide)
    return page, said


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_columns_are_read_one_after_the_other_at_whatever_heights_their_lines_stand(
    columns: int, blobs: BlobStore
) -> None:
    page, said = _column_page(columns)
    assert prose(read(document([page]), blobs)).split() == said


def test_what_runs_across_columns_parts_them(blobs: BlobStore) -> None:
    page = Page()
    page.text(60, 60, "A title across both columns of the page and of the paper", 18)
    left, right = LOREM, LOREM.replace("the", "a")
    end = max(page.paragraph(60, 100, left, 236), page.paragraph(316, 100, right, 236))
    page.picture(60, end + 10, 492, 120)
    page.text(60, end + 150, "Figure 1: the orbit before and after the trip, as it was measured by all monitors.")
    page.paragraph(60, end + 190, f"below {left}", 236)
    page.paragraph(316, end + 190, f"last {right}", 236)
    text = " ".join(prose(read(document([page]), blobs)).split())
    order = [left, right, "Figure 1: the orbit", f"below {left}", f"last {right}"]
    places = [text.index(said) for said in order]
    assert places == sorted(places)


@pytest.mark.parametrize(("turn", "rotate"), [(0, ""), (0, "360"), (90, "90"), (180, "180"), (270, "270"), (90, "")])
def test_pages_turned_by_any_right_angle_read_like_upright_ones(turn: int, rotate: str, blobs: BlobStore) -> None:
    upright, said = _column_page(2)
    assert prose(read(document([_turned(upright, turn, rotate)]), blobs)).split() == said
    if rotate == "270":
        assert prose(read(document([_turned(upright, turn, INDIRECT)]), blobs)).split() == said


def _turned(page: Page, turn: int, rotate: str) -> Page:
    matrix = {0: "1 0 0 1 0 0", 90: "0 1 -1 0 792 0", 180: "-1 0 0 -1 612 792", 270: "0 -1 1 0 0 612"}[turn]
    wide, high = (792, 612) if turn in (90, 270) else (612, 792)
    return Page(wide, high, rotate, [f"q {matrix} cm", *page.operators, "Q"])


def test_a_stamp_at_the_side_is_read_apart_from_the_text(blobs: BlobStore) -> None:
    page = Page()
    page.paragraph(72, 100, LOREM, 468)
    page.text(30, 500, "arXiv:2101.00001v2 [physics.acc-ph]", 14, turn=90)
    assert prose(read(document([page]), blobs)).split() == [*LOREM.split(), "arXiv:2101.00001v2", "[physics.acc-ph]"]


def test_text_from_right_to_left_comes_in_the_order_in_which_it_is_read(blobs: BlobStore) -> None:
    first, second = "שלום", "עולם"
    letters = "".join(dict.fromkeys(first + second))
    page = Page()

    def codes(word: str) -> bytes:
        return bytes(letters.index(char) + 1 for char in reversed(word))  # drawn from the left

    page.codes(200, 100, codes(first))
    page.codes(150, 100, codes(second))
    page.text(110, 100, "420", 12)
    assert prose(read(document([page], letters), blobs)) == f"{first} {second} 420"


# What is taken out, and what is not


def _paged(count: int, head: str, foot: str = "") -> list[Page]:
    pages = []
    for number in range(1, count + 1):
        page = Page()
        page.text(72, 40, head.format(number), 9)
        page.paragraph(72, 100, f"word{string.ascii_lowercase[number]} {LOREM}", 468)
        if foot:
            page.text(500 if number % 2 else 72, 760, foot.format(number), 9)
        pages.append(page)
    return pages


def test_heads_feet_and_page_numbers_are_taken_out_and_named(blobs: BlobStore) -> None:
    found = read(document(_paged(5, "APS_1273342 rev 02, page {} of 5", "Argonne {}")), blobs)
    assert [prose(found, n).split()[:2] for n in (1, 5)] == [["wordb", "The"], ["wordf", "The"]]
    assert "Argonne" not in prose(found)
    assert found.fields["running_heads"] == ["APS_1273342 rev 02, page 1 of 5", "Argonne 1"]


@pytest.mark.parametrize(
    "lines",
    [
        ["Sector 17 is closed", "Sector 4 is closed", "Sector 35 is closed", "Sector 9 is closed"],
        ["first beam", "second beam", "third beam", "fourth beam"],
    ],
)
def test_lines_whose_numbers_are_no_page_numbers_stay(lines: list[str], blobs: BlobStore) -> None:
    pages = [_paged(1, line)[0] for line in lines]
    found = read(document(pages), blobs)
    assert [prose(found, number).split("\n")[0] for number in range(1, 5)] == lines


def test_words_parted_at_line_ends_are_joined_and_compounds_keep_their_hyphen(blobs: BlobStore) -> None:
    page = Page()
    lines = [
        "The klystron gallery holds the modu-",
        "lators of both linacs, and the beam-",
        "line group keeps a long-term plan; this long-",
        "term plan names S35:KICKER and the LTS-",
        "H1 corrector of the low-emit-",
        "tance lattice. The beamline is open.",
    ]
    for index, line in enumerate(lines):
        page.text(72, 100 + 12 * index, line)
    text = prose(read(document([page]), blobs))
    assert "LTS-\nH1" in text
    said = " ".join(text.split())
    for joined in ("modulators of", "beamline group", "this long-term plan names", "low-emittance lattice"):
        assert joined in said


def test_a_fraction_comes_on_one_line_and_private_signs_are_left_out(blobs: BlobStore) -> None:
    page = Page()
    page.paragraph(72, 100, LOREM, 468)
    for x, y, text in ((200, 196, "a + b"), (200, 205, "c"), (180, 201, "x ="), (240, 201, "+ d")):
        page.text(x, y, text)
    page.codes(320, 201, b"\x01\x01")
    page.paragraph(72, 240, "After the formula.", 468)
    text = prose(read(document([page], "\ue001"), blobs))
    formula = next(line for line in text.split("\n") if "x =" in line)
    assert sorted(formula.split()) == sorted("abcdx+++=".replace("+++", "++"))
    assert "\ue001" not in text
    assert text.endswith("After the formula.")


def test_letters_one_below_the_other_make_words(blobs: BlobStore) -> None:
    page = Page()
    page.paragraph(72, 100, LOREM, 468)
    for number, char in enumerate("beam current"):
        page.text(76 - (char in "mw"), 300 + 12 * number, char)
    assert prose(read(document([page]), blobs)).split("\n")[-1] == "beam current"


def test_powers_of_ten_are_not_read_as_other_numbers(blobs: BlobStore) -> None:
    page = Page()
    page.operators.append("BT /F1 10 Tf 72 700 Td (pressure 3 x 10) Tj /F1 6 Tf 4 Ts (-9) Tj ET")
    assert prose(read(document([page]), blobs)) == "pressure 3 x 10^-9"


# Tables

ROWS = [["Device", "Set point", "Unit"], ["S1A:H1", "12.5", "A"], ["S2B:V3", "-3.25", "A"], ["S35:RF", "352", "MHz"]]


@pytest.mark.parametrize("rules", ["grid", "book", ""])
@pytest.mark.parametrize("below", [False, True])
def test_a_table_is_read_cell_by_cell_with_its_caption_and_not_said_twice(
    rules: str, below: bool, blobs: BlobStore
) -> None:
    page = Page()
    caption = "Table 3: Set points of the correctors after the shutdown"
    y = page.paragraph(72, 100, LOREM, 468)
    if not below:
        page.text(72, y + 12, caption)
    end = page.table(72, y + 20, ROWS, [120, 100, 80], rules)
    if below:
        page.text(72, end + 14, caption)
    page.paragraph(72, end + 50, "After it.", 468)
    found = read(document([page]), blobs)
    (table,) = [part for part in found.parts if part.kind == "table"]
    assert cells(table.text) == ROWS
    assert (table.title, table.locator) == (caption, "page 1")
    assert prose(found).split() == [*LOREM.split(), "After", "it."]


def test_merged_and_empty_cells_and_cells_of_several_lines_keep_their_columns(blobs: BlobStore) -> None:
    page = Page()
    for y in (100, 120, 140, 180, 200):
        page.line(72 if y != 180 else 152, y, 372, y)
    for x in (72, 152, 372):
        page.line(x, 100, x, 200)
    page.line(262, 120, 262, 200)
    texts = [(75, 113, "Area"), (155, 113, "Currents of both rings"), (155, 133, "2023"), (265, 133, "2024")]
    texts += [(75, 155, "Injector"), (155, 153, "1.1 and"), (155, 165, "later 1.2"), (265, 195, "9")]
    for x, y, text in texts:
        page.text(x, y, text, 9)
    (table,) = read(document([page]), blobs).parts
    assert cells(table.text) == [
        ["Area", "Currents of both rings", ""],
        ["", "2023", "2024"],
        ["Injector", "1.1 and later 1.2", ""],
        ["Injector", "", "9"],
    ]


def test_a_table_that_goes_on_over_the_page_keeps_its_header_and_caption(blobs: BlobStore) -> None:
    first, second = Page(), Page()
    first.paragraph(72, 100, LOREM, 468)
    first.text(72, 600, "Table 1: Devices")
    first.table(72, 610, ROWS[:3], [120, 100, 80], "grid")
    second.table(72, 60, ROWS[3:] * 2, [120, 100, 80], "grid")
    tables = [part for part in read(document([first, second]), blobs).parts if part.kind == "table"]
    assert [(part.title, part.locator) for part in tables] == [
        ("Table 1: Devices", "page 1"),
        ("Table 1: Devices", "page 2"),
    ]
    assert cells(tables[1].text) == [ROWS[0], ROWS[3], ROWS[3]]


def test_frames_plots_and_columns_of_text_are_no_tables(blobs: BlobStore) -> None:
    page = Page()
    page.box(60, 60, 492, 300)
    page.paragraph(70, 80, LOREM, 470)
    for step in range(8):
        page.line(100, 400 + 20 * step, 380, 400 + 20 * step)
        page.line(100 + 40 * step, 400, 100 + 40 * step, 540)
        page.text(80, 403 + 20 * step, str(step), 8)
    page.text(150, 590, "time after the trip / ms", 8)
    framed, said = _column_page(2)
    for y in (80, 90, 700):
        framed.line(60, y, 552, y)
    found = read(document([page, framed]), blobs)
    assert [part.kind for part in found.parts if part.kind == "table"] == []
    assert prose(found, 2).split() == said


# Sections


def test_headings_are_the_titles_of_what_is_below_them(blobs: BlobStore) -> None:
    page = Page()
    page.text(72, 80, "Recovery of the radio-frequency systems", 18)
    y = page.paragraph(72, 110, LOREM, 468)
    page.text(72, y + 20, "2.1 Scope", 10, bold=True)
    y = page.paragraph(72, y + 34, f"scope {LOREM}", 468)
    following = Page()
    following.paragraph(72, 80, f"more {LOREM}", 468)
    following.text(72, 200, "3. Interlocks", 13, bold=True)
    following.paragraph(72, 220, "Reset them.", 468)
    found = read(document([page, following]), blobs)
    assert [(part.title, part.locator, part.text.split()[0]) for part in found.parts] == [
        ("Recovery of the radio-frequency systems", "page 1", "The"),
        ("2.1 Scope", "page 1", "scope"),
        ("2.1 Scope", "page 2", "more"),
        ("3. Interlocks", "page 2", "Reset"),
    ]


def test_bookmarks_divide_a_page_where_they_point(blobs: BlobStore) -> None:
    page = Page()
    page.text(72, 80, "1 Overview", 10)
    page.paragraph(72, 100, "First words.", 468)
    page.text(72, 200, "A line in large letters that is no section", 15)
    page.paragraph(72, 300, "Words of the unnamed section.", 468)
    found = read(document([page], bookmarks=[("Overview", 0, 60), ("Hidden section", 0, 280)]), blobs)
    assert [(part.title, part.text.replace("\n\n", "\n")) for part in found.parts] == [
        ("1 Overview", "First words.\nA line in large letters that is no section"),
        ("Hidden section", "Words of the unnamed section."),
    ]


def test_scanned_pages_among_others_are_attached_at_their_place(blobs: BlobStore) -> None:
    scan = Page()
    scan.picture(50, 50, 500, 700)
    written = [_paged(1, "Head")[0] for _ in range(2)]
    found = read(document([written[0], scan, written[1]]), blobs)
    (attachment,) = found.attachments
    assert (attachment.page, found.parts[attachment.part]) == (2, Part("prose", "", "page 2"))
    assert found.fields["pages_without_text"] == 1


def test_values_of_forms_and_comments_are_read_behind_their_page(blobs: BlobStore) -> None:
    page = Page()
    page.text(72, 100, "Interlock test of sector 7")
    page.note("/Subtype /Widget /FT /Tx /T (tested_by) /TU (Tested by) /V (K. Rao)")
    page.note("/Subtype /Widget /FT /Btn /T (Bypassed) /V /Off")
    page.note("/Subtype /Text /Contents (Repeat it after the shutdown.)")
    found = read(document([page]), blobs)
    assert [part.text for part in found.parts] == [
        "Interlock test of sector 7",
        "Tested by: K. Rao\nRepeat it after the shutdown.",
    ]


# Hostile and damaged


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), damage=st.integers(1, 30))
def test_damaged_copies_are_read_or_refused_with_a_reason(seed: int, damage: int, blobs: BlobStore) -> None:
    source = random.Random(seed)
    data = bytearray(document(_Made(seed % 5, 1 + seed % 3, 1).pages))
    for _ in range(damage):
        data[source.randrange(9, len(data))] = source.randrange(256)
    if seed % 4 == 0:
        del data[source.randrange(9, len(data)) :]
    outcome = _outcome(bytes(data), blobs)
    if isinstance(outcome, UnreadableError):
        assert outcome.permanent
        assert outcome.remedy
    else:
        assert all(part.text == part.text.strip("\n") for part in outcome.parts)


def _outcome(data: bytes, blobs: BlobStore) -> Partition | UnreadableError:
    try:
        return read(data, blobs)
    except UnreadableError as error:
        return error


def test_broken_properties_and_bookmarks_cost_no_text(blobs: BlobStore) -> None:
    page = Page()
    page.text(72, 100, "Words of the page.")
    half = b"\xfe\xff\xd8\x00"  # the first half of a pair
    found = read(document([page], bookmarks=[(half.decode("latin-1"), 0, 90)], title=half), blobs)
    assert (found.title, prose(found)) == ("", "Words of the page.")


def test_a_page_of_very_many_letters_or_lines_costs_little(blobs: BlobStore) -> None:
    crowded, drawn = Page(), Page()
    for number in range(1500):
        crowded.text(72, 700, "crowded letters on a page " * 4, 2)
        drawn.operators.append("".join(f"{n} {number / 2} m {n} {number / 2 + 9} l S\n" for n in range(20, 60)))
    drawn.text(72, 100, "A map of the ring in sixty thousand lines")
    start = time.process_time()
    found = read(document([crowded, drawn]), blobs)
    assert time.process_time() - start < 15
    assert prose(found, 2) == "A map of the ring in sixty thousand lines"
    assert prose(found, 1).split()[:3] == ["crowded", "letters", "on"]


# Speed, and real files


def _long(count: int) -> Iterator[Page]:
    for number in range(count):
        page = Page()
        page.text(72, 40, f"Design report {number + 1}", 9)
        for x in (60, 316):
            page.paragraph(x, 80, " ".join([LOREM] * 6), 236, 9)
        yield page


def test_a_hundred_pages_take_less_than_twenty_seconds(blobs: BlobStore) -> None:
    count = 20
    data = document(_long(count))
    start = time.process_time()
    found = read(data, blobs)
    assert (time.process_time() - start) * 100 / count < 20
    assert all(part.text.split()[:4] == LOREM.split()[:4] for part in found.parts)


def test_real_manual(shared: Path, blobs: BlobStore) -> None:
    found = read((shared / "documents/medm/medm/help/MEDM.pdf").read_bytes(), blobs)
    assert found.fields["running_heads"] == ["MEDM Reference Manual 2"]
    tables = {part.title: cells(part.text) for part in found.parts if part.kind == "table"}
    assert tables["Kinds of XY Traces"][0] == ["Nx", "Ny", "Type", "Points", "Xmin", "Xmax", "Ymin", "Ymax", "NPoints"]
    assert tables["Object Index"][8] == ["Text", "", "Wheel Switch", ""]
    wheel = [part.text for part in found.parts if part.title == "WheelSwitch"]
    assert len(wheel) == 3
    assert not any("MEDM Reference Manual" in line for part in found.parts[8:] for line in part.text.split("\n")[:1])


def test_real_small_files(shared: Path, blobs: BlobStore) -> None:
    folder = shared / "documents"
    tagged = read((folder / "ocrmypdf/tagged.pdf").read_bytes(), blobs)
    assert [(p.kind, p.title) for p in tagged.parts[1:]] == [
        ("prose", "Heading"),
        ("table", "Table 1: Table caption"),
        ("prose", "Page 2 Heading"),
    ]
    arabic = read((folder / "pypdf/015-arabic/habibi.pdf").read_bytes(), blobs)
    assert {"حَبيبي", "habibi"} <= set(prose(arabic).replace("˴", " ").split())
