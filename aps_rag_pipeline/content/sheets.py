"""A sheet of a workbook as what people see on it: tables, captions, notes, and printed reports.

Tables end at a blank row behind which something else begins: other columns, a caption, another heading row. A blank
column parts tables where each side is surely one by itself: a gap alone may be for looks. A report is a sheet in which
the same labels come again and again, each time with other values below them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from aps_rag_pipeline.content.assembly import Assembly
from aps_rag_pipeline.content.markup import pipe_table
from aps_rag_pipeline.content.tables import cell_text
from aps_rag_pipeline.content.workbooks import Cell, Sheet

#: A label of a report comes this often, and in this share of the rows.
_LABEL_TIMES, _LABEL_SHARE = 5, 0.05
#: How many labels a row needs to begin a block.
_LABELS = 2
_LONGEST_LABEL = 60


@dataclass
class _Row:
    number: int
    cells: list[Cell]

    @property
    def filled(self) -> list[int]:
        return [column for column, cell in enumerate(self.cells) if cell != ""]

    def texts(self) -> list[str]:
        return [cell_text(cell) for cell in self.cells]


@dataclass
class _Block:
    rows: list[_Row] = field(default_factory=list)

    @property
    def columns(self) -> set[int]:
        return {column for row in self.rows for column in row.filled}


def lay_out(sheet: Sheet, assembly: Assembly) -> None:
    """Put a sheet into `assembly`, with the locator "sheet name" and, for the blocks of a report, their rows."""
    rows = [_Row(number, cells) for number, cells in sheet.rows]
    labels = _labels(rows)
    if labels:
        for block in _report_blocks(rows, labels):
            _report(block, labels, sheet.name, assembly)
        return
    assembly.place(f"sheet {sheet.name}", sheet.name)
    for block in _blocks(rows):
        _table(block, sheet.across, assembly)


def _table(block: _Block, across: Mapping[tuple[int, int], int], assembly: Assembly) -> None:
    """A table, or several side by side; lines above that fill one cell are the caption, and alone they are text."""
    captions = list(_captions([row.texts() for row in block.rows]))
    if len(captions) == len(block.rows):
        assembly.prose("\n".join(captions))
        return
    above, below = block.rows[: len(captions)], _Block(block.rows[len(captions) :])
    sides = _sides(below)
    bodies = [_below_captions(side) for side in sides] if len(sides) > 1 else sides
    for body, titles in zip(bodies, _titles(above, sides, bodies, across), strict=True):
        columns = body.columns or {0}
        cells = (row.texts()[min(columns) : max(columns) + 1] for row in body.rows)
        assembly.table(pipe_table(cells), " ".join(titles))


def _titles(
    above: list[_Row], sides: list[_Block], bodies: list[_Block], across: Mapping[tuple[int, int], int]
) -> list[list[str]]:
    """The captions of each side: its own, and of those in rows above all sides what stands above its columns.

    Above all stands what a merged cell carries there or what begins between them, and what begins at the left where
    every side has another caption below.
    """
    found = [
        [row.texts()[row.filled[0]] for row in side.rows[: len(side.rows) - len(body.rows)]]
        for side, body in zip(sides, bodies, strict=True)
    ]
    for row in reversed(above):
        first = row.filled[0]
        last = across.get((row.number, first), first)
        over = [n for n, body in enumerate(bodies) if first <= max(body.columns) and min(body.columns) <= last]
        if not over or (over == [0] and all(found)):
            over = list(range(len(bodies)))
        for number in over:
            found[number].insert(0, row.texts()[first])
    return found


def _sides(block: _Block) -> list[_Block]:
    """The tables that stand beside one another, from left to right."""
    columns = sorted(block.columns)
    starts = [column for before, column in pairwise(columns) if column > before + 1]
    sides: list[_Block] = []
    begin = 0
    for start in starts:
        left, right = _cut(block, begin, start), _cut(block, start, next((s for s in starts if s > start), None))
        if _apart(left, right):
            sides.append(left)
            begin = start
    return [*sides, _cut(block, begin, None)] if sides else [block]


def _cut(block: _Block, begin: int, end: int | None) -> _Block:
    rows = (
        _Row(row.number, ["" if column < begin else cell for column, cell in enumerate(row.cells[:end])])
        for row in block.rows
    )
    return _Block([row for row in rows if row.filled])


def _apart(left: _Block, right: _Block) -> bool:
    """Whether two sides are tables by themselves: with the same headings, or each with a key of its own and the right
    one far off or longer than the left.

    Where in doubt they are one: what belongs to a row is found beside it, and the right one may have no other name.
    """
    left, right = _below_captions(left), _below_captions(right)
    if not (_is_whole(left) and _is_whole(right)):
        return False
    if _same_headings(left, right):
        return True
    far = min(right.columns) - max(left.columns) > 2
    longer = right.rows[-1].number > left.rows[-1].number
    return (far or longer) and _has_key(left) and _has_key(right)


def _same_headings(left: _Block, right: _Block) -> bool:
    """Whether both begin with a column of the same name, and most others have the same names too or it says the same:
    units and limits alone come twice in one table."""
    mine, other = ([side.rows[0].cells[column] for column in sorted(side.columns)] for side in (left, right))
    if mine[0] != other[0]:
        return False
    if 2 * len(set(mine[1:]) & set(other[1:])) > max(len(mine), len(other)) - 1:
        return True
    keys, others = ([row.cells[min(side.columns)] for row in side.rows] for side in (left, right))
    return keys == others and len(set(keys)) == len(keys)


def _has_key(side: _Block) -> bool:
    """Whether its rows are named by words in the first column and have values beside them."""
    first, *others = sorted(side.columns)
    body = _tables_rows(side)[1:]
    keys = [row.cells[first] for row in body]
    values = [row.cells[column] for row in body for column in others if column < len(row.cells)]
    named = all(isinstance(key, str) and key for key in keys)
    return named and len(set(keys)) == len(keys) > 1 and any(not isinstance(value, str) for value in values)


def _is_whole(side: _Block) -> bool:
    """Whether it has a heading for each of several columns, and no line that is the other side's alone."""
    if len(side.rows) < 2 or any(len(row.filled) < 2 for row in side.rows):
        return False
    head, columns = side.rows[0], side.columns
    unbroken = all(below.number == above.number + 1 for above, below in pairwise(side.rows))
    return unbroken and set(head.filled) == columns and all(isinstance(head.cells[column], str) for column in columns)


