"""Sheets of XLSX and XLS files as rows of cells, without walking blank ranges and without trusting the file."""

from __future__ import annotations

import io
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import IO, TYPE_CHECKING
from xml.parsers import expat

from aps_rag_pipeline.content.archives import check_unpacked, is_zip
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

#: What a cell holds; a blank one is the empty string. Dates are real ones only where the cell is formatted as a date.
Cell = str | int | float | bool | datetime | date | time | timedelta

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SHEET_MARK = b"sheetData"
_REFERENCE = re.compile(r"([A-Za-z]{1,9})(\d{1,12})")
_BYTES_PER_CELL = 32


@dataclass(frozen=True)
class Sheet:
    """`rows` gives `(row number, cells)` of every row that is not blank; numbers are those the program shows.

    `across` gives, by row number and index in `cells`, the last index that a cell merged to the right covers.
    """

    name: str
    rows: Iterator[tuple[int, list[Cell]]]
    across: Mapping[tuple[int, int], int] = field(default_factory=dict)


def is_workbook(data: bytes) -> bool:
    return is_zip(data) or data.startswith(_OLE)


def read_sheets(data: bytes, limits: Limits) -> Iterator[Sheet]:
    """The sheets of a workbook in their order, hidden ones too.

    Raises:
        UnreadableError: no workbook, damaged, protected, or larger unpacked than the limits allow.
    """
    if is_zip(data):
        _check_extents(data, limits)
    workbook = _open(data)
    for name in workbook.sheet_names:
        sheet = _sheet(workbook, name)
        yield Sheet(name, _rows(sheet), _across(sheet))


def _open(data: bytes) -> CalamineWorkbook:
    from python_calamine import CalamineWorkbook, PasswordError

    try:
        return CalamineWorkbook.from_filelike(io.BytesIO(data))
    except PasswordError as error:
        raise UnreadableError("protected by a password", remedy="save it without one") from error
    except BaseException as error:
        raise _unreadable(error) from error


def _sheet(workbook: CalamineWorkbook, name: str) -> CalamineSheet:
    try:
        return workbook.get_sheet_by_name(name)
    except BaseException as error:
        raise _unreadable(error, f"sheet {name}: ") from error


def _unreadable(error: BaseException, place: str = "") -> UnreadableError:
    # A panic of the parser's Rust code is no Exception; anything else that is none must pass.
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    return UnreadableError(f"{place}not a readable workbook ({error})", remedy="open it and save it again as .xlsx")


def _across(sheet: CalamineSheet) -> dict[tuple[int, int], int]:
    offset = sheet.start[1] if sheet.start else 0
    merged = sheet.merged_cell_ranges or ()
    return {(top + 1, left - offset): right - offset for (top, left), (_, right) in merged if right > left}


def _rows(sheet: CalamineSheet) -> Iterator[tuple[int, list[Cell]]]:
    offset = sheet.start[1] if sheet.start else 0
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (top, left), (bottom, _right) in sheet.merged_cell_ranges or ():
        if bottom > top:
            spans[top].append((left - offset, bottom))
    carried: dict[int, tuple[int, Cell]] = {}
    for index, raw in enumerate(sheet.iter_rows()):
        if raw.count("") == len(raw):
            continue
        cells = [_cell(value) for value in raw]
        # A cell merged downwards shows its value for each row that it covers.
        for column, (bottom, value) in list(carried.items()):
            if index > bottom:
                del carried[column]
            elif cells[column] == "":
                cells[column] = value
        for column, bottom in spans.get(index, ()):
            if 0 <= column < len(cells) and cells[column] != "":
                carried[column] = (bottom, cells[column])
        if any(cell != "" for cell in cells):
            yield index + 1, cells


def _cell(value: Cell) -> Cell:
    if isinstance(value, str):
        return value.strip() if value.isascii() and value.isprintable() else clean(value).strip()
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return int(value)
        return value if abs(value) < float("inf") else ""
    return value


def _check_extents(data: bytes, limits: Limits) -> None:
    """Refuse a sheet whose cells lie too far apart, and kinds of workbook whose cells cannot be looked at beforehand.

    The parser lays a sheet out as one dense block from its first to its last cell, so a single stray cell in the far
    corner would ask for hundreds of gigabytes and end the process.
    """
    names = _Names()
    check_unpacked(data, limits, names.look)
    if names.seen & {"xl/workbook.bin", "content.xml"}:
        raise UnreadableError("a binary or OpenDocument workbook", remedy="save it as .xlsx")
    most = int(limits.max_unpacked_mb * 1e6 / _BYTES_PER_CELL)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # By entry, not by name: a name can stand in a zip file twice, and the parser may take either.
        for member in archive.infolist():
            if member.filename in names.sheets:
                with archive.open(member) as stream:
                    _Extent(member.filename, most).measure(stream)


class _Names:
    """The members of a workbook, and which of them are sheets: those that say so, whatever they are called."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.sheets: set[str] = set()
        self._end = b""

    def look(self, member: str, stretch: bytes) -> None:
        self.seen.add(member)
        if _SHEET_MARK in self._end + stretch:
            self.sheets.add(member)
        self._end = (self._end + stretch)[-len(_SHEET_MARK) :] if stretch else b""


class _Extent:
    """How far the cells of one sheet reach."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most
        self.row = 0
        self.reference = ""  # of the last cell of the row that states one,
        self.beyond = 0  # and how many cells stand behind it
        self.last_row = self.last_column = 0

    def measure(self, stream: IO[bytes]) -> None:
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        try:
            parser.ParseFile(stream)
        except expat.ExpatError as error:
            raise UnreadableError(
                f"{self.name}: damaged sheet ({error})", remedy="open it and save it again"
            ) from error

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2] if ":" in name else name
        if local == "c":
            if reference := attributes.get("r", ""):
                self.reference, self.beyond = reference, 0
            else:
                self.beyond += 1
        elif local == "row":
            stated = attributes.get("r", "")
            self.row = int(stated) if stated.isdecimal() and len(stated) < 13 else self.row + 1
            self.reference, self.beyond = "", 0
        elif local in ("v", "is", "f"):  # cells with a format alone take no room
            self._reach()

    def _reach(self) -> None:
        match = _REFERENCE.fullmatch(self.reference)
        column = (_column_number(match[1]) if match else 0) + self.beyond
        row = int(match[2]) if match else self.row
        self.last_row, self.last_column = max(self.last_row, row), max(self.last_column, column)
        if self.last_row * self.last_column > self.most:
            raise UnreadableError(
                f"{self.name}: cells reach to row {self.last_row}, column {self.last_column}: "
                "more than limits.max_unpacked_mb holds",
                remedy="delete the stray cells at the far end of the sheet",
            )


def _column_number(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number
