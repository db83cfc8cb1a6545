"""A hit of a channel, and how the names of chunks, passages and records hang together."""

from __future__ import annotations

from typing import NamedTuple


class Found(NamedTuple):
    chunk_id: str
    source: str
    score: float

    @property
    def passage_id(self) -> str:
        return passage_of(self.chunk_id)


def passage_of(chunk_id: str) -> str:
    return chunk_id.rpartition(".")[0]


def key_of(passage_id: str) -> str:
    return passage_id.rpartition("#")[0]
