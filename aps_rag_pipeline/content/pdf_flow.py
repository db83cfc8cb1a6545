"""Lines of a page to text: paragraphs, words parted at line ends, formulas on one line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from aps_rag_pipeline.content.pdf_lines import Line, joined

_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_PARTED = re.compile(r"([^\W\d_]+)[-\u00ad\u2010]$")
_REST = re.compile(r"([^\W\d_]+)")
_PRIVATE = re.compile("[\ue000-\uf8ff\ufffd]")
_LEADER = re.compile(r"(?:\s?\.){5,}")
_BULLETS = str.maketrans({"\uf0b7": "•", "\uf0a7": "▪", "\uf0d8": "➢", "\uf0fc": "✓", "\uf0e0": "→"})
_SENTENCE_END = (".", "!", "?", ":", ";", "。")
_PARAGRAPH = 1.3
_MIN_STACK = 4
_LONGEST_WORD = 60


class Vocabulary:
    """Words of a document as they stand inside its lines: they tell a word parted at a line's end from a compound."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._words: set[str] = set()
        for line in lines:
            self._words.update(word.lower() for word in _WORD.findall(_PARTED.sub("", line)))

    def together(self, left: str, right: str) -> str:
        """`left` and `right` as the document writes them elsewhere: in one, with a hyphen, or each alone."""
        whole, compound = f"{left}{right}", f"{left}-{right}"
        if whole.lower() in self._words:
            return whole
        alone = min(len(left), len(right)) > 3 and {left.lower(), right.lower()} <= self._words
        return compound if alone or compound.lower() in self._words else whole


def flowing(lines: list[Line], vocabulary: Vocabulary) -> str:
    """The text of lines that follow each other. A blank line parts paragraphs."""
    lines = _on_one_line(_unstacked(lines))
    usual = _usual_step(lines)
    text = ""
    before: Line | None = None
    for line in lines:
        said = _cleaned(line.text)
        if not said:
            continue
        text = said if before is None else _appended(text, said, _break(before, line, usual), vocabulary)
        before = line
    return text


def _cleaned(text: str) -> str:
    """Without what no font can show elsewhere (pieces of brackets, private signs) and without rows of dots."""
    return " ".join(_LEADER.sub(" … ", _PRIVATE.sub("", text.translate(_BULLETS))).split())


def _usual_step(lines: list[Line]) -> float:
    steps = [
        after.base - line.base
        for line, after in itertools.pairwise(lines)
        if 0 < after.base - line.base < 3 * line.size and abs(after.size - line.size) < 0.6
    ]
    return median(steps) if steps else 0.0


def _break(before: Line, line: Line, usual: float) -> str:
    if line.new_block or line.base <= before.base:
        return "\n\n" if before.text.endswith(_SENTENCE_END) or abs(line.size - before.size) > 1 else "\n"
    step = line.base - before.base
    return "\n\n" if step > _PARAGRAPH * max(usual, before.size) else "\n"


def _appended(text: str, said: str, between: str, vocabulary: Vocabulary) -> str:
    parted, rest = _PARTED.search(text, max(len(text) - _LONGEST_WORD, 0)), _REST.match(said)
    if parted and rest and between == "\n" and len(parted[1]) > 1 and parted[1][-1].islower() and rest[1][0].islower():
        word = vocabulary.together(parted[1], rest[1])
        tail = said[rest.end() :]
        mark = re.match(r"\S*", tail)
        end = mark.end() if mark else 0
        following = tail[end:].strip()
        return text[: parted.start()] + word + tail[:end] + (f"\n{following}" if following else "")
    return text + between + said


def _unstacked(lines: list[Line]) -> list[Line]:
    """Letters written one below the other, as labels beside a table are, as the words that they make."""
    found: list[Line] = []
    stack: list[Line] = []
    for line in lines:
        if stack and not (len(line.text) == 1 and _below(stack[-1], line)):
            found += _words_of(stack)
            stack = []
        if len(line.text) == 1:
            stack.append(line)
        else:
            found.append(line)
    return found + _words_of(stack)


def _below(above: Line, line: Line) -> bool:
    aside = abs(above.x0 + above.x1 - line.x0 - line.x1) / 2
    return aside < 0.6 * line.size and 0 < line.base - above.base < 3.2 * line.size


def _words_of(stack: list[Line]) -> list[Line]:
    if len(stack) < _MIN_STACK or sum(line.text.isalpha() for line in stack) < 0.7 * len(stack):
        return stack
    step = min(after.base - line.base for line, after in itertools.pairwise(stack))
    text = stack[0].text
    for line, after in itertools.pairwise(stack):
        text += f" {after.text}" if after.base - line.base > 1.5 * step else after.text
    return [replace(stack[0], text=text, y1=stack[-1].y1, base=stack[-1].base, cells=[])]


def _on_one_line(lines: list[Line]) -> list[Line]:
    """Pieces of a formula stand above and below its line, closer than lines of text do: they come on one line."""
    found: list[Line] = []
    for line in lines:
        last = found[-1] if found else None
        if last is not None and not line.new_block and _one_formula(last, line):
            words = [word for piece in (last, line) for cell in piece.cells for word in cell.words]
            words.sort(key=lambda word: word.x0)
            wide = last if len(last.text) >= len(line.text) else line
            found[-1] = Line(
                joined(words),
                min(last.x0, line.x0),
                max(last.x1, line.x1),
                min(last.y0, line.y0),
                max(last.y1, line.y1),
                wide.base,
                wide.size,
                wide.bold,
                None,
                [*last.cells, *line.cells],
                last.new_block,
            )
        else:
            found.append(line)
    return found


def _one_formula(above: Line, below: Line) -> bool:
    close = below.y0 - above.y0 >= 0 and below.base - above.base < 0.95 * max(above.size, below.size)
    touching = close or below.y0 < above.y1 - 0.35 * min(above.size, below.size)
    return touching and (is_formula(above.text) or is_formula(below.text))


def is_formula(text: str) -> bool:
    """Whether a line is signs rather than words."""
    tokens = text.split()
    if not tokens or any(len(word) > 3 for word in _WORD.findall(text)):
        return False
    return sum(len(token) for token in tokens) <= 3 * len(tokens)
