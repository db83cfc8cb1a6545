"""Pipe tables cut to a length: by rows, then by columns, last inside a cell. Each piece names the values it holds.

A piece carries the caption and the header row. Where a row is too long, its columns are dealt out to several pieces,
each with the row's first cell; where a cell is too long, its stretches stand behind their heading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: The length of a text, in characters or tokens.
Size = Callable[[str], int]
#: A text in stretches below a length.
Cut = Callable[[str, int], list[str]]

_CELL_BORDER = re.compile(r"(?<!\\)\|")
_CAPTION_LINES = 12
#: Of the room of a piece, what its head may take, and what the first cell of a row that is dealt out.
_HEAD_SHARE, _KEY_SHARE = 0.5, 0.25


def table_head(text: str) -> tuple[str, str]:
    """A pipe table as (what stands above it, header row, rule; body rows); an empty head when it has none."""
    lines = text.split("\n")
    for index in range(1, min(len(lines), _CAPTION_LINES)):
        if _is_rule(lines[index]):
            return "\n".join(lines[: index + 1]), "\n".join(lines[index + 1 :])
    return "", text


def split_rows(text: str, limit: int, size: Size = len) -> Iterator[str]:
    """Pieces of a table below `limit`, each with the header row. A row that is too long alone is a piece of its own."""
    head, body = table_head(text)
    room = limit - (size(head) + 1 if head else 0)
    rows: list[str] = []
    used = 0
    for row in body.split("\n"):
        length = size(row) + 1
        if rows and used + length > room:
            yield "\n".join([head, *rows] if head else rows)
            rows, used = [], 0
        rows.append(row)
        used += length
    if head or any(row.strip() for row in rows):
        yield "\n".join([head, *rows] if head else rows).rstrip("\n")


def split_table(text: str, limit: int, size: Size, cut: Cut) -> Iterator[str]:
    """Pieces of a table below `limit`, nothing of it lost. Text that is no table is only `cut`."""
    table = _parsed(text)
    if table is None:
        yield from cut(text, limit)
    else:
        yield from _split(table, limit, size, cut)


def stretches(text: str) -> Iterator[tuple[bool, str]]:
    """The tables among other text and what stands between them: `(is a table, text)`. A caption goes with its table."""
    lines = text.split("\n")
    start = at = 0
    while at < len(lines):
        if not (lines[at].startswith("|") and at + 1 < len(lines) and _is_rule(lines[at + 1])):
            at += 1
            continue
        end = next((n for n in range(at + 2, len(lines)) if not lines[n].startswith("|")), len(lines))
        first = _caption_start(lines, start, at)
        if before := "\n".join(lines[start:first]).strip("\n"):
            yield False, before
        yield True, "\n".join(lines[first:end])
        start = at = end
    if rest := "\n".join(lines[start:]).strip("\n"):
        yield False, rest


def _caption_start(lines: list[str], start: int, at: int) -> int:
    """The line at which the caption of a table begins: one line of its own, above a blank one."""
    above = at - 2
    alone = above >= start and not lines[at - 1].strip() and lines[above].strip()
    if alone and (above == start or not lines[above - 1].strip()) and len(lines[above]) < 200:
        return above
    return at


def _is_rule(line: str) -> bool:
    line = line.strip()
    return line.startswith("|") and "-" in line and not line.strip("|-: ")


@dataclass(frozen=True)
class _Table:
    above: str
    header: list[str]
    rows: list[list[str]]

    def head(self) -> str:
        lines = [_line(self.header), "|" + " - |" * len(self.header)]  # each dash is a token of the model
        return "\n".join([self.above, *lines] if self.above else lines)

    def text(self) -> str:
        return "\n".join([self.head(), *map(_line, self.rows)])

    def halves(self, with_key: bool) -> Iterator[_Table]:
        """The left and the right columns, with the first column in both; none where there is nothing to part."""
        first = 1 if with_key else 0
        middle = (first + len(self.header) + 1) // 2
        if middle in (first, len(self.header)):
            return
        for columns in (range(first, middle), range(middle, len(self.header))):
            chosen = [0, *columns] if with_key else list(columns)
            header, *rows = ([row[column] for column in chosen] for row in (self.header, *self.rows))
            yield _Table(self.above, header, rows)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _parsed(text: str) -> _Table | None:
    head, body = table_head(text)
    if not head:
        return None
    *above, header, _ = head.split("\n")
    cells = _cells(header)
    rows = [_cells(line) for line in body.split("\n") if line.strip()]
    width = max(len(cells), *(len(row) for row in rows)) if rows else len(cells)
    fill = [row + [""] * (width - len(row)) for row in (cells, *rows)]
    return _Table("\n".join(above).rstrip("\n"), fill[0], fill[1:])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL_BORDER.split(line.strip().removeprefix("|").removesuffix("|"))]


def _split(table: _Table, limit: int, size: Size, cut: Cut) -> Iterator[str]:
    head = size(table.head())
    if head > limit * _HEAD_SHARE and (halves := list(table.halves(_keyed(table, limit, size)))):
        for half in halves:
            yield from _split(half, limit, size, cut)
        return
    rows: list[list[str]] = []
    used = head
    for row in table.rows:
        length = size(_line(row)) + 1
        if rows and used + length > limit:
            yield _Table(table.above, table.header, rows).text()
            rows, used = [], head
        if head + length > limit:
            yield from _long_row(_Table(table.above, table.header, [row]), limit, size, cut)
        else:
            rows.append(row)
            used += length
    if rows or not table.rows:
        yield _Table(table.above, table.header, rows).text()


def _long_row(table: _Table, limit: int, size: Size, cut: Cut) -> Iterator[str]:
    if size(text := table.text()) <= limit:
        yield text
        return
    keyed = _keyed(table, limit, size)
    halves = list(table.halves(keyed))
    if halves:
        for half in halves:
            yield from _long_row(half, limit, size, cut)
        return
    (row,) = table.rows or [[""] * len(table.header)]
    named = [f"{heading}: {cell}" if heading else cell for heading, cell in zip(table.header, row, strict=True)]
    start = "\n".join([*([table.above] if table.above else []), *named[:-1]])
    heading = table.header[-1]
    room = limit - size(f"{start}\n{heading}: ") - 2
    if room < limit * _KEY_SHARE:  # a heading or a caption as long as a page
        yield from cut("\n".join([start, named[-1]]), limit)
        return
    for stretch in cut(row[-1], room):
        yield "\n".join(filter(None, [start, f"{heading}: {stretch}" if heading else stretch]))


def _keyed(table: _Table, limit: int, size: Size) -> bool:
    """Whether the first column is short enough to stand in every piece of a row."""
    firsts = [table.header[0], *(row[0] for row in table.rows)]
    return len(table.header) > 1 and max(map(size, firsts)) <= limit * _KEY_SHARE
