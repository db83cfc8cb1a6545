"""Running heads, feet and page numbers: lines that repeat at one place over most pages of a document."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from aps_rag_pipeline.content.pdf_lines import Line

#: Shorter files have no running heads that could be told from their text.
_MIN_PAGES = 3
_ROWS = 4  # looked at from the top and from the bottom of each page
_SAME_PLACE = 4.0  # points
_APART = 1.15
_PITCH = 1.3  # of lines, in heights of letters, where a page has too few to tell
_MAX_LENGTH = 300
_NUMBER = re.compile(r"\d+")
_ROMAN = re.compile(r"[ivxlc]{1,7}")


@dataclass(slots=True)
class _Row:
    """The lines of a page on one height. `text` has # for numbers, which are in `numbers`."""

    page: int
    base: float
    size: float
    lines: list[Line]
    text: str
    numbers: list[int]


def without_running(pages: list[list[Line]]) -> tuple[list[list[Line]], list[str]]:
    """The lines of each page without running heads and feet, and these as they first stand."""
    written = [index for index, lines in enumerate(pages) if lines]
    if len(written) < _MIN_PAGES:
        return pages, []
    rows = {page: _rows(page, pages[page]) for page in written}
    removed: set[int] = set()
    said: dict[str, str] = {}
    for below in (False, True):
        ends = {page: (found[::-1] if below else found) for page, found in rows.items()}
        repeated = _repeated(ends, written, removed)
        for found in ends.values():
            for row in _peeled([row for row in found if id(row.lines[0]) not in removed], repeated):
                removed.update(id(line) for line in row.lines)
                said.setdefault(row.text, " ".join(_shown(line) for line in row.lines))
    kept = [[line for line in lines if id(line) not in removed] for lines in pages]
    return kept, list(said.values())


def _rows(page: int, lines: list[Line]) -> list[_Row]:
    groups: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.base):
        if groups and line.base - groups[-1][0].base < 2:
            groups[-1].append(line)
        else:
            groups.append([line])
    found = []
    for group in groups:
        group.sort(key=lambda line: line.x0)
        text = " ".join(" ".join(_shown(line) for line in group).split())[:_MAX_LENGTH]
        numbers = [int(number) for number in _NUMBER.findall(text) if len(number) < 10]
        plain = "#" if _ROMAN.fullmatch(text.lower()) else _NUMBER.sub("#", text)
        size = max((line.size for line in group), default=0.0)
        found.append(_Row(page, group[0].base, size, group, plain, numbers))
    return found


def _shown(line: Line) -> str:
    return " ".join(cell for row in line.table.rows for cell in row if cell) if line.table else line.text


def _repeated(ends: dict[int, list[_Row]], written: list[int], removed: set[int]) -> set[int]:
    """Rows (by `id`) near this end of their pages that stand at the same place on most pages."""
    by_text: dict[str, list[_Row]] = defaultdict(list)
    inner: dict[str, set[int]] = defaultdict(set)
    for page, rows in ends.items():
        left = [row for row in rows if id(row.lines[0]) not in removed]
        for row in left[:_ROWS]:
            by_text[row.text].append(row)
        for row in left[_ROWS:-_ROWS]:
            inner[row.text].add(page)
    found = _numbered([row for rows in by_text.values() for row in rows], written)
    for text, rows in by_text.items():
        if 2 * len(inner[text]) > len(rows):  # it is said in the body as well: rows of a list
            continue
        for place in _places(rows):
            if _on_most(place, written) and _numbers_run_on(place):
                found.update(id(row) for row in place)
    return found


def _numbered(rows: list[_Row], written: list[int]) -> set[int]:
    """Rows that carry the page number at one place of most pages, whatever chapter they name beside it."""
    found: set[int] = set()
    for place in _places(rows):
        for end in (0, -1):
            carrying = [row for row in place if row.numbers and row.text[end] == "#"]
            offsets = Counter(row.numbers[end] - row.page for row in carrying)
            offset, _ = max(offsets.items(), key=lambda item: item[1], default=(0, 0))
            counted = [row for row in carrying if row.numbers[end] - row.page == offset]
            if len(counted) >= _MIN_PAGES and 2 * len({row.page for row in counted}) > len(written):
                times = Counter(row.text for row in counted)
                found.update(id(row) for row in counted if times[row.text] > 1)
    return found


def _places(rows: list[_Row]) -> list[list[_Row]]:
    """Rows by the height at which they stand."""
    places: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: row.base):
        if places and row.base - places[-1][0].base <= _SAME_PLACE:
            places[-1].append(row)
        else:
            places.append([row])
    return places


def _on_most(place: list[_Row], written: list[int]) -> bool:
    """On most pages, or on most of the left or of the right ones."""
    here = {row.page for row in place}
    if len(here) < _MIN_PAGES or len(here) < len(place):
        return False
    sides = [written, [page for page in written if page % 2 == 0], [page for page in written if page % 2]]
    return any(2 * len(here.intersection(side)) > len(side) and len(here & set(side)) >= _MIN_PAGES for side in sides)


def _numbers_run_on(place: list[_Row]) -> bool:
    """Whether each number stays, or goes up with the pages, or begins again: page, sheet and chapter numbers do."""
    place.sort(key=lambda row: row.page)
    wrong = 0
    for row, after in itertools.pairwise(place):
        step = after.page - row.page
        pairs = zip(row.numbers, after.numbers, strict=False)
        wrong += len(row.numbers) != len(after.numbers) or any(
            not (0 <= new - old <= step or new == 1) for old, new in pairs
        )
    return wrong <= 0.2 * (len(place) - 1)


def _peeled(rows: list[_Row], repeated: set[int]) -> list[_Row]:
    """The repeated rows at the end of a page, from outside inwards. A head stands apart from the text."""
    outer: list[_Row] = []
    for row in rows[:_ROWS]:
        if id(row) not in repeated:
            break
        outer.append(row)
    while outer and not _apart(outer[-1], rows[len(outer) :]):
        outer.pop()
    return outer


def _apart(row: _Row, inside: list[_Row]) -> bool:
    if row.text == "#" or not inside or any(line.table for line in (*row.lines, *inside[0].lines)):
        return True
    steps = sorted(abs(after.base - row.base) for row, after in itertools.pairwise(inside))
    usual = steps[len(steps) // 2] if len(steps) > 1 else _PITCH * row.size
    return abs(inside[0].base - row.base) > _APART * usual
