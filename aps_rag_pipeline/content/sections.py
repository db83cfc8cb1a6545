"""Text with headings to parts: each stretch of prose, code or table knows the headings above it."""

from __future__ import annotations

import re

from aps_rag_pipeline.content.markup import Block, markdown_blocks
from aps_rag_pipeline.records import Part, PartKind

#: Between the headings of a locator.
PATH = " > "
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.+?)\s*#*\s*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_LONGEST_TITLE = 200


class Sections:
    """Gathers parts in reading order. A part's locator is the path of headings above it, its title the last of them."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._trail: list[tuple[int, str]] = []
        self._prose: list[str] = []
        self._written = True

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels of the open sections, outermost first."""
        return tuple(level for level, _ in self._trail)

    def heading(self, level: int, title: str) -> None:
        title = " ".join(title.split())[:_LONGEST_TITLE]
        if not title:
            return
        self.close(level)
        self._trail.append((level, title))
        self._written = False

    def close(self, level: int) -> None:
        """End the sections of this level and below. A heading with nothing under it is kept as a line of text."""
        self._flush()
        while self._trail and self._trail[-1][0] >= level:
            if not self._written:
                self._add("prose", self._trail[-1][1])
            self._trail.pop()

    def prose(self, text: str) -> None:
        if text.strip():
            self._prose.append(text.strip("\n"))

    def code(self, text: str) -> None:
        self._flush()
        self._add("code", text)

    def table(self, text: str, caption: str = "") -> None:
        self._flush()
        self._add("table", text, caption)

    def finish(self) -> tuple[Part, ...]:
        self.close(0)
        return tuple(self.parts)

    def _flush(self) -> None:
        text, self._prose = "\n\n".join(self._prose), []
        if text:
            self._add("prose", text)

    def _add(self, kind: PartKind, text: str, title: str = "") -> None:
        if text.strip():
            path = [heading for _, heading in self._trail]
            self.parts.append(Part(kind, text, PATH.join(path), title or (path[-1] if path else "")))
            self._written = True


def from_blocks(blocks: list[Block]) -> tuple[Part, ...]:
    """Parts of an HTML page, as `markup` reads it."""
    sections = Sections()
    for block in blocks:
        if block.kind == "heading":
            sections.heading(block.level or 1, block.text)
        elif block.kind == "table":
            sections.table(block.text, block.title)
        elif block.kind == "code":
            sections.code(block.text)
        else:
            sections.prose(block.text)
    return sections.finish()


def from_markdown(text: str) -> tuple[Part, ...]:
    """Parts of a Markdown text."""
    sections = Sections()
    for block in markdown_blocks(text):
        if block.kind == "table":
            sections.table(block.text, block.title)
        elif block.kind == "code":
            sections.code(block.text)
        else:
            _markdown_prose(block.text, sections)
    return sections.finish()


def _markdown_prose(text: str, sections: Sections) -> None:
    lines = text.split("\n")
    pending: list[str] = []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        heading = _HEADING.match(line)
        underline = _UNDERLINE.match(below) if line.strip() and not (pending and pending[-1].strip()) else None
        if heading or underline:
            sections.prose("\n".join(pending))
            pending = []
        if heading:
            sections.heading(len(heading.group(1)), _TAG.sub("", heading.group(2)))
        elif underline:
            sections.heading(1 if underline.group(1)[0] == "=" else 2, line.strip())
        elif not (_UNDERLINE.match(line) and not pending):
            pending.append(line)
    sections.prose("\n".join(pending))
