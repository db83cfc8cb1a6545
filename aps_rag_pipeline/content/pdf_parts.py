"""Lines of PDF pages to parts: sections with their titles, tables with their captions."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import NamedTuple

from aps_rag_pipeline.content.markup import pipe_table
from aps_rag_pipeline.content.pdf_flow import Vocabulary, flowing
from aps_rag_pipeline.content.pdf_lines import Line, Table
from aps_rag_pipeline.content.pdf_sections import (
    Bookmark,
    bare_title,
    bookmarked_lines,
    heading_lines,
    same_title,
)
from aps_rag_pipeline.records import Part

#: Documents with fewer bookmarks a page are divided by their headings as well.
_SPARSE = 0.12
_MAX_TITLE = 300
_MAX_NAME = 5
_ENDS = ".!?:;"
#: Nothing ends with these: more must follow. ("a" and "in" may: valve a, plugged in.)
_OPEN_ENDS = (",", "(", "&", "=", "\u2013")
_OPEN_WORDS = {"an", "and", "are", "be", "because", "between", "but", "during", "for", "from", "if", "into", "nor"}
_OPEN_WORDS |= {"of", "or", "than", "that", "the", "their", "was", "were", "when", "where", "which", "while", "whose"}
_OPEN_WORDS |= {"with"}


def parts_of(pages: list[list[Line]], bookmarks: dict[int, list[Bookmark]]) -> list[list[Part]]:
    """The parts of each page, at least one (an empty one for a page without text), `locator` "page n".

    A section begins at its bookmark, or at a heading where a document has none; its title goes with all its parts.
    """
    by_looks = sum(map(len, bookmarks.values())) < _SPARSE * len(pages)
    headings = heading_lines(pages) if by_looks else set()
    vocabulary = Vocabulary(line.text for lines in pages for line in lines)
    writer = _Writer(headings, vocabulary)
    return [writer.page(number, lines, bookmarks.get(number - 1, [])) for number, lines in enumerate(pages, 1)]


class _Unfinished(NamedTuple):
    """A table at the end of a page, its caption, and where its part stands."""

    table: Table
    caption: str
    parts: list[Part]
    place: int


class _Writer:
    """Writes one page after the other; the section and an unfinished table go on to the next."""

    def __init__(self, headings: set[int], vocabulary: Vocabulary) -> None:
        self._headings = headings
        self._vocabulary = vocabulary
        self._title = ""
        self._heading: list[Line] = []  # lines of a heading that has nothing below it yet
        self._table: _Unfinished | None = None  # the table at the end of the page before
        self._parts: list[Part] = []
        self._pending: list[Line] = []
        self._locator = ""

    def page(self, number: int, lines: list[Line], bookmarks: list[Bookmark]) -> list[Part]:
        self._parts, self._pending, self._locator = [], [], f"page {number}"
        begins = bookmarked_lines(lines, bookmarks) if lines else {}
        for index, line in enumerate(lines):
            said = False
            for bookmark in begins.get(index, []):
                said = said or same_title(line.text, bare_title(bookmark.title))
                self._begin(bookmark.title)
            if line.table:
                self._write_table(line.table, index == 0, index == len(lines) - 1)
            elif said:
                self._heading = [line]
            elif id(line) in self._headings:
                self._add_heading(line)
            else:
                self._close_heading()
                self._pending.append(line)
        if not lines and bookmarks:
            self._begin(bookmarks[-1].title)
        self._keep_bare_heading()
        self._flush()
        if not lines or not lines[-1].table:
            self._table = None
        return self._parts or [Part("prose", "", self._locator, self._title)]

    def _begin(self, title: str) -> None:
        self._keep_bare_heading()
        self._flush()
        self._title = title[:_MAX_TITLE]

    def _add_heading(self, line: Line) -> None:
        last = self._heading[-1] if self._heading else None
        goes_on = (
            last is not None
            and abs(last.size - line.size) < 0.3
            and last.bold == line.bold
            and 0 < line.base - last.base < 1.7 * line.size
        )
        if not goes_on:
            self._begin("")
        self._heading.append(line)

    def _close_heading(self) -> None:
        """The heading has something below it: it is the title of that."""
        if self._heading:
            self._title = flowing(self._heading, self._vocabulary).replace("\n", " ")[:_MAX_TITLE]
            self._heading = []

    def _keep_bare_heading(self) -> None:
        if self._heading:
            text = flowing(self._heading, self._vocabulary)
            self._heading = []
            self._title = self._title or " ".join(text.split())[:_MAX_TITLE]
            self._parts.append(Part("prose", text, self._locator))

    def _flush(self) -> None:
        text = flowing(self._pending, self._vocabulary)
        self._pending = []
        if text:
            self._parts.append(Part("prose", text, self._locator, self._title))

    def _write_table(self, table: Table, first: bool, last: bool) -> None:
        self._close_heading()
        self._flush()
        rows, caption = table.rows, table.title
        if first and not caption and self._table and _same_columns(self._table.table, table):
            head, caption = self._table.table.rows[0], self._table.caption
            said = rows[0] == head
            rows = self._without_rest(rows[1:] if said else rows)
            rows = [head, *rows] if rows and (said or _names_columns(head)) else rows
            if not rows:  # all of it was the end of a row: the table before may go on behind it
                unended = replace(self._table.table, room=table.room)
                self._table = self._table._replace(table=unended) if last else None
                return
            table = replace(table, rows=rows)
        text = pipe_table(rows)
        if text:
            self._parts.append(Part("table", text, self._locator, caption or self._title))
        at_end = bool(text) and last
        self._table = _Unfinished(table, caption, self._parts, len(self._parts) - 1) if at_end else None

    def _without_rest(self, rows: list[list[str]]) -> list[list[str]]:
        """The rows of a page without the rest of a row that the page before broke off; that goes where it belongs."""
        if not rows or self._table is None or not _is_rest(rows, self._table.table):
            return rows
        table, parts, place = self._table.table, self._table.parts, self._table.place
        whole = [" ".join(filter(None, cell)) for cell in zip(table.rows[-1], rows[0], strict=True)]
        table.rows[-1] = whole
        parts[place] = Part("table", pipe_table(table.rows), parts[place].locator, parts[place].title)
        return rows[1:]


def _same_columns(before: Table, table: Table) -> bool:
    return len(before.columns) == len(table.columns) and all(
        abs(x - y) < 4 for x, y in zip(before.columns, table.columns, strict=True)
    )


def _names_columns(row: list[str]) -> bool:
    """Whether a first row is a header to be repeated on the next page: names, no sentences."""
    return all(len(cell.split()) <= _MAX_NAME and not cell.endswith(".") for cell in row) and sum(map(bool, row)) > 1


def _is_rest(rows: list[list[str]], before: Table) -> bool:
    """Whether the first of the rows goes on with the last row of the page before.

    Nothing stands in its first column, and where it says something the other had not ended. A row of a group whose
    name is said once looks the same: so the break itself must show, in a cell that cannot end there, or in a table
    without groups in a line that was full.
    """
    row, last = rows[0], before.rows[-1]
    said = [place for place, cell in enumerate(row) if cell]
    if len(row) != len(last) or row[0] or not said:
        return False
    if not all(row[place][0].islower() and last[place] and last[place][-1] not in _ENDS for place in said):
        return False
    if any(_is_open(last[place], row[place]) for place in said):
        return True
    room = before.room or [inf] * len(row)
    return not _in_groups(rows, before) and any(len(row[place].split()[0]) + 1 > room[place] for place in said)


def _is_open(text: str, more: str) -> bool:
    """Whether a text breaks off before `more`: with a word that something follows, or inside brackets."""
    brackets = text.count("(") > text.count(")") and more.count(")") > more.count("(")
    return brackets or text.endswith(_OPEN_ENDS) or text.split()[-1] in _OPEN_WORDS


def _in_groups(rows: list[list[str]], before: Table) -> bool:
    """Whether rows stand in groups: some without a name of their own, or the last of the page before with the same."""
    names = [row[0] for row in before.rows[1:]]
    return not all(names) or not all(row[0] for row in rows[1:]) or names[-1:] == names[-2:-1]
