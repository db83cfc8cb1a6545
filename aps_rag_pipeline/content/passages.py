"""Records → passages: self-contained parts of a record near one length, cut where the author made a break.

A record that fits is one passage. Otherwise sections keep together, tables stay apart with caption and header row in
each piece, code is cut at line ends, prose at paragraphs and sentences. Text read from a picture stands behind the part
that shows the picture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from semantic_text_splitter import TextSplitter

from aps_rag_pipeline.content.table_pieces import split_rows, split_table
from aps_rag_pipeline.records import Attachment, Part, Record

#: Raise it when the same record would now give other passages.
PASSAGES_VERSION = "passages:2"

_CHARACTERS_PER_WORD = 6.5
#: A new section starts a new passage once the current one is this full.
_FULL_ENOUGH = 0.35

PictureText = Callable[[Attachment], str]


@dataclass(frozen=True)
class Passage:
    """`kind` is the kind of its parts, `mixed` when a short record holds several. `text` is what a reader gets."""

    ordinal: int
    kind: str
    title: str
    locator: str
    text: str

    @property
    def hash(self) -> str:
        said = "\x00".join((self.kind, self.title, self.locator, self.text))
        return hashlib.blake2b(said.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class _Block:
    kind: str
    title: str
    locator: str
    text: str


def cut(record: Record, words: int, picture_text: PictureText = lambda _: "") -> list[Passage]:
    """The passages of a record, in reading order; none when it has no text at all.

    Args:
        words: length to stay below, as a count of words of average length.
        picture_text: what was read from an attachment, empty when nothing was.
    """
    limit = int(words * _CHARACTERS_PER_WORD)
    blocks = [block for block in _blocks(record, picture_text) if block.text.strip()]
    if not blocks and record.title.strip():
        blocks = [_Block("prose", "", "", record.title)]
    if sum(len(block.text) + len(block.title) for block in blocks) <= limit:
        groups = [blocks] if blocks else []
    else:
        groups = list(_group(blocks, limit))
    return [_passage(ordinal, group) for ordinal, group in enumerate(groups)]


@lru_cache(maxsize=32)
def _splitter(limit: int) -> TextSplitter:
    return TextSplitter((limit // 2, limit))


def _blocks(record: Record, picture_text: PictureText) -> Iterator[_Block]:
    behind: Mapping[int, list[Attachment]] = _by_part(record)
    for index, part in enumerate(record.parts):
        yield _Block(part.kind, part.title, part.locator, part.text)
        yield from _pictures(behind.get(index, []), picture_text, part)
    yield from _pictures(behind.get(-1, []), picture_text, None)


def _by_part(record: Record) -> dict[int, list[Attachment]]:
    behind: dict[int, list[Attachment]] = {}
    for attachment in record.attachments:
        place = attachment.part if 0 <= attachment.part < len(record.parts) else -1
        behind.setdefault(place, []).append(attachment)
    return behind


def _pictures(attachments: list[Attachment], picture_text: PictureText, part: Part | None) -> Iterator[_Block]:
    for attachment in attachments:
        text = picture_text(attachment)
        if text:
            page = f" page {attachment.page}" if attachment.page else ""
            locator = attachment.locator or f"{part.locator if part else ''} {attachment.name}{page}".strip()
            shown = text if attachment.page else f"[text in picture {attachment.name}] {text}"
            yield _Block("prose" if attachment.page else "transcript", part.title if part else "", locator, shown)


def _group(blocks: list[_Block], limit: int) -> Iterator[list[_Block]]:
    group: list[_Block] = []
    used = 0
    for block in (piece for whole in blocks for piece in _pieces(whole, limit)):
        length = len(block.text) + len(block.title) + 2
        alone = block.kind == "table" and length > limit * _FULL_ENOUGH
        new_section = bool(group) and block.title != group[-1].title and used > limit * _FULL_ENOUGH
        if group and (used + length > limit or alone or new_section):
            yield group
            group, used = [], 0
        group.append(block)
        used += length
        if alone:
            yield group
            group, used = [], 0
    if group:
        yield group


def _pieces(block: _Block, limit: int) -> Iterator[_Block]:
    room = max(limit - len(block.title) - 2, limit // 2)
    if len(block.text) <= room:
        yield block
        return
    if block.kind == "table":
        texts = [piece for rows in split_rows(block.text, room) for piece in _whole_or_columns(rows, room)]
    elif block.kind == "code":
        texts = [piece for lines in _split_lines(block.text, room) for piece in _whole_or_split(lines, room)]
    else:
        texts = _splitter(room).chunks(block.text)
    for number, text in enumerate(texts, 1):
        locator = f"{block.locator} ({number}/{len(texts)})".strip()
        yield _Block(block.kind, block.title, locator, text)


def _whole_or_columns(rows: str, limit: int) -> list[str]:
    # A reader takes a long row whole rather than in pieces; a cell that holds a report is too much.
    return [rows] if len(rows) <= 2 * limit else list(split_table(rows, limit, len, _stretches))


def _stretches(text: str, limit: int) -> list[str]:
    return _splitter(limit).chunks(text)


def _whole_or_split(text: str, limit: int) -> list[str]:
    # A single row or line may be longer than a passage (a base64 string, a cell that holds a report).
    return [text] if len(text) <= 2 * limit else _splitter(limit).chunks(text)


def _split_lines(text: str, limit: int) -> Iterator[str]:
    lines: list[str] = []
    used = 0
    for line in text.split("\n"):
        if lines and used + len(line) + 1 > limit:
            yield "\n".join(lines)
            lines, used = [], 0
        lines.append(line)
        used += len(line) + 1
    if any(line.strip() for line in lines):
        yield "\n".join(lines)


def _passage(ordinal: int, group: list[_Block]) -> Passage:
    kinds = {block.kind for block in group}
    titles = list(dict.fromkeys(block.title for block in group if block.title))
    lines: list[str] = []
    last = ""
    for block in group:
        if block.title and block.title != last:
            lines.append(block.title)
        last = block.title
        lines.append(block.text.strip("\n"))
    locators = list(dict.fromkeys(block.locator for block in group if block.locator))
    locator = locators[0] if len(locators) == 1 else f"{locators[0]} – {locators[-1]}" if locators else ""
    kind = kinds.pop() if len(kinds) == 1 else "mixed"
    return Passage(ordinal, kind, " / ".join(titles[:3]), locator, "\n\n".join(lines))
