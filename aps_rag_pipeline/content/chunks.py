"""Passages → chunks: what is embedded and indexed. Each begins with its record's header line and fits the model.

Lengths are counted in the embedding model's own tokens, so nothing is cut silently later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache

from semantic_text_splitter import TextSplitter
from tokenizers import Tokenizer

from aps_rag_pipeline.content.table_pieces import split_table, stretches

#: Raise it when the same passage would now give other chunks.
CHUNKS_VERSION = "chunks:2"

#: The header may take at most this share of a chunk; a longer title is shortened in it (never in the record).
_HEADER_SHARE = 0.3
_SHORT_KEY = 16


def text_hash(text: str) -> bytes:
    """Key under which a chunk's vector is kept."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def header(key: str, title: str, created_at: datetime | None, count: Callable[[str], int], limit: int) -> str:
    """Citation key, title and date in one line of at most `limit` tokens. The title gives way first; a key that is
    longer than that by itself (a deep path) loses its middle here, never in the record."""
    date = created_at.strftime("%Y-%m-%d") if created_at else ""
    title = " ".join(title.split())
    while True:
        line = " | ".join(piece for piece in (key, title, date) if piece)
        if count(line) <= limit or not (title or date or len(key) > _SHORT_KEY):
            return line
        if title:
            shorter = title[: int(len(title) * 0.75)].rstrip()
            title = shorter if len(shorter) > 8 else ""
        elif date:
            date = ""
        else:
            keep = int(len(key) * 0.4)
            key = f"{key[:keep]}…{key[-keep:]}"


class Chunker:
    """Splits passages for one model.

    Args:
        tokenizer: the model's own, without truncation and padding.
        limit: tokens of a chunk, the model's special tokens and passage prefix already taken off.
        overlap: tokens that neighbouring pieces of prose share.
    """

    def __init__(self, tokenizer: Tokenizer, limit: int, overlap: int) -> None:
        self._tokenizer = tokenizer
        self._serialised = tokenizer.to_str()
        self.limit = limit
        self.overlap = overlap
        self._splitter = lru_cache(maxsize=64)(self._make_splitter)

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def header(self, key: str, title: str, created_at: datetime | None) -> str:
        return header(key, title, created_at, self.count, int(self.limit * _HEADER_SHARE))

    def split(self, head: str, kind: str, text: str) -> list[str]:
        """Chunk texts of a passage: the header line, a line break, a piece of the passage."""
        whole = f"{head}\n{text}"
        # Far too long texts are not counted to find out that they are.
        if len(whole) < 16 * self.limit and self.count(whole) <= self.limit:
            return [whole]
        room = max(self.limit - self.count(head) - 1, self.limit // 4)
        pieces = self._around_tables(text, room) if kind in ("table", "mixed") else [text]
        return [f"{head}\n{fitting}" for piece in pieces for fitting in self._fit(head, piece, room)]

    def _around_tables(self, text: str, room: int) -> Iterator[str]:
        """Tables in pieces with their heads, other text as it is; what is short goes along with what follows."""
        held = ""
        for is_table, stretch in stretches(text):
            for piece in split_table(stretch, room, self.count, self._cut) if is_table else [stretch]:
                together = f"{held}\n\n{piece}" if held else piece
                if held and (len(together) > 16 * room or self.count(together) > room):
                    yield held
                    together = piece
                held = together
        yield held

    def _cut(self, text: str, room: int) -> list[str]:
        return self._splitter(max(room // 4 * 4, 8)).chunks(text)

    def _fit(self, head: str, text: str, room: int) -> list[str]:
        if self.count(f"{head}\n{text}") <= self.limit:
            return [text]
        # Rounded down, so that a handful of splitters serves every length of header.
        found: list[str] = []
        for piece in self._cut(text, room):
            # Tokens at a seam may merge otherwise in the whole than in the piece.
            found.extend([piece] if self.count(f"{head}\n{piece}") <= self.limit else self._fit(head, piece, room - 8))
        return found

    def _make_splitter(self, room: int) -> TextSplitter:
        overlap = min(self.overlap, room // 4)
        return TextSplitter.from_huggingface_tokenizer_str(self._serialised, room, overlap=overlap)
