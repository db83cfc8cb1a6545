"""Tables of a PDF page that nothing but their alignment shows, and the captions of all tables."""

from __future__ import annotations

import itertools
import re
from statistics import median

from aps_rag_pipeline.content.pdf_grids import cells_of, column_bounds, is_prose
from aps_rag_pipeline.content.pdf_lines import Line, Table
from aps_rag_pipeline.content.pdf_words import Word

CAPTION = re.compile(r"(?:table|tab\.|tbl\.)\s*(?:[a-z]?\d[\w.\-–]*|[ivxl]+\b|[a-z]\b)", re.I)
_MIN_ROWS = 3
_ALIGNED = 3.5  # points
_CAPTION_LINES = 5
_TITLE_WORDS = 15
#: Lines of a caption follow each other this closely (in heights of letters), and stand this near to their table.
_PITCH, _NEAR = 1.6, 3.2


def with_tables(lines: list[Line]) -> list[Line]:
    """The lines of a page with aligned rows gathered to tables, and captions moved into the tables they name."""
    return _captioned(_aligned(lines))


def _aligned(lines: list[Line]) -> list[Line]:
    found: list[Line] = []
    run: list[Line] = []
    for line in lines:
        if run and (line.new_block or len(line.cells) < 2 or line.table or line.base - run[-1].base > 3 * line.size):
            found += _gathered(run, found)
            run = []
        if len(line.cells) >= 2 and not line.table:
            run.append(line)
        else:
            found.append(line)
    return found + _gathered(run, found)


def _gathered(run: list[Line], before: list[Line]) -> list[Line]:
    """A run of lines with gaps, as a table where its alignment is certain."""
    captioned = any(CAPTION.match(line.text) for line in before[-_CAPTION_LINES:])
    for first, last in ((0, len(run)), (1, len(run)), (0, len(run) - 1), (1, len(run) - 1)):
        table = _table(run[first:last], captioned)
        if table:
            line = Line("", table.x0, table.x1, table.y0, table.y1, table.y1, 0.0, table=table)
            line.new_block = run[first].new_block
            return [*run[:first], line, *run[last:]]
    return run


def _table(rows: list[Line], captioned: bool) -> Table | None:
    if len(rows) < _MIN_ROWS:
        return None
    words = [[word for cell in row.cells for word in cell.words] for row in rows]
    bounds = column_bounds(words)
    if len(bounds) + 1 < (2 if captioned else 3):
        return None
    cells = cells_of(words, bounds)
    filled = sum(bool(cell) for row in cells for cell in row)
    if filled < 0.75 * len(cells) * (len(bounds) + 1) or is_prose(cells) or not _in_columns(words, bounds):
        return None
    x0, x1 = min(row.x0 for row in rows), max(row.x1 for row in rows)
    return Table(cells, x0, x1, rows[0].y0, rows[-1].y1, (x0, *bounds))


def _in_columns(rows: list[list[Word]], bounds: list[float]) -> bool:
    """Whether the cells of each column begin, end or have their middle at one place."""
    limits = [float("-inf"), *bounds, float("inf")]
    for low, high in itertools.pairwise(limits):
        ends = []
        for row in rows:
            cell = [word for word in row if low < (word.x0 + word.x1) / 2 <= high]
            if cell:
                ends.append((cell[0].x0, cell[-1].x1, (cell[0].x0 + cell[-1].x1) / 2))
        body = ends[1:] or ends
        if not any(_at_one_place([end[side] for end in body]) for side in range(3)):
            return False
    return True


def _at_one_place(values: list[float]) -> bool:
    middle = median(values)
    return sum(abs(value - middle) <= _ALIGNED for value in values) >= 0.8 * len(values)


def _captioned(lines: list[Line]) -> list[Line]:
    taken: set[int] = set()
    for index, line in enumerate(lines):
        if line.table and not line.table.title:
            numbers = _above(lines, index) or _below(lines, index)
            if not taken.intersection(numbers):
                line.table.title = " ".join(lines[number].text for number in numbers)
                taken.update(numbers)
            if not line.table.title:
                _title_from_rows(line.table)
    return [line for index, line in enumerate(lines) if index not in taken]


def _above(lines: list[Line], index: int) -> list[int]:
    """The lines of the caption above a table."""
    lower = lines[index].y0
    for number in range(index - 1, max(index - 1 - _CAPTION_LINES, -1), -1):
        line = lines[number]
        near = (_NEAR if number == index - 1 else _PITCH) * line.size
        if line.table or not -line.size < lower - line.base < near:
            return []
        if CAPTION.match(line.text):
            return list(range(number, index))
        lower = line.base
    return []


def _below(lines: list[Line], index: int) -> list[int]:
    """The lines of the caption below a table, unless it is nearer to another one."""
    numbers: list[int] = []
    upper = lines[index].y1
    for number in range(index + 1, min(index + 1 + _CAPTION_LINES, len(lines))):
        line = lines[number]
        near = (_PITCH if numbers else _NEAR) * line.size
        if line.table or not -line.size < line.y0 - upper < near or not (numbers or CAPTION.match(line.text)):
            break
        if numbers and (abs(line.size - lines[numbers[0]].size) > 0.3 or line.y0 - upper > 0.5 * line.size):
            break
        numbers.append(number)
        upper = line.y1
    after = lines[numbers[-1] + 1] if numbers and numbers[-1] + 1 < len(lines) else None
    if after is not None and after.table and after.y0 - upper < lines[numbers[0]].y0 - lines[index].y1:
        return []
    return numbers


def _title_from_rows(table: Table) -> None:
    """A first row of one cell over all columns is the title of a table without a caption."""
    first, second = table.rows[0], table.rows[1] if len(table.rows) > 2 else []
    alone = len(first) > 2 and first[0] and not any(first[1:]) and len(first[0].split()) <= _TITLE_WORDS
    if alone and sum(map(bool, second)) > 1:
        table.title = first[0]
        del table.rows[0]