def _below_captions(block: _Block) -> _Block:
    return _Block(block.rows[len(list(_captions([row.texts() for row in block.rows]))) :])


def _captions(rows: list[list[str]]) -> Iterator[str]:
    for row in rows:
        filled = [cell for cell in row if cell]
        if len(filled) != 1 or len(row) == 1:
            return
        yield filled[0]


def _blocks(rows: list[_Row]) -> Iterator[_Block]:
    block = _Block()
    for row in rows:
        gap = bool(block.rows) and row.number > block.rows[-1].number + 1
        if gap and _begins(row, block):
            yield block
            block = _Block()
        block.rows.append(row)
    if block.rows:
        yield block


def _begins(row: _Row, above: _Block) -> bool:
    """Whether a row behind a blank one belongs to another table than the rows above it."""
    if len(_tables_rows(above)) < 2:
        return len(row.filled) > 1 or not _tables_rows(above)
    columns = set(row.filled)
    if not columns <= above.columns:
        return True
    if len(columns) == 1 or not all(isinstance(row.cells[column], str) for column in columns):
        return len(columns) == 1 and isinstance(row.cells[row.filled[0]], str) and len(above.columns) > 1
    body = above.rows[-1].cells
    # Words where numbers stood: a heading row.
    return any(column < len(body) and body[column] != "" and not isinstance(body[column], str) for column in columns)


def _tables_rows(block: _Block) -> list[_Row]:
    return [row for row in block.rows if len(row.filled) > 1]


def _labels(rows: list[_Row]) -> set[tuple[int, str]]:
    """(column, text) of the labels of a report; none where the sheet is a table."""
    seen: Counter[tuple[int, str]] = Counter()
    for row in rows:
        for column in row.filled:
            cell = row.cells[column]
            if isinstance(cell, str) and len(cell) <= _LONGEST_LABEL:
                seen[column, cell] += 1
    least = max(_LABEL_TIMES, int(len(rows) * _LABEL_SHARE))
    often = {key for key, count in seen.items() if count >= least}
    heads = [row for row in rows if _is_head(row, often)]
    # In a table the same words may come often too; but what stands below a label is never that label again.
    apart = all(second.number > first.number + 1 for first, second in pairwise(heads))
    same = Counter(frozenset(_label_columns(row, often)) for row in heads).most_common(1)
    if len(heads) < _LABEL_TIMES or not apart or same[0][1] < len(heads) * 0.8 or len(heads) > len(rows) / 2:
        return set()
    return {
        (column, cell)
        for row in heads
        for column in _label_columns(row, often)
        if isinstance(cell := row.cells[column], str)
    }


def _label_columns(row: _Row, labels: set[tuple[int, str]]) -> list[int]:
    return [column for column in row.filled if (column, row.cells[column]) in labels]


def _is_head(row: _Row, labels: set[tuple[int, str]]) -> bool:
    return len(_label_columns(row, labels)) >= _LABELS


def _report_blocks(rows: list[_Row], labels: set[tuple[int, str]]) -> Iterator[_Block]:
    block = _Block()
    for row in rows:
        if block.rows and _is_head(row, labels):
            yield block
            block = _Block()
        block.rows.append(row)
    if block.rows:
        yield block


def _report(block: _Block, labels: set[tuple[int, str]], sheet: str, assembly: Assembly) -> None:
    """One entry of a report: what stands beside its labels is its title, what stands below them their values."""
    lines: list[str] = []
    head, *others = block.rows
    columns = _label_columns(head, labels)
    beside = [text for column, text in enumerate(head.texts()) if text and column not in columns]
    place = (
        f"sheet {sheet} rows {head.number}-{block.rows[-1].number}" if others else f"sheet {sheet} row {head.number}"
    )
    assembly.place(place, " ".join(beside) or sheet)
    names = {column: head.texts()[column] for column in columns}
    for row in others:
        texts = row.texts()
        said = [
            f"{names.pop(column)}: {text}" if column in names else text for column, text in enumerate(texts) if text
        ]
        lines.append(" | ".join(said))
    lines[:0] = [name for name in names.values()] if not others else []
    assembly.prose("\n".join(lines))
