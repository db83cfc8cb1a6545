"""Tables in files, row by row: CSV, TSV, XLSX, XLS and JSON lists of objects, with columns found by their headings.

A caller says which columns it wants (`Wanted`): by the feed's column map, or by headings that it knows. The heading row
is the first that carries them, so titles above a table do no harm. Rows stream; nothing holds a sheet twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import chain, islice
from math import isfinite
from pathlib import Path

from aps_rag_pipeline.content.delimited import find_delimiter, read_delimited
from aps_rag_pipeline.content.isolation import sheets_apart
from aps_rag_pipeline.content.text import clean, decode, is_binary
from aps_rag_pipeline.content.workbooks import Cell, is_workbook
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Ignored, UnreadableError

__all__ = [
    "TABLE_PATTERNS",
    "Cell",
    "Row",
    "Table",
    "Wanted",
    "cell_text",
    "head_of",
    "number_or_text",
    "read_tables",
    "slug",
]

TABLE_PATTERNS = ("*.csv", "*.tsv", "*.xlsx", "*.xlsm", "*.xls")

#: How many rows may stand above the heading row.
_HEADING_ROWS = 50
_SHOWN_HEADINGS = 40
_HEAD_BYTES = 1 << 18

_UNIT = re.compile(r"\s*[(\[][^()\[\]]*[)\]]\s*$")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,17})?")
_NUMBER_STARTS = frozenset("-0123456789")

_RawRow = tuple[int, list[Cell], str]


@dataclass(frozen=True)
class Row:
    """One row that is not blank. `values` by our names, `others` by heading; blank cells stand in neither.

    `problem` is set when the row cannot be trusted (broken quoting, more cells than headings): `values` holds what
    could be read of it all the same, for messages.
    """

    place: str
    values: dict[str, Cell]
    others: dict[str, Cell]
    problem: str = ""


@dataclass(frozen=True)
class Table:
    """`place` is `file` or `file:sheet`; `columns` maps our names to the headings that were found for them."""

    place: str
    headings: tuple[str, ...]
    columns: dict[str, str]
    rows: Iterator[Row]


@dataclass(frozen=True)
class Wanted:
    """The columns a caller looks for.

    Args:
        columns: a feed's column map, our name -> heading. Every heading in it must be there.
        known: our name -> headings by which it is recognised besides its own, for names that `columns` leaves out.
        required: our names without which a table is of no use.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, Collection[str]] = field(default_factory=dict)
    required: tuple[str, ...] = ("id",)

    def check_names(self) -> None:
        """Raise UnreadableError when the column map has a name that means nothing here."""
        strange = sorted(set(self.columns) - set(self.known))
        if strange and self.known:
            raise UnreadableError(
                f"the column map has no meaning for {', '.join(strange)}",
                remedy=f"the names are: {', '.join(self.known)}; columns that are not mapped are kept as fields",
            )

    def match(self, headings: Sequence[str]) -> dict[str, int]:
        """Our names -> the index of their column, as far as they are there."""
        index: int | None
        exact: dict[str, int] = {}
        loose: dict[str, int] = {}
        for index, heading in enumerate(headings):
            exact.setdefault(heading, index)
            loose.setdefault(_loose(heading), index)
        for index, heading in enumerate(headings):  # `Downtime (min)` is a downtime where nothing fits better
            loose.setdefault(_loose(_UNIT.sub("", heading)), index)
        found: dict[str, int] = {}
        for name, heading in self.columns.items():
            index = exact.get(_one_line(heading), loose.get(_loose(heading)))
            if index is not None:
                found[name] = index
        taken = set(found.values())
        for name, aliases in self.known.items():
            if name in self.columns:
                continue
            for alias in (name, *aliases):
                index = loose.get(_loose(alias))
                if index is not None and index not in taken:
                    found[name] = index
                    taken.add(index)
                    break
        return found

    def missing(self, found: Mapping[str, int]) -> dict[str, str]:
        """What `found` lacks: our name -> the heading that was looked for."""
        lacking = {name: heading for name, heading in self.columns.items() if name not in found}
        for name in self.required:
            if name not in found and name not in lacking:
                lacking[name] = name
        return lacking


