"""Credentials that people left in their texts, replaced before anything is indexed.

Three kinds are known: blocks of private keys, tokens of known shape, and values that stand where a password stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from aps_rag_pipeline.content.credentials.places import spoken
from aps_rag_pipeline.content.credentials.shapes import tokens
from aps_rag_pipeline.content.credentials.spans import Span, merged

MASK = "[masked credential]"


def mask(text: str) -> tuple[str, int]:
    """The text with every credential replaced by `MASK`, and how many were. Masking a masked text changes nothing."""
    total = 0
    # A mask can uncover what it stood between ("pw: a / b"), so this is repeated until there is nothing more. It ends:
    # every round replaces characters that are no mask.
    while True:
        pieces, count = [], 0
        for piece in text.split(MASK):
            masked, found = _mask_piece(piece)
            pieces.append(masked)
            count += found
        if not count:
            return text, total
        text, total = MASK.join(pieces), total + count


def mask_configured(text: str, secrets: Iterable[str]) -> tuple[str, int]:
    """Replace the facility's own secrets (passwords of its settings) wherever they stand; shorter than 4 is ignored."""
    total = 0
    # Longest first: one secret may begin with another.
    for secret in sorted({s for s in secrets if len(s.strip()) >= 4}, key=len, reverse=True):
        pieces = [piece.split(secret) for piece in text.split(MASK)]
        total += sum(len(piece) - 1 for piece in pieces)
        text = MASK.join(MASK.join(piece) for piece in pieces)
    return text, total


def mask_all(text: str, secrets: Iterable[str]) -> tuple[str, int]:
    """`mask_configured` and `mask` together."""
    text, configured = mask_configured(text, secrets)
    text, found = mask(text)
    return text, configured + found


def _mask_piece(text: str) -> tuple[str, int]:
    spans = [*_key_blocks(text), *tokens(text), *spoken(text)] if text else []
    if not spans:
        return text, 0
    found = merged(spans)
    pieces, end = [], 0
    for start, stop in found:
        pieces += [text[end:start], MASK]
        end = stop
    return "".join([*pieces, text[end:]]), len(found)


# -- whole blocks

_BLOCK_START = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d")
_BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-MAC:[ \t]*[0-9a-fA-F]+")
#: A line of a key whose end was cut off: armour headers, Base64 or nothing (quoted or indented, as in mails and code).
_BLOCK_LINE = re.compile(r"[\s>|\"'+\\n]*(?:[A-Za-z0-9+/=]{16,}|[A-Za-z0-9+/]+=*|[A-Z][A-Za-z-]+: .*)?[\s\"'+\\n]*")
_BLOCK_LIMIT = 20_000


def _key_blocks(text: str) -> Iterator[Span]:
    if "PRIVATE KEY" not in text and "PuTTY-User-Key-File" not in text:
        return
    position = 0
    while (start := _BLOCK_START.search(text, position)) is not None:
        limit = min(len(text), start.end() + _BLOCK_LIMIT)
        following = _BLOCK_START.search(text, start.end(), limit)
        limit = following.start() if following else limit
        end = _BLOCK_END.search(text, start.end(), limit)
        position = end.end() if end else _end_of_cut_block(text, start.end(), limit)
        yield start.start(), position


def _end_of_cut_block(text: str, position: int, limit: int) -> int:
    end = position
    while position < limit:
        stop = text.find("\n", position, limit)
        stop = limit if stop < 0 else stop
        if _BLOCK_LINE.fullmatch(text, position, stop) is None:
            break
        if text[position:stop].strip():
            end = stop
        position = stop + 1
    return end
