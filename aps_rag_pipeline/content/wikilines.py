"""What the readers of wiki markup share: finished pieces held back while lines are read, and nested lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

_OPEN, _CLOSE = "\ue0f3", "\ue0f4"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_MAX_DEPTH = 12


@dataclass
class WikiText:
    """A page of a wiki as HTML. Links to pages have addresses of the form `wiki:<target>`, to media `media:<name>`."""

    html: str
    tags: list[str] = field(default_factory=list)
    #: The page that this one only points to.
    redirect: str = ""


class Item(NamedTuple):
    """A list item: `mark` is `ul`, `ol` or `dl`; `html` its content."""

    depth: int
    mark: str
    html: str


class Held:
    """Finished HTML that later steps must not look into, by the mark that stands for it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def hold(self, piece: str) -> str:
        self._pieces.append(piece)
        return f"{_OPEN}{len(self._pieces) - 1}{_CLOSE}"

    def block(self, piece: str) -> str:
        """Like `hold`, on a line of its own."""
        return f"\n\n{self.hold(piece)}\n\n"

    def release(self, text: str) -> str:
        # A held piece may hold marks of pieces held before it, so the latest come first.
        while _MARK.search(text):
            text = _MARK.sub(lambda match: self._piece(int(match[1])), text)
        return text

    def _piece(self, number: int) -> str:
        return self._pieces[number] if number < len(self._pieces) else ""


def replace_spans(
    text: str, opening: re.Pattern[str], closing: Callable[[str], str], put: Callable[[str, str], str]
) -> str:
    """Replace each stretch from an `opening` to the closing that belongs to it by `put(opening, inside)`.

    One pass, whatever the text: a pattern over both ends would look for a missing end again and again.
    """
    out: list[str] = []
    position = 0
    folded = text.lower()
    missing: set[str] = set()
    for match in opening.finditer(text):
        end_mark = closing(match[0]).lower()
        if match.start() < position or end_mark in missing:
            continue
        end = folded.find(end_mark, match.end())
        if end < 0:
            missing.add(end_mark)
            continue
        out += [text[position : match.start()], put(match[0], text[match.end() : end])]
        position = end + len(end_mark)
    return "".join([*out, text[position:]])


def is_held(line: str) -> bool:
    """Whether a line is nothing but held pieces."""
    return bool(_MARK.search(line)) and not _MARK.sub("", line).strip()


def verbatim(text: str) -> str:
    return f"<pre>{escape(text.strip(chr(10)))}</pre>"


def plain_html(text: str) -> str:
    """Text of unknown or excessive markup as paragraphs."""
    return "".join(f"<p>{escape(stretch)}</p>" for stretch in text.split("\n\n") if stretch.strip())


def nested_list(items: Iterable[Item]) -> str:
    """List items of several depths as nested lists."""
    out: list[str] = []
    open_marks: list[str] = []
    for depth, mark, content in items:
        level = max(1, min(depth, len(open_marks) + 1, _MAX_DEPTH))
        while len(open_marks) > level or (len(open_marks) == level and open_marks[-1] != mark):
            out.append(f"</li></{open_marks.pop()}>")
        if len(open_marks) == level:
            out.append("</li>")
        else:
            out.append(f"<{mark}>")
            open_marks.append(mark)
        out.append(f"<li>{content}")
    while open_marks:
        out.append(f"</li></{open_marks.pop()}>")
    return "".join(out)
