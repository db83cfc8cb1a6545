"""Words of a page to stretches of one line, and stretches of a column to its lines."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

from aps_rag_pipeline.content.pdf_words import Word

#: A wider gap (in heights of letters) parts columns or cells; spaces of justified text stay below it.
_GAP = 0.9
_SMALL = 0.83


@dataclass(slots=True)
class Table:
    """Rows of equally many cells, where they stand, and the lines above or below that name them.

    `room` is how many letters more the last line of each cell of the last row holds, where that shows: in cells of
    several lines between drawn ones. Elsewhere it is infinite.
    """

    rows: list[list[str]]
    x0: float
    x1: float
    y0: float
    y1: float
    columns: tuple[float, ...] = ()
    title: str = ""
    room: tuple[float, ...] = ()


@dataclass(slots=True)
class Stretch:
    """Words of one line without a wide gap, or a table in place of the words it took."""

    words: list[Word]
    x0: float
    x1: float
    y0: float
    y1: float
    base: float
    size: float
    table: Table | None = None

    @property
    def text(self) -> str:
        return joined(self.words)

    @property
    def width(self) -> float:
        return self.x1 - self.x0


@dataclass(slots=True)
class Line:
    """A line of a column from left to right, or a table. `cells` are its stretches."""

    text: str
    x0: float
    x1: float
    y0: float
    y1: float
    base: float
    size: float
    bold: bool = False
    table: Table | None = None
    cells: list[Stretch] = field(default_factory=list)
    new_block: bool = False  # begins a column or a band of the page


def stretches(words: list[Word]) -> list[Stretch]:
    """The words of a page, joined where nothing but a space is between them."""
    found: list[Stretch] = []
    for row in _rows(words):
        row.sort(key=lambda word: word.x0)
        start = 0
        reach = row[0].x1
        for index in range(1, len(row)):
            if row[index].x0 - reach > _GAP * max(row[index].size, row[index - 1].size):
                found.append(_stretch(row[start:index]))
                start = index
            reach = max(reach, row[index].x1) if index != start else row[index].x1
        found.append(_stretch(row[start:]))
    return found


def place_of(table: Table) -> Stretch:
    """A stretch that stands where a table stands."""
    return Stretch([], table.x0, table.x1, table.y0, table.y1, table.y1, 0.0, table)


def _stretch(words: list[Word]) -> Stretch:
    main = max(words, key=lambda word: (len(word.text), word.size))
    x0, x1 = min(word.x0 for word in words), max(word.x1 for word in words)
    y0, y1 = min(word.y0 for word in words), max(word.y1 for word in words)
    return Stretch(words, x0, x1, y0, y1, main.base, main.size)


def _rows(words: list[Word]) -> list[list[Word]]:
    """Words on one height. Small ones that touch a word of the row above or below are its index or power."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.base):
        if rows and word.base - rows[-1][0].base <= 0.3 * min(word.size, rows[-1][0].size):
            rows[-1].append(word)
        else:
            rows.append([word])
    largest = [max([word.size for word in row]) for row in rows]
    for index, row in enumerate(rows):
        near = [other for other in (index - 1, index + 1) if 0 <= other < len(rows)]
        for word in [word for word in row if any(word.size <= _SMALL * largest[other] for other in near)]:
            home = next((other for other in near if any(_attached(word, host) for host in rows[other])), None)
            if home is not None:
                row.remove(word)
                rows[home].append(word)
    return [row for row in rows if row]


def _attached(word: Word, host: Word) -> bool:
    if word.size > _SMALL * host.size or abs(word.base - host.base) > 0.62 * host.size:
        return False
    return abs(word.x0 - host.x1) < 0.35 * host.size or abs(host.x0 - word.x1) < 0.2 * host.size


def lines_of(column: list[Stretch]) -> list[Line]:
    """The lines of one column, from the top."""
    rows: list[list[Stretch]] = []
    for stretch in sorted(column, key=lambda s: s.y0 if s.table else s.base):
        last = rows[-1][0] if rows else None
        same = last is not None and not last.table and not stretch.table
        if last and same and abs(stretch.base - last.base) <= 0.35 * min(stretch.size, last.size):
            rows[-1].append(stretch)
        else:
            rows.append([stretch])
    found = [_line(row) for row in rows]
    if found:
        found[0].new_block = True
    return found


def _line(row: list[Stretch]) -> Line:
    row.sort(key=lambda stretch: stretch.x0)
    words = [word for stretch in row for word in stretch.words]
    letters = sum(len(word.text) for word in words)
    bold = letters > 0 and sum(len(word.text) for word in words if word.bold) >= 0.9 * letters
    main = max(row, key=lambda stretch: len(stretch.words))
    return Line(
        joined(words),
        row[0].x0,
        max(stretch.x1 for stretch in row),
        min(stretch.y0 for stretch in row),
        max(stretch.y1 for stretch in row),
        main.base,
        main.size,
        bold,
        row[0].table,
        row,
    )


def joined(words: list[Word]) -> str:
    """Words of a line as they are read: from the right where the script is, numbers and names in it from the left."""
    if not any(_leftward(word.text) for word in words):
        return " ".join(word.text for word in words)
    rightmost = sum(_leftward(word.text) for word in words) * 2 >= sum(_has_letters(word.text) for word in words)
    runs: list[list[Word]] = []
    for word in words:
        leftward = _leftward(word.text)
        if runs and _leftward(runs[-1][-1].text) == leftward:
            runs[-1].append(word)
        else:
            runs.append([word])
    ordered = [run[::-1] if _leftward(run[0].text) else run for run in runs]
    return " ".join(word.text for run in (ordered[::-1] if rightmost else ordered) for word in run)


def _leftward(text: str) -> bool:
    return any("\u0590" <= char <= "\u08ff" or "\ufb1d" <= char <= "\ufefc" for char in text) and any(
        unicodedata.bidirectional(char) in ("R", "AL") for char in text
    )


def _has_letters(text: str) -> bool:
    return any(char.isalpha() for char in text)
