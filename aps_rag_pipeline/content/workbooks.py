"""Sheets of XLSX and XLS files as rows of cells, without walking blank ranges and without trusting the file."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING

from aps_rag_pipeline.content.archives import check_unpacked, is_zip
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

#: What a cell holds; a blank one is the empty string. Dates are real ones only where the cell is formatted as a date.
Cell = str | int | float | bool | datetime | date | time | timedelta

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_CELL = re.compile(rb"""<(?:\w+:)?c\s(?:[^>]*?\s)?r\s*=\s*["']([A-Za-z]{1,3})(\d{1,7})["'][^>]*>""")
_ROW = re.compile(rb"""<(?:\w+:)?row\s(?:[^>]*?\s)?r\s*=\s*["'](\d{1,7})["'][^>]*>""")
_BYTES_PER_CELL = 32


@dataclass(frozen=True)
class Sheet:
    """`rows` gives `(row number, cells)` of every row that is not blank; numbers are those the program shows."""

    name: str
    rows: Iterator[tuple[int, list[Cell]]]


def is_workbook(data: bytes) -> bool:
    return is_zip(data) or data.startswith(_OLE)


def read_sheets(data: bytes, limits: Limits) -> Iterator[Sheet]:
    """The sheets of a workbook in their order, hidden ones too.

    Raises:
        UnreadableError: no workbook, damaged, protected, or larger unpacked than the limits allow.
    """
    if is_zip(data):
        extent = _Extent(limits)
        check_unpacked(data, limits, extent.look)
    workbook = _open(data)
    for name in workbook.sheet_names:
        yield Sheet(name, _rows(_sheet(workbook, name)))


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


class _Extent:
    """Watches the cells of each sheet go by. The parser lays a sheet out as one dense block from its first to its last
    cell, so a single stray cell in the far corner would ask for hundreds of gigabytes and end the process."""

    def __init__(self, limits: Limits) -> None:
        self._most = int(limits.max_unpacked_mb * 1e6 / _BYTES_PER_CELL)
        self._rest = b""
        self._row = self._column = 0

    def look(self, member: str, stretch: bytes) -> None:
        if not member.lower().endswith(".xml"):
            return
        if not stretch:
            self._rest, self._row, self._column = b"", 0, 0
            return
        text = self._rest + stretch
        for match in _CELL.finditer(text):
            if not match[0].endswith(b"/>"):
                self._column = max(self._column, _column_number(match[1]))
                self._row = max(self._row, int(match[2]))
        for match in _ROW.finditer(text):
            if not match[0].endswith(b"/>"):
                self._row = max(self._row, int(match[1]))
        if self._row * self._column > self._most:
            raise UnreadableError(
                f"{member}: cells reach to row {self._row}, column {self._column}: "
                "more than limits.max_unpacked_mb holds",
                remedy="delete the stray cells at the far end of the sheet",
            )
        self._rest = text[max(text.rfind(b"<"), len(text) - 4096) :]


def _column_number(letters: bytes) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + letter - 64
    return number