def read_tables(
    data: bytes, name: str, wanted: Wanted, limits: Limits, encoding: str | None = None
) -> Iterator[Table | Ignored]:
    """The tables of a file: one for a text file, one for each sheet of a workbook that has the wanted columns.

    Sheets without them are `Ignored` when another has them.

    Args:
        data: the bytes of the file; its kind is told from them, not from its name.
        name: how places and messages name the file.
        encoding: of a text file; found out when None.

    Raises:
        UnreadableError: no table, or a column that is missing, named together with the headings that are there.
    """
    wanted.check_names()
    if not is_workbook(data):
        yield _open_table(name, _text_rows(data, name, wanted, encoding), wanted)
        return
    misfits: list[tuple[str, UnreadableError]] = []
    found = False
    for sheet in sheets_apart(data, name, limits):
        place = f"{name}:{sheet.name}"
        try:
            table = _open_table(place, ((number, cells, "") for number, cells in sheet.rows), wanted)
        except UnreadableError as error:
            misfits.append((place, error))
            continue
        found = True
        yield table
    if not found:
        raise _likeliest(misfits) or UnreadableError(f"{name}: the workbook has no sheet")
    for place, misfit in misfits:
        blank = isinstance(misfit, _BlankError)
        yield Ignored(place, "a blank sheet" if blank else f"a sheet without the wanted columns: {misfit}")


def head_of(path: Path) -> bytes | None:
    """The beginning of a text table, enough to find its headings; None for what must be read whole to find them."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise UnreadableError(f"cannot be opened ({error.strerror or error})", permanent=False) from error
    return None if is_workbook(head) or head.lstrip()[:1] in (b"[", b"{") else head


def _likeliest(misfits: list[tuple[str, UnreadableError]]) -> UnreadableError | None:
    """The misfit worth telling: of a sheet that has anything on it."""
    errors = [error for _, error in misfits]
    return next((error for error in errors if not isinstance(error, _BlankError)), errors[0] if errors else None)


class _BlankError(UnreadableError):
    """A table without any row."""


def _text_rows(data: bytes, name: str, wanted: Wanted, encoding: str | None) -> Iterator[_RawRow]:
    if is_binary(data):
        raise UnreadableError(f"{name}: neither text nor a workbook", remedy="export it as CSV or XLSX")
    text = decode(data, encoding)
    if text.lstrip()[:1] in ("[", "{"):
        yield from _json_rows(text, name)
        return
    if text.lstrip()[:200].lower().startswith(("<!doctype", "<html", "<?xml", "<table")):
        raise UnreadableError(f"{name}: a web page, not a table", remedy="open it and save it as CSV or XLSX")
    delimiter = find_delimiter(text, lambda cells: len(wanted.match([_one_line(cell) for cell in cells])))
    for row in read_delimited(text, delimiter):
        cells: list[Cell] = list(row.cells)
        yield row.number, cells, row.problem


def _json_rows(text: str, name: str) -> Iterator[_RawRow]:
    """A list of objects, or the one that an object holds; its keys are the headings. Row 1 is the first object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{name}: neither a table nor whole JSON ({error})", remedy="export it again") from error
    lists = [found] if isinstance(found, list) else [value for value in found.values() if isinstance(value, list)]
    items = lists[0] if len(lists) == 1 else []
    if not items or not all(isinstance(item, dict) for item in items):
        raise UnreadableError(f"{name}: JSON, but not one list of objects", remedy="export it as CSV or XLSX")
    headings = list(dict.fromkeys(key for item in items for key in item))
    yield 0, list(headings), ""
    for number, item in enumerate(items, 1):
        yield number, [_json_cell(item.get(heading)) for heading in headings], ""


def _json_cell(value: object) -> Cell:
    if isinstance(value, list):
        return clean(", ".join(str(item) for item in value if isinstance(item, str | int | float)))
    if isinstance(value, float):
        return value if isfinite(value) else ""
    return clean(value).strip() if isinstance(value, str) else value if isinstance(value, int) else ""


