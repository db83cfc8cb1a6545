"""Putting a document together: headings, text, tables and pictures in reading order become parts and attachments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import Attachment, FieldValue, Link, Part, PartKind
from aps_rag_pipeline.sources.base import Blobs
from aps_rag_pipeline.sources.companions import media_type

#: Where a picture stands in running text. Private-use characters pass through every parser on the way.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_MAX_HEADING = 300
_BLANK_LINES = re.compile(r"\n\s*\n+")


@dataclass
class Partition:
    """What a file holds. `title` is the document's own, empty where it states none."""

    title: str = ""
    author: str = ""
    created_at: datetime | None = None
    modified_at: datetime | None = None
    parts: list[Part] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    fields: dict[str, FieldValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """Bytes that belong to a document: a picture, or a file embedded in it."""

    name: str
    data: bytes
    media_type: str = ""


class Assembly:
    """Gathers blocks in reading order. Text of one section is one part; tables and code are parts of their own."""

    def __init__(self, blobs: Blobs) -> None:
        self.parts: list[Part] = []
        self.attachments: list[Attachment] = []
        #: The first heading, for documents that state no title.
        self.first_heading = ""
        self._blobs = blobs
        self._marked: list[Picture] = []
        self._trail: list[tuple[int, str]] = []
        self._place = ""
        self._prose: list[str] = []
        self._bare = False  # the last heading has nothing below it yet
        self._seen: set[str] = set()

    def mark(self, picture: Picture) -> str:
        """A stretch of text that stands for a picture: where it comes along, the picture is attached."""
        self._marked.append(picture)
        return f"{_OPEN}{len(self._marked) - 1}{_CLOSE}"

    def heading(self, level: int, text: str) -> None:
        """Begin a section. A heading of a level ends all sections of that level and below."""
        numbers, text = _parted(text)
        text = " ".join(text.split())
        if not text:
            self._attach(numbers)
            return
        if len(text) > _MAX_HEADING:  # a paragraph dressed as a heading
            self.prose(text)
            self._attach(numbers)
            return
        if self._bare and level <= self._trail[-1][0]:
            self._keep_bare()
        self._flush()
        self.first_heading = self.first_heading or text
        while self._trail and self._trail[-1][0] >= level:
            self._trail.pop()
        self._trail.append((level, text))
        self._bare = True
        self._attach(numbers)

    def place(self, locator: str, title: str = "") -> None:
        """Begin a page or slide: its locator replaces the path of headings until the next one."""
        if self._bare:
            self._keep_bare()
        self._flush()
        self._place = locator
        self._trail = [(0, title)] if title else []
        self._bare = bool(title)

    def page(self, locator: str, text: str, title: str = "") -> None:
        """A page as one part, an empty one too: what is read from its picture stands behind it."""
        self._flush()
        self._place, self._trail, self._bare = locator, [(0, title)] if title else [], False
        self.parts.append(Part("prose", text, locator, title))

    def prose(self, text: str) -> None:
        numbers, text = _parted(clean(text))
        if text.strip():
            self._prose.append(text.strip())
            self._bare = False
        self._attach(numbers)

    def code(self, text: str) -> None:
        self._block("code", clean(text).strip("\n").rstrip(), "")

    def table(self, text: str, title: str = "") -> None:
        """A pipe table with its caption."""
        self._block("table", text, title)

    def picture(self, picture: Picture, page: int = 0) -> None:
        """Attach a picture behind the text so far; one that repeats (a logo on each slide) is attached once."""
        sha256 = self._blobs.put(picture.data)
        key = f"{sha256}:{page}"
        if key in self._seen:
            return
        self._seen.add(key)
        if self._bare:
            self._keep_bare()
        index = len(self.parts) if self._prose else len(self.parts) - 1
        kind = picture.media_type or media_type(picture.name, picture.data)
        self.attachments.append(Attachment(picture.name, kind, sha256, index, page, self._locator()))

    def enclose(self, name: str, inner: Partition) -> None:
        """Put the parts of an enclosed document behind what there is; `name` begins their locators."""
        self._flush()
        first = len(self.parts)
        for part in inner.parts:
            locator = f"{name}: {part.locator}" if part.locator else name
            self.parts.append(Part(part.kind, part.text, locator, part.title or inner.title))
        for found in inner.attachments:
            place = first + found.part if found.part >= 0 else len(self.parts) - 1
            self.attachments.append(
                Attachment(found.name, found.media_type, found.sha256, place, found.page, f"{name}: {found.locator}")
            )

    def finish(self) -> tuple[list[Part], list[Attachment]]:
        """The parts and attachments. A picture before any text belongs behind the first part."""
        if self._bare:
            self._keep_bare()
        self._flush()
        if not self.parts:
            return [], self.attachments
        placed = [
            a if a.part >= 0 else Attachment(a.name, a.media_type, a.sha256, 0, a.page, a.locator)
            for a in self.attachments
        ]
        return self.parts, placed

    def _block(self, kind: PartKind, text: str, title: str) -> None:
        numbers, text = _parted(text)
        title = " ".join(_MARK.sub("", title).split())
        if text.strip():
            self._flush()
            self._bare = False
            self.parts.append(Part(kind, text, self._locator(), title or self._title()))
        self._attach(numbers)

    def _attach(self, numbers: list[str]) -> None:
        for number in numbers:
            if int(number) < len(self._marked):
                self.picture(self._marked[int(number)])

    def _keep_bare(self) -> None:
        self._bare = False
        self._prose.append(self._trail[-1][1])

    def _flush(self) -> None:
        text = "\n\n".join(_BLANK_LINES.sub("\n\n", stretch) for stretch in self._prose)
        self._prose = []
        if text.strip():
            title = self._title()
            self.parts.append(Part("prose", text, self._locator(), title if title != text else ""))

    def _locator(self) -> str:
        return self._place or " > ".join(text for _, text in self._trail)

    def _title(self) -> str:
        return self._trail[-1][1] if self._trail else ""


def _parted(text: str) -> tuple[list[str], str]:
    """The numbers of the pictures marked in a text, and the text without the marks."""
    return _MARK.findall(text), _MARK.sub("", text)
