"""Where the sections of a PDF begin: by its bookmarks, else by lines set larger or bolder than the text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from aps_rag_pipeline.content.pdf_lines import Line
from aps_rag_pipeline.content.pdf_tables import CAPTION

#: A heading is at least so much larger than the text.
_LARGER = 1.1
_MAX_WORDS, _MAX_LENGTH = 16, 140
_NUMBERED = re.compile(r"(?:\d{1,2}(?:\.\d{1,3}){0,4}\.?|[A-Z](?:\.\d{1,3}){1,4}\.?|[IVX]{1,5}\.|[A-Z]\.)\s+\S")
_NO_HEADING = re.compile(r"(?:fig(?:ure)?\.?|equation|eq\.)\s*\d", re.I)
#: Of a document with more heading lines than this share, sizes say nothing.
_TOO_MANY = 0.3
_SIGNS = re.compile(r"[\W_]+")
_LEADING_NUMBER = re.compile(r"^\s*(?:[\dA-Z]{1,3}\.)*[\dIVX]{1,4}\.?\s+(?=\D)")


class Bookmark(NamedTuple):
    """A bookmark: its title, and how far from the lower edge of the page it points (None where it does not say)."""

    title: str
    height: float | None


def heading_lines(pages: list[list[Line]]) -> set[int]:
    """The lines (by `id`) that are headings by their looks."""
    sizes: Counter[float] = Counter()
    weights: Counter[bool] = Counter()
    total = 0
    for line in _texts(pages):
        sizes[round(line.size * 2) / 2] += len(line.text)
        weights[line.bold] += len(line.text)
        total += 1
    if not sizes:
        return set()
    body = max(sizes, key=lambda size: (sizes[size], -size))
    bold_body = weights[True] > weights[False]
    found = {id(line) for lines in pages for line in _on_page(lines, body, bold_body)}
    return found if len(found) <= max(_TOO_MANY * total, 1) else set()


def bookmarked_lines(lines: list[Line], bookmarks: list[Bookmark]) -> dict[int, list[Bookmark]]:
    """Index of a line of a page -> the bookmarks that begin there, by their titles, else by their heights."""
    found: dict[int, list[Bookmark]] = defaultdict(list)
    last = 0
    for bookmark in bookmarks:
        wanted = _bare(bookmark.title)
        index = next((i for i, line in enumerate(lines) if i >= last and same_title(line.text, wanted)), None)
        if index is None:
            index = _at_height(lines, bookmark, last)
        found[index].append(bookmark)
        last = index
    return found


def same_title(text: str, wanted: str) -> bool:
    """Whether a line says a title, its number aside."""
    return bool(wanted) and wanted in (_bare(text), _bare(_LEADING_NUMBER.sub("", text)))


def _bare(text: str) -> str:
    return _SIGNS.sub("", text).casefold()


def bare_title(text: str) -> str:
    """A title as `same_title` compares it."""
    return _bare(text)


def _at_height(lines: list[Line], bookmark: Bookmark, last: int) -> int:
    if bookmark.height is None:
        return last
    below = [i for i, line in enumerate(lines) if i >= last and -line.y0 <= bookmark.height + line.size]
    return below[0] if below else last


def _texts(pages: list[list[Line]]) -> Iterable[Line]:
    return (line for lines in pages for line in lines if not line.table)


def _on_page(lines: list[Line], body: float, bold_body: bool) -> Iterable[Line]:
    for index, line in enumerate(lines):
        if line.table or not _could_be(line):
            continue
        before = lines[index - 1] if index and not line.new_block else None
        after = lines[index + 1] if index + 1 < len(lines) else None
        bolder = line.bold and not bold_body and line.size >= 0.95 * body and _stands_alone(before, line, after)
        if bolder or line.size >= _LARGER * body:
            yield line


def _could_be(line: Line) -> bool:
    text = line.text
    letters = sum(char.isalpha() for char in text)
    if letters < 3 or letters < 0.5 * len(text.replace(" ", "")) or len(text) > _MAX_LENGTH:
        return False
    if len(text.split()) > _MAX_WORDS or CAPTION.match(text) or _NO_HEADING.match(text):
        return False
    return not text.endswith((",", ";", "-", ".")) or bool(_NUMBERED.match(text))


def _stands_alone(before: Line | None, line: Line, after: Line | None) -> bool:
    """Whether a bold line begins a paragraph and is no sentence of it."""
    if len(line.cells) > 1 and not _NUMBERED.match(line.text):
        return False
    if after is not None and after.bold and abs(after.size - line.size) < 0.3 and not after.new_block:
        return False
    if before is None or before.table:
        return True
    return line.base - before.base > 1.3 * line.size or abs(before.size - line.size) > 0.3
