"""Rows of CSV, TSV, XLSX and JSON tables: what is read equals what was written, and damage costs what is damaged."""

import csv
import io
import json
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time, timedelta

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content.tables import Row, Table, Wanted, cell_text, number_or_text, read_tables, slug
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Ignored, UnreadableError

ID_AND_TEXT = Wanted(known={"id": ("number",), "text": ()}, required=("id", "text"))


def tables(data: bytes, wanted: Wanted = ID_AND_TEXT, limits: Limits | None = None, **kwargs: str) -> list[Table]:
    return [t for t in read_tables(data, "f", wanted, limits or Limits(), **kwargs) if isinstance(t, Table)]


def rows(data: bytes, wanted: Wanted = ID_AND_TEXT, **kwargs: str) -> list[Row]:
    (table,) = tables(data, wanted, **kwargs)
    return list(table.rows)


def workbook(*sheets: list[list[object]], merged: str = "") -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, cells in enumerate(sheets, 1):
        sheet = book.create_sheet(f"S{number}")
        for row in cells:
            sheet.append(row)
        if merged:
            sheet.merge_cells(merged)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def rewritten(data: bytes, change: Callable[[str, bytes], bytes]) -> bytes:
    """The same zip file with every member changed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as whole, zipfile.ZipFile(buffer, "w") as copy:
        for name in whole.namelist():
            copy.writestr(name, change(name, whole.read(name)))
    return buffer.getvalue()


# text tables

# What text.decode promises to keep: no control characters, and line ends as \n.
_cells = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n"), max_size=30).map(str.strip)


@settings(max_examples=120, deadline=None)
@given(
    contents=st.lists(st.tuples(st.integers(0, 10**9).map(str), _cells, _cells), min_size=1, max_size=12),
    delimiter=st.sampled_from(",;\t|"),
    line_end=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_csv_round_trip(contents: list[tuple[str, str, str]], delimiter: str, line_end: str, encoding: str) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator=line_end)
    writer.writerow(["Number", "text", "More of it"])
    writer.writerows(contents)
    read = rows(buffer.getvalue().encode(encoding))
    assert [(r.values["id"], r.values.get("text", ""), r.others.get("More of it", "")) for r in read] == contents
    assert [r.place for r in read] == [f"f:{number}" for number in range(2, len(contents) + 2)]
    assert not any(r.problem for r in read)


def test_row_numbers_are_those_of_a_spreadsheet() -> None:
    read = rows(b'id,text\r\n1,"two\r\nlines"\r\n\r\n,\r\n2,b\r\n')
    assert [(r.place, r.values["text"]) for r in read] == [("f:2", "two\nlines"), ("f:5", "b")]


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ('2,"never closed', "2"),
        ('2,"closed" but goes on', "2"),
    ],
)
def test_a_broken_quote_costs_at_most_its_row(line: str, known: str) -> None:
    read = rows(f"id,text\n1,a\n{line}\n3,c\n4,d\n".encode())
    assert [r.values["id"] for r in read] == ["1", known, "3", "4"]
    assert [r.values["text"] for r in read if r.values["id"] != known] == ["a", "c", "d"]


def test_more_cells_than_headings_is_a_problem_not_a_guess() -> None:
    read = rows(b"id,text,x\n1,a,b\n2,one, two, three\n3,c,d,\n")
    assert [bool(r.problem) for r in read] == [False, True, False]
    assert "4 cells under 3 headings" in read[1].problem


def test_a_file_of_broken_quotes_is_refused_in_linear_time() -> None:
    with pytest.raises(UnreadableError, match="quoting of more than"):
        rows(b"id,text\n" + b'1,"x"y\n' * 200_000)


def test_mixed_encodings_keep_both_spellings() -> None:
    data = "id,text\n1,Müller\n".encode() + "2,Jörg\n".encode("cp1252") + "3,Łódź\n".encode()
    assert [r.values["text"] for r in rows(data)] == ["Müller", "Jörg", "Łódź"]


def test_a_declared_encoding_is_used() -> None:
    assert rows("id,text\n1,Łódź\n".encode("cp1250"), encoding="cp1250")[0].values["text"] == "Łódź"


def test_headings_decide_the_delimiter_where_counts_mislead() -> None:
    read = rows(b"id;text\n1;a, b, c, d\n2;e, f, g, h\n")
    assert [r.values["text"] for r in read] == ["a, b, c, d", "e, f, g, h"]


def test_excel_separator_line_and_lines_above_the_headings() -> None:
    read = rows(b"sep=;\nWork requests of 2024\n\nid;text\n7;x\n")
    assert [(r.place, r.values) for r in read] == [("f:5", {"id": "7", "text": "x"})]


def test_headings_repeated_on_each_page_are_no_rows() -> None:
    assert [r.values["id"] for r in rows(b"id,text\n1,a\nid,text\n2,b\n")] == ["1", "2"]


def test_a_cell_of_many_megabytes_is_read_whole() -> None:
    big = "klystron tripped; " * 600_000
    assert rows(f'id,text\n1,"{big}"\n2,b\n'.encode())[0].values["text"] == big.strip()


# columns


def test_column_map_is_found_whatever_the_case_blanks_and_underscores() -> None:
    wanted = Wanted({"id": "wr_number", "text": "LONG  text"}, {"id": (), "text": ()})
    (read,) = rows(b"WR Number,Long Text,Cost\n5,hot,3.50\n", wanted)
    assert (read.values, read.others) == ({"id": "5", "text": "hot"}, {"Cost": "3.50"})


def test_a_unit_behind_a_heading_does_not_hide_it() -> None:
    read = rows(b"Number (old),Text [plain],Number\n1,a,2\n")
    assert [(r.values, r.others) for r in read] == [({"id": "2", "text": "a"}, {"Number (old)": "1"})]


def test_missing_heading_is_named_with_those_that_are_there() -> None:
    wanted = Wanted({"id": "WR No", "text": "Title"}, {"id": (), "text": ()})
    with pytest.raises(UnreadableError) as caught:
        rows(b"Number,Title,Status\n1,a,open\n2,b,closed\n", wanted)
    message = str(caught.value)
    assert message.startswith('f: no column headed "WR No" (for id)')
    assert '"Number", "Title", "Status"' in message
    assert "columns" in caught.value.remedy


def test_a_name_that_means_nothing_is_refused() -> None:
    with pytest.raises(UnreadableError, match="no meaning for titel"):
        rows(b"id,text\n1,a\n", Wanted({"titel": "text"}, {"id": (), "title": ()}))


def test_repeated_and_blank_headings_stay_apart() -> None:
    (read,) = rows(b"id,text,Date,Date,,Note\n1,a,x,y,z,n\n")
    assert read.others == {"Date": "x", "Date 2": "y", "column 5": "z", "Note": "n"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<!DOCTYPE html><table><tr><td>id</td></tr></table>", "a web page"),
        (b"\x00\x01\x02id,text", "neither text nor a workbook"),
        (b"PK\x03\x04 no zip at all", "damaged zip"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "not a readable workbook"),
        (b"[1, 2", "neither a table nor whole JSON"),
        (b'{"a": 1}', "not one list of objects"),
        (b"just some prose without a table", "no column headed"),
        (b"   \n \n", "no row in it"),
    ],
)
def test_what_is_no_table_says_so(data: bytes, message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        rows(data)


def test_json_list_of_objects() -> None:
    data = json.dumps({"_about": {"n": 2}, "items": [{"id": 1, "text": " a "}, {"id": 2, "tags": ["x", "y"], "o": {}}]})
    read = rows(data.encode())
    assert [(r.place, r.values, r.others) for r in read] == [
        ("f:1", {"id": 1, "text": "a"}, {}),
        ("f:2", {"id": 2}, {"tags": "x, y"}),
    ]


# workbooks


_values = st.one_of(
    st.integers(-(10**12), 10**12),
    st.floats(-1e6, 1e6).map(lambda x: round(x, 3)),
    st.booleans(),
    st.datetimes(datetime(1950, 1, 1), datetime(2090, 1, 1)).map(lambda d: d.replace(microsecond=0)),
    st.text("abcäß,;\"'<&\n ", max_size=20).map(str.strip),
)


@settings(max_examples=40, deadline=None)
@given(contents=st.lists(_values, min_size=1, max_size=10), above=st.integers(0, 3), left=st.integers(0, 2))
def test_xlsx_round_trip(contents: list[object], above: int, left: int) -> None:
    pad: list[object] = [None] * left
    grid = [[*pad, None]] * above + [[*pad, "id", "text"]]
    data = workbook(grid + [[*pad, number, value] for number, value in enumerate(contents)])
    read = rows(data)
    assert [r.values["id"] for r in read] == list(range(len(contents)))
    assert [r.place for r in read] == [f"f:S1:{above + 2 + number}" for number in range(len(contents))]
    for row, value in zip(read, contents, strict=True):
        found = row.values.get("text", "")
        if isinstance(value, datetime) and value.time() == time():
            value = value.date()  # a date cell at midnight is a day
        assert found == value or (isinstance(value, float) and found == pytest.approx(value))
        assert isinstance(found, bool) == isinstance(value, bool)


def test_dates_are_dates_only_where_the_cell_says_so() -> None:
    data = workbook(
        [
            ["id", "text"],
            [1, datetime(2025, 3, 4, 5, 6)],
            [2, date(2025, 3, 4)],
            [3, 45720],
            [4, time(5, 6)],
            [5, timedelta(hours=30)],
        ]
    )
    found = [r.values["text"] for r in rows(data)]
    assert found[0] == datetime(2025, 3, 4, 5, 6)
    assert found[2] == 45720
    assert found[3:] == [time(5, 6), timedelta(hours=30)]
    assert [cell_text(cell) for cell in found] == ["2025-03-04 05:06:00", "2025-03-04", "45720", "05:06:00", "30:00:00"]


def test_several_sheets_and_sheets_without_the_columns() -> None:
    data = workbook([["id", "text"], [1, "a"]], [["Legend"], ["red: open"]], [], [["x"], ["Text", "Number"], ["b", 2]])
    found = list(read_tables(data, "f.xlsx", ID_AND_TEXT, Limits()))
    read = [row for t in found if isinstance(t, Table) for row in t.rows]
    assert [(r.place, r.values["id"]) for r in read] == [("f.xlsx:S1:2", 1), ("f.xlsx:S4:3", 2)]
    assert [i.place for i in found if isinstance(i, Ignored)] == ["f.xlsx:S2", "f.xlsx:S3"]


def test_a_cell_merged_downwards_counts_for_each_row() -> None:
    data = workbook([["id", "text"], [1, "RF"], [2, None], [3, "vacuum"]], merged="B2:B3")
    assert [r.values["text"] for r in rows(data)] == ["RF", "RF", "vacuum"]


def test_blank_formatted_rows_cost_nothing() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["id", "text"])
    sheet.append([1, "a"])
    for number in range(3, 3000):
        sheet.cell(number, 10).number_format = "0.00"
    buffer = io.BytesIO()
    book.save(buffer)
    assert len(rows(buffer.getvalue())) == 1


def test_a_stray_cell_in_the_far_corner_is_refused_before_it_is_laid_out() -> None:
    book = openpyxl.Workbook()
    book.active.append(["id", "text"])
    book.active["XFD1048576"] = "stray"
    buffer = io.BytesIO()
    book.save(buffer)
    with pytest.raises(UnreadableError, match="cells reach to row 1048576, column 16384") as caught:
        rows(buffer.getvalue())
    assert "stray" in caught.value.remedy


@pytest.mark.parametrize(
    "cells",
    [
        '<row r="9"><c x="&gt;" r="ZZZZ9"><v>1</v></c></row>',
        '<row r="9"><c r="A99999999"><v>1</v></c></row>',
        '<row r="9"><c x=">" r="XFD9"><v>1</v></c></row><row r="1048576"><c><v>1</v></c></row>',
        '<x:row xmlns:x="urn:x" r="999999999"><x:c r="ZZ999999999"><x:v>1</x:v></x:c></x:row>',
    ],
)
def test_no_spelling_of_a_far_cell_gets_past(cells: str) -> None:
    def far(name: str, member: bytes) -> bytes:
        return member.replace(b"</sheetData>", cells.encode() + b"</sheetData>") if "sheet1" in name else member

    with pytest.raises(UnreadableError, match="cells reach to row"):
        tables(rewritten(workbook([["id", "text"], [1, "a"]]), far), limits=Limits(max_unpacked_mb=64))


def test_workbooks_whose_cells_cannot_be_looked_at_are_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("content.xml", "<office:document-content/>")
    with pytest.raises(UnreadableError, match="OpenDocument"):
        tables(buffer.getvalue())


def _bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * 8_000_000)
    return buffer.getvalue()


def test_a_zip_bomb_is_refused() -> None:
    with pytest.raises(UnreadableError, match="unpacks to more than"):
        tables(_bomb(), limits=Limits(max_unpacked_mb=5))


def test_a_zip_bomb_that_states_a_small_size_is_refused() -> None:
    data = bytearray(_bomb())
    for signature, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        struct.pack_into("<I", data, data.index(signature) + offset, 10)
    with pytest.raises(UnreadableError, match="unpacks to more than"):
        tables(bytes(data), limits=Limits(max_unpacked_mb=5))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=4)), min_size=1, max_size=8))
def test_damage_inside_a_sheet_is_told_or_harmless(patches: list[tuple[int, bytes]]) -> None:
    def damage(_: str, member: bytes) -> bytes:
        for position, patch in patches:
            start = position % len(member)
            member = member[:start] + patch + member[start + len(patch) :]
        return member

    data = rewritten(workbook([["id", "text"], [1, "a"], [2, datetime(2025, 3, 4)]]), damage)
    # Anything but a named failure, a panic of the parser too, would leave the block.
    with suppress(UnreadableError):
        for table in tables(data):
            list(table.rows)


def test_real_workbooks(shared) -> None:
    folder = shared / "downtime" / "nrc"
    read = rows((folder / "LERSearchResults2018.xlsx").read_bytes(), Wanted({"id": "LER Number"}))
    assert len(read) == 207
    assert read[-1].place == "f:Sheet1:208"
    assert read[-1].others["Plant Name"] == "Palo Verde 3"
    read = rows((folder / "generic-issues-dataset.xls").read_bytes(), Wanted({"id": "Issue Number"}))
    assert len(read) == 854
    assert read[0].others["Date of Identification"] == date(1979, 10, 30)
    read = rows((folder / "reactors-operating.xlsx").read_bytes(), Wanted({"id": "Docket Number"}))
    assert (len(read), read[0].values["id"]) == (97, "05000313")


def test_a_printed_report_is_a_named_failure(shared) -> None:
    data = (shared / "downtime" / "nrc" / "SCRAM.xlsx").read_bytes()
    with pytest.raises(UnreadableError, match=r'no column headed "LER Number".*"En No\."'):
        tables(data, Wanted({"id": "LER Number"}))


# small things


def test_numbers_that_may_be_names_stay_text() -> None:
    assert [number_or_text(t) for t in ("12", "-3.5", "0")] == [12, -3.5, 0]
    assert [number_or_text(t) for t in ("007", "1e5", "+1", "1.", "12 A", "")] == ["007", "1e5", "+1", "1.", "12 A", ""]


def test_slugs() -> None:
    assert [slug(h) for h in ("Plant Name", "Cost (US$)", "#", "Größe")] == ["plant_name", "cost_us", "column", "größe"]
