"""ELCode, the bulletin-board markup of ELOG, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CODE = re.compile(r"\[code\](.*?)\[/code\]", re.IGNORECASE | re.DOTALL)
_TABLE = re.compile(r"\[table[^\]\n]{0,200}\](.*?)\[/table\]", re.IGNORECASE | re.DOTALL)
_QUOTE = re.compile(r"\[quote(?:=\"?([^\]\"\n]{0,200})\"?)?\](.*?)\[/quote\]", re.IGNORECASE | re.DOTALL)
_PICTURE = re.compile(r"\[img[^\]\n]{0,100}\]\s*([^\[\]\s]{1,2000})\s*\[/img\]", re.IGNORECASE)
_LINK = re.compile(r"\[(url|email)=\"?([^\]\"\n]{1,2000})\"?\](.*?)\[/\1\]", re.IGNORECASE | re.DOTALL)
_BARE_LINK = re.compile(r"\[(url|email)\]([^\[\]\n]{1,2000})\[/\1\]", re.IGNORECASE)
_HEADING = re.compile(r"\[h([1-3])\](.*?)\[/h\1\]", re.IGNORECASE | re.DOTALL)
_ITEM = re.compile(r"[ \t]*\[\*\][ \t]*", re.IGNORECASE)
_OTHER = re.compile(
    r"\[/?(?:b|i|u|s|tt|sub|sup|center|left|right|justify|list(?:=\w)?|line\d*|color=[^\]\n]{1,40}|color"
    r"|size=[^\]\n]{1,20}|size|font=[^\]\n]{1,60}|font|anchor[^\]\n]{0,60})\]",
    re.IGNORECASE,
)
_ATTACHED = re.compile(r"elog:/?/?(\d{1,3})", re.IGNORECASE)


def elcode_to_markdown(text: str, attachments: Sequence[str]) -> str:
    """ELCode as Markdown. `elog:/2` is the second of the entry's own `attachments`."""
    pieces: list[str] = []
    end = 0
    for match in _CODE.finditer(text):
        pieces += [_prose(text[end : match.start()], attachments), f"\n```\n{match[1].strip(chr(10))}\n```\n"]
        end = match.end()
    return "".join([*pieces, _prose(text[end:], attachments)])


def _prose(text: str, attachments: Sequence[str]) -> str:
    def own(target: str) -> str:
        found = _ATTACHED.fullmatch(target)
        number = int(found[1]) if found and target.lower().startswith("elog:/") else 0
        return attachments[number - 1] if 0 < number <= len(attachments) else target

    text = _TABLE.sub(lambda match: _table(match[1]), text)
    text = _PICTURE.sub(lambda match: f"![]({own(match[1])})", text)
    text = _LINK.sub(lambda match: f"[{match[3].strip()}]({own(match[2].strip())})", text)
    text = _BARE_LINK.sub(lambda match: own(match[2].strip()), text)
    text = _HEADING.sub(lambda match: f"\n{'#' * int(match[1])} {match[2].strip()}\n", text)
    text = _QUOTE.sub(lambda match: _quote(match[1] or "", match[2]), text)
    return _OTHER.sub("", _ITEM.sub("- ", text))


def _table(inside: str) -> str:
    """Rows parted by `|-`, cells by `|`, as a pipe table."""
    rows = [[" ".join(cell.split()) for cell in row.strip().split("|")] for row in re.split(r"\n?\s*\|-", inside)]
    rows = [row for row in rows if any(row)]
    if not rows:
        return ""
    width = max(map(len, rows))
    lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in rows]
    return "\n" + "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]]) + "\n"


def _quote(who: str, inside: str) -> str:
    said = f"{who} wrote:\n" if who else ""
    return "\n" + "\n".join(f"> {line}" for line in (said + inside.strip()).split("\n")) + "\n"
