"""A hit of a channel, and how the names of chunks, passages and records hang together."""

from __future__ import annotations

from typing import NamedTuple

from aps_rag_pipeline.records import KEY_PREFIX

_SOURCE_OF = {prefix: source for source, prefix in KEY_PREFIX.items()}


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


def source_of(key: str) -> str:
    """The kind of source of a record, passage or chunk."""
    return _SOURCE_OF.get(key.partition(":")[0], "")
