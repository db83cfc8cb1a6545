"""ELCode, the bulletin-board markup of ELOG, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

_ITEM = re.compile(r"[ \t]{0,20}\[\*\][ \t]{0,20}", re.IGNORECASE)
_OTHER = re.compile(
    r"\[/?(?:b|i|u|s|tt|sub|sup|center|left|right|justify|list(?:=\w)?|line\d{0,3}|color=[^\[\]\n]{1,40}|color"
    r"|size=[^\[\]\n]{1,20}|size|font=[^\[\]\n]{1,60}|font|anchor[^\[\]\n]{0,60})\]",
    re.IGNORECASE,
)
_ATTACHED = re.compile(r"elog:/(\d{1,3})", re.IGNORECASE)

#: What is made of a pair of tags, from what the first says behind its name and from what stands between them.
Made = Callable[[str, str], str]


def elcode_to_markdown(text: str, attachments: Sequence[str]) -> str:
    """ELCode as Markdown. `elog:/2` is the second of the entry's own `attachments`."""
    blocks: list[str] = []

    def code(_: str, inside: str) -> str:
        blocks.append("\n```\n" + inside.strip("\n") + "\n```\n")
        return f"\x00{len(blocks) - 1}\x00"

    def own(target: str) -> str:
        target = target.strip().strip('"')
        found = _ATTACHED.fullmatch(target)
        number = int(found[1]) if found else 0
        return attachments[number - 1] if 0 < number <= len(attachments) else target

    def link(said: str, inside: str) -> str:
        return f"[{inside.strip()}]({own(said[1:])})" if said else own(inside)

    text = _pairs(text.replace("\x00", ""), "code", code)
    text = _pairs(text, "table", lambda _, inside: _table(inside))
    text = _pairs(text, "img", lambda _, inside: f"![]({own(inside)})")
    text = _pairs(_pairs(text, "url", link), "email", link)
    for level in (1, 2, 3):
        text = _pairs(text, f"h{level}", _heading(level))
    text = _pairs(text, "quote", lambda said, inside: _quote(said[1:].strip('"'), inside))
    text = _OTHER.sub("", _ITEM.sub("- ", text))
    return re.sub("\x00(\\d+)\x00", lambda match: blocks[int(match[1])], text)


def _pairs(text: str, tag: str, made: Made) -> str:
    """Each pair of tags through `made`; a tag without its other stays as it is. Linear in the text."""
    pieces: list[str] = []
    end = 0
    opened: re.Match[str] | None = None
    for match in _tags(tag).finditer(text):
        if not match[1]:
            opened = opened or match
        elif opened is not None:
            pieces += [text[end : opened.start()], made(opened[2] or "", text[opened.end() : match.start()])]
            end, opened = match.end(), None
    return "".join([*pieces, text[end:]])


@lru_cache(maxsize=16)
def _tags(tag: str) -> re.Pattern[str]:
    return re.compile(rf"\[(/?){tag}([=\s][^\[\]\n]{{0,2000}})?\]", re.IGNORECASE)


def _heading(level: int) -> Made:
    return lambda _, inside: f"\n{'#' * level} {inside.strip()}\n"


def _table(inside: str) -> str:
    """Rows parted by `|-`, cells by `|`, as a pipe table."""
    rows = [[" ".join(cell.split()) for cell in row.strip().split("|")] for row in inside.split("|-")]
    rows = [row for row in rows if any(row)]
    if not rows:
        return ""
    # Short rows are not filled up: a table may be made to have a million of them, and one of a million cells.
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n" + "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]) + "\n"


def _quote(who: str, inside: str) -> str:
    said = f"{who} wrote:\n" if who else ""
    return "\n" + "\n".join(f"> {line}" for line in (said + inside.strip()).split("\n")) + "\n"