def _open_table(place: str, rows: Iterator[_RawRow], wanted: Wanted) -> Table:
    """Find the heading row and hand on the rows below it.

    Of the first rows it is the one that carries the most wanted columns: a title above may read like one of them.
    """
    first = list(islice(rows, _HEADING_ROWS))
    if not first:
        raise _BlankError(f"{place}: no row in it", remedy="fill it or leave it out with `exclude`")
    candidates = [[_one_line(cell_text(cell)) for cell in cells] for _, cells, _ in first]
    at = max(range(len(first)), key=lambda index: _promise(wanted, candidates[index]))
    headings = candidates[at]
    found = wanted.match(headings)
    if wanted.missing(found):
        raise _missing(place, wanted, headings)
    return _table(place, headings, found, chain(first[at + 1 :], rows))


def _promise(wanted: Wanted, headings: list[str]) -> tuple[bool, int, int]:
    found = wanted.match(headings)
    texts = 0 if found else sum(bool(heading) and not _is_number(heading) for heading in headings)
    return not wanted.missing(found), len(found), texts


def _missing(place: str, wanted: Wanted, headings: list[str]) -> UnreadableError:
    lacking = wanted.missing(wanted.match(headings))
    named = ", ".join(
        f'"{heading}"' + ("" if heading == name else f" (for {name})") for name, heading in lacking.items()
    )
    there = [f'"{heading[:60]}"' for heading in headings if heading]
    more = f" and {len(there) - _SHOWN_HEADINGS} more" if len(there) > _SHOWN_HEADINGS else ""
    return UnreadableError(
        f"{place}: no column headed {named}; the headings are {', '.join(there[:_SHOWN_HEADINGS])}{more}",
        remedy="mend `columns` of the feed, or leave the file out with `exclude`",
    )


def _table(place: str, headings: list[str], found: dict[str, int], rows: Iterator[_RawRow]) -> Table:
    while headings and not headings[-1]:
        headings.pop()
    unique = _unique(headings)
    columns = {name: unique[index] for name, index in found.items()}
    return Table(place, tuple(unique), columns, _read_rows(place, unique, found, rows))


def _read_rows(place: str, headings: list[str], found: dict[str, int], rows: Iterator[_RawRow]) -> Iterator[Row]:
    ours = {index: name for name, index in found.items()}
    width = len(headings)
    for number, cells, problem in rows:
        values: dict[str, Cell] = {}
        others: dict[str, Cell] = {}
        for index, cell in enumerate(cells):
            if cell == "":
                continue
            if index in ours:
                values[ours[index]] = cell
            elif index < width:
                others[headings[index]] = cell
            elif not problem:
                problem = f"{len(cells)} cells under {width} headings"
        if problem and len(cells) == width and problem.startswith("broken quoting"):
            problem = ""  # read leniently, the row still fits the table
        if values and all(cell_text(value) == headings[found[name]] for name, value in values.items()):
            continue  # a printed report repeats its headings on each page
        yield Row(f"{place}:{number}", values, others, problem)


def cell_text(cell: Cell) -> str:
    """A cell as a person reads it: dates in ISO form, whole numbers without a point, durations as h:mm:ss."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, datetime):
        return cell.isoformat(" ", "seconds")
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        seconds = int(cell.total_seconds())
        sign = "-" if seconds < 0 else ""
        return f"{sign}{abs(seconds) // 3600}:{abs(seconds) // 60 % 60:02d}:{abs(seconds) % 60:02d}"
    return str(cell)


def number_or_text(text: str) -> int | float | str:
    """A number where the text is a plain decimal one; `007`, `1e5` and `+1` stay text, since they may be names."""
    if text[:1] not in _NUMBER_STARTS or not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


@lru_cache(maxsize=4096)
def slug(heading: str) -> str:
    """A heading as a field name: lower case, words joined by underscores; never empty."""
    return re.sub(r"\W+", "_", heading.lower()).strip("_") or "column"


def _unique(headings: list[str]) -> list[str]:
    """Headings that can be told apart: a repeated one gets a number, a blank one the number of its column."""
    seen: set[str] = set()
    unique = []
    for index, heading in enumerate(headings, 1):
        plain = name = heading or f"column {index}"
        count = 1
        while name in seen:
            count += 1
            name = f"{plain} {count}"
        seen.add(name)
        unique.append(name)
    return unique


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _loose(heading: str) -> str:
    """A heading without case, blanks, underscores and punctuation."""
    return re.sub(r"[\W_]+", "", heading.casefold()) or heading.strip()


def _is_number(text: str) -> bool:
    return not any(char.isalpha() for char in text)
