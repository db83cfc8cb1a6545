"""Tables of a PDF page that its drawn lines bound: grids of cells, and rows between rules."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from math import inf

from aps_rag_pipeline.content.pdf_lines import Table, joined
from aps_rag_pipeline.content.pdf_rules import Rule, Rules
from aps_rag_pipeline.content.pdf_words import Word

_TOUCH = 3.0
_MAX_RULES = 700
_MAX_CELLS = 40_000
#: Columns between horizontal rules are parted by at least so much white in every row, in heights of letters.
_WHITE = 0.55
#: With so many words in most cells, columns are running text.
_PROSE_WORDS = 6


def ruled_tables(words: list[Word], rules: Rules) -> tuple[list[Table], list[Word]]:
    """The tables that lines bound, and the words outside of them."""
    tables: list[Table] = []
    if len(rules.level) > _MAX_RULES or len(rules.upright) > _MAX_RULES:
        return [], words
    for level, upright in _joined_rules(rules):
        table, words = _grid(words, level, upright)
        if table:
            tables.append(table)
    for level in _stacks(rules.level, tables):
        table, words = _between_rules(words, level)
        if table:
            tables.append(table)
    return tables, words


def _joined_rules(rules: Rules) -> list[tuple[list[Rule], list[Rule]]]:
    """Lines that touch each other, as (level, upright): each is one drawing."""
    count = len(rules.level)
    parent = list(range(count + len(rules.upright)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for i, level in enumerate(rules.level):
        for j, upright in enumerate(rules.upright):
            if _meet(level, upright):
                parent[root(i)] = root(count + j)
    drawings: dict[int, tuple[list[Rule], list[Rule]]] = defaultdict(lambda: ([], []))
    for i, level in enumerate(rules.level):
        drawings[root(i)][0].append(level)
    for j, upright in enumerate(rules.upright):
        drawings[root(count + j)][1].append(upright)
    return [(level, upright) for level, upright in drawings.values() if len(level) >= 2 and upright]


def _meet(level: Rule, upright: Rule) -> bool:
    return (
        level.start - _TOUCH <= upright.at <= level.end + _TOUCH
        and upright.start - _TOUCH <= level.at <= upright.end + _TOUCH
    )


def _grid(words: list[Word], level: list[Rule], upright: list[Rule]) -> tuple[Table | None, list[Word]]:
    """The table that a drawing makes of the words inside it; None where it is a frame, a plot or a picture."""
    low, high = min(rule.start for rule in level), max(rule.end for rule in level)
    top, bottom = min(rule.start for rule in upright), max(rule.end for rule in upright)
    xs = _distinct([low, high, *(rule.at for rule in upright)])
    ys = _distinct([top, bottom, *(rule.at for rule in level)])
    across, down = len(xs) - 1, len(ys) - 1
    if across < 2 or down < 1 or across * down > _MAX_CELLS:
        return None, words
    inside: dict[tuple[int, int], list[Word]] = defaultdict(list)
    outside: list[Word] = []
    for word in words:
        x, y = (word.x0 + word.x1) / 2, word.base - 0.3 * word.size
        if xs[0] - 1 <= x <= xs[-1] + 1 and ys[0] - 1 <= y <= ys[-1] + 1:
            column = min(max(bisect_right(xs, x) - 1, 0), across - 1)
            row = min(max(bisect_right(ys, y) - 1, 0), down - 1)
            inside[_corner(row, column, xs, ys, level, upright)].append(word)
        else:
            outside.append(word)
    rows = _filled(inside, xs, ys, level, upright)
    if len(rows) < 2 or sum(any(row[c] for row in rows) for c in range(across)) < 2:
        return None, words
    if sum(bool(cell) for row in rows for cell in row) < 0.3 * sum(len(row) for row in rows):
        return None, words
    kept = [c for c in range(across) if any(row[c] for row in rows)]
    columns = tuple(xs[c] for c in kept)
    table = Table([[row[c] for c in kept] for row in rows], xs[0], xs[-1], ys[0], ys[-1], columns)
    middle = (ys[-2] + ys[-1]) / 2
    ends = (next((x for x in xs[c + 1 : -1] if _drawn(upright, x, middle)), xs[-1]) for c in kept)
    lasts = (inside.get((down - 1, c), []) for c in kept)
    said = zip(lasts, columns, ends, table.rows[-1], strict=True)
    table.room = tuple(_room(last, low, high) if _cell_text(last) == text else inf for last, low, high, text in said)
    return table, outside


def _room(words: list[Word], low: float, high: float) -> float:
    """How many letters more the last of several lines holds in a cell from `low` to `high`."""
    lines = rows_of(words)
    if len(lines) < 2:
        return inf
    margin = max(min(word.x0 for word in words) - low, 0.0)
    letter = (lines[-1][-1].x1 - lines[-1][0].x0) / len(joined(lines[-1]))
    return (high - margin - lines[-1][-1].x1) / letter if letter > 0 else inf


def _corner(
    row: int, column: int, xs: list[float], ys: list[float], level: list[Rule], upright: list[Rule]
) -> tuple[int, int]:
    """The first cell of those that lie together with this one, for want of a line between them."""
    middle = (ys[row] + ys[row + 1]) / 2
    while column > 0 and not _drawn(upright, xs[column], middle):
        column -= 1
    middle = (xs[column] + xs[column + 1]) / 2
    while row > 0 and not _drawn(level, ys[row], middle):
        row -= 1
    return row, column


def _drawn(rules: list[Rule], at: float, middle: float) -> bool:
    return any(abs(rule.at - at) <= _TOUCH and rule.start <= middle <= rule.end for rule in rules)


def _filled(
    inside: dict[tuple[int, int], list[Word]],
    xs: list[float],
    ys: list[float],
    level: list[Rule],
    upright: list[Rule],
) -> list[list[str]]:
    """Rows of cell texts. A cell over several rows is said in each; rows that no line parts are told by their text."""
    rows: list[list[str]] = []
    for row in range(len(ys) - 1):
        cells = [inside.get((row, column), []) for column in range(len(xs) - 1)]
        split = _split_rows(cells) if len(ys) <= 4 else []
        if split:
            rows += split
            continue
        line = [_cell_text(cell) for cell in cells]
        for column, text in enumerate(line):
            corner = _corner(row, column, xs, ys, level, upright)
            if not text and corner[1] == column and corner[0] != row:
                line[column] = _cell_text(inside.get(corner, []))
        if any(line):
            rows.append(line)
    return rows


def _split_rows(cells: list[list[Word]]) -> list[list[str]]:
    """Rows inside tall cells, where the lines of all cells stand side by side; none where a cell is running text."""
    heights = [_heights(cell) for cell in cells]
    count = max(map(len, heights))
    full = sum(len(found) == count for found in heights)
    if count < 4 or full < 2 or full < 0.6 * sum(bool(found) for found in heights):
        return []
    base = next(found for found in heights if len(found) == count)
    rows = [[""] * len(cells) for _ in base]
    for column, cell in enumerate(cells):
        by_row: dict[int, list[Word]] = defaultdict(list)
        for word in cell:
            by_row[min(range(count), key=lambda row: abs(base[row] - word.base))].append(word)
        for row, words in by_row.items():
            rows[row][column] = _cell_text(words)
    return rows


def _heights(words: list[Word]) -> list[float]:
    found: list[float] = []
    for word in sorted(words, key=lambda word: word.base):
        if not found or word.base - found[-1] > 0.5 * word.size:
            found.append(word.base)
    return found


def _cell_text(words: list[Word]) -> str:
    lines: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.base):
        if lines and word.base - lines[-1][0].base <= 0.5 * word.size:
            lines[-1].append(word)
        else:
            lines.append([word])
    return " ".join(joined(sorted(line, key=lambda word: word.x0)) for line in lines)


def _distinct(values: list[float]) -> list[float]:
    found: list[float] = []
    for value in sorted(values):
        if not found or value - found[-1] > _TOUCH:
            found.append(value)
    return found


def _stacks(level: list[Rule], tables: list[Table]) -> list[list[Rule]]:
    """Level lines of one length, one above the other: the rules above, in and below a table without upright lines."""
    free = [
        rule
        for rule in level
        if rule.end - rule.start > 60 and not any(t.y0 - _TOUCH <= rule.at <= t.y1 + _TOUCH for t in tables)
    ]
    stacks: list[list[Rule]] = []
    for rule in sorted(free):
        home = next((s for s in stacks if abs(s[0].start - rule.start) < 4 and abs(s[0].end - rule.end) < 4), None)
        if home is None:
            stacks.append([rule])
        else:
            home.append(rule)
    return [stack for stack in stacks if len(stack) >= 3]


def _between_rules(words: list[Word], stack: list[Rule]) -> tuple[Table | None, list[Word]]:
    """The table between the first and the last of some rules, its columns parted by white."""
    low, high, top, bottom = stack[0].start - 2, stack[0].end + 2, stack[0].at, stack[-1].at
    inside = [w for w in words if low <= w.x0 and w.x1 <= high and top < w.base - 0.3 * w.size < bottom]
    if any(w.x0 < high < w.x1 or w.x0 < low < w.x1 for w in words if top < w.base < bottom):
        return None, words
    rows = rows_of(inside)
    bounds = column_bounds(rows)
    if len(rows) < 2 or len(bounds) < 1:
        return None, words
    table = Table(cells_of(rows, bounds), low, high, top, bottom, (low, *bounds))
    if is_prose(table.rows):
        return None, words
    taken = {id(word) for word in inside}
    return table, [word for word in words if id(word) not in taken]


def rows_of(words: list[Word]) -> list[list[Word]]:
    """Words by the line they stand on, each from left to right."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.base):
        if rows and word.base - rows[-1][0].base <= 0.4 * word.size:
            rows[-1].append(word)
        else:
            rows.append([word])
    return [sorted(row, key=lambda word: word.x0) for row in rows]


def column_bounds(rows: list[list[Word]]) -> list[float]:
    """Where white runs down through all rows, at least two of which have words on both sides."""
    spans = sorted((word.x0, word.x1, word.size) for row in rows for word in row)
    bounds: list[float] = []
    reach = spans[0][1] if spans else 0.0
    for x0, x1, size in spans:
        if x0 - reach > _WHITE * size:
            bounds.append((x0 + reach) / 2)
        reach = max(reach, x1)
    return [x for x in bounds if sum(row[0].x0 < x < row[-1].x0 for row in rows) >= 2]


def cells_of(rows: list[list[Word]], bounds: list[float]) -> list[list[str]]:
    found = []
    for row in rows:
        cells: list[list[Word]] = [[] for _ in range(len(bounds) + 1)]
        for word in row:
            cells[bisect_right(bounds, (word.x0 + word.x1) / 2)].append(word)
        found.append([joined(cell) for cell in cells])
    return found


def is_prose(rows: list[list[str]]) -> bool:
    """Whether cells are lines of columns of text rather than values."""
    filled = [len(cell.split()) for row in rows for cell in row if cell]
    return not filled or sum(count >= _PROSE_WORDS for count in filled) > 0.5 * len(filled)
