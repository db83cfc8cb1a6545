"""Password columns of pipe tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from aps_rag_pipeline.content.credentials.spans import Span
from aps_rag_pipeline.content.credentials.values import is_value

_HEAD = re.compile(r"(?:pass-?(?:word|wd|phrase|code|wort)s?|kennwort|pwd?|pass)(?:[ \t]*\([^)]*\))?", re.IGNORECASE)
_RULER = re.compile(r"[ \t]*\|?[ \t]*:?-{2,}[ \t:|-]*")
_BAR = re.compile(r"(?<!\\)\|")
_MARKUP = " \t*_`"
_HEAD_LIMIT = 4000


def cells_below_heads(text: str, windows: Iterable[Span]) -> Iterator[Span]:
    """Values in cells below a head that says password, in tables whose head row lies in a window."""
    done = 0
    for start, stop in windows:
        if "|" not in text[start:stop]:
            continue
        lines = _lines(text, max(done, text.rfind("\n", max(0, start - _HEAD_LIMIT), start + 1) + 1))
        for head in lines:
            if head[0] >= stop:
                break
            columns = [index for index, cell in enumerate(_cells(text, head)) if _HEAD.fullmatch(text, *cell)]
            ruler = next(lines, None) if columns else None
            if ruler is None or not _RULER.fullmatch(text, *ruler):
                continue
            for row in lines:
                cells = _cells(text, row)
                if not cells:
                    break
                done = row[1]  # a row is not looked at again as the head of another table
                yield from (cells[i] for i in columns if i < len(cells) and is_value(text[slice(*cells[i])]))


def _lines(text: str, start: int) -> Iterator[Span]:
    while start < len(text):
        stop = text.find("\n", start)
        stop = len(text) if stop < 0 else stop
        yield start, stop
        start = stop + 1


def _cells(text: str, line: Span) -> list[Span]:
    """The cells of a row without blanks and markup around them; none if there is no bar."""
    start, stop = line
    bars = [bar.start() for bar in _BAR.finditer(text, start, stop)]
    return [_stripped(text, left + 1, right) for left, right in pairwise([start - 1, *bars, stop])] if bars else []


def _stripped(text: str, start: int, stop: int) -> Span:
    while start < stop and text[start] in _MARKUP:
        start += 1
    while stop > start and text[stop - 1] in _MARKUP:
        stop -= 1
    return start, stop
