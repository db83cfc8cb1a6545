"""CSV and TSV text as rows of cells: the delimiter is found out, and one broken quote costs one row."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from aps_rag_pipeline.sources.base import UnreadableError

DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_CHARS = 64_000
_SAMPLE_ROWS = 50
#: Beyond these a quote that is never closed is taken for what it is, and the file for damaged.
_MAX_ROW_LINES = 5_000
_MAX_BROKEN = 1_000


class TextRow(NamedTuple):
    """`number` counts rows as a spreadsheet program does, blank ones too; `problem` says why one cannot be trusted."""

    number: int
    cells: list[str]
    problem: str = ""


def read_delimited(text: str, delimiter: str) -> Iterator[TextRow]:
    """Every row that is not blank. `text` has Unix line ends.

    Raises:
        UnreadableError: the quoting of very many rows is broken.
    """
    csv.field_size_limit(sys.maxsize)  # the default refuses cells above 131,072 characters
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    position = number = broken = 0
    if lines and lines[0].lower().startswith("sep=") and len(lines[0]) == 5:
        position = number = 1
    while position < len(lines):
        feed = _Lines(lines, position)
        reader = csv.reader(feed, delimiter=delimiter, strict=True)
        start = position
        try:
            for cells in reader:
                number += 1
                start = feed.position
                if any(cell and not cell.isspace() for cell in cells):
                    yield TextRow(number, [cell.strip() for cell in cells])
            return
        except csv.Error as error:
            number += 1
            broken += 1
            if broken > _MAX_BROKEN:
                raise UnreadableError(
                    f"the quoting of more than {_MAX_BROKEN} rows is broken, the last at row {number}",
                    remedy="export the table again with quoted cells",
                ) from error
            # Only the line where the row begins is given up: the next one may be sound.
            yield _mended(lines[start], number, delimiter, str(error))
            position = start + 1


def _mended(line: str, number: int, delimiter: str, error: str) -> TextRow:
    cells = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    return TextRow(number, cells, f"broken quoting ({error})")


class _Lines:
    """Lines from a position on, as csv wants them, with a bound on how many one row may swallow."""

    def __init__(self, lines: list[str], position: int) -> None:
        self.lines = lines
        self.position = position

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.position >= len(self.lines):
            raise StopIteration
        self.position += 1
        return self.lines[self.position - 1] + "\n"


def find_delimiter(text: str, recognised: Callable[[list[str]], int]) -> str:
    """The delimiter under which the first rows look most like a table.

    Args:
        recognised: how many of a row's cells are headings that are looked for; the most decide.
    """
    first = text.split("\n", 1)[0]
    if first.lower().startswith("sep=") and len(first) == 5:
        return first[4]
    sample = text[:_SAMPLE_CHARS]
    if len(text) > _SAMPLE_CHARS:
        sample = sample[: sample.rfind("\n") + 1] or sample
    return max(DELIMITERS, key=lambda delimiter: _likeness(sample, delimiter, recognised))


def _likeness(sample: str, delimiter: str, recognised: Callable[[list[str]], int]) -> tuple[int, float, int]:
    rows = [row.cells for row in islice(read_delimited(sample, delimiter), _SAMPLE_ROWS)]
    widths = Counter(len(row) for row in rows if len(row) > 1)
    width, agreeing = widths.most_common(1)[0] if widths else (1, 0)
    return max(map(recognised, rows), default=0), agreeing / max(len(rows), 1), width
