"""A deterministic encoder without weights, for tests and dry runs: texts that share words get near vectors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace

from aps_rag_pipeline.models.description import ModelDescription, ModelError
from aps_rag_pipeline.models.encoder import Encoder, Vectors
from aps_rag_pipeline.models.tokens import TokenIds, Tokens

PREFIX = "test:hash-"


class HashEncoder(Encoder):
    """Sums one pseudo-random direction per word. `name` is `test:hash-<dimensions>`; a text may have 256 words."""

    backend = "hash"

    def __init__(self, name: str, batch_size: int = 32) -> None:
        found = re.fullmatch(rf"{re.escape(PREFIX)}([1-9]\d{{0,3}})", name)
        if found is None:
            raise ModelError(f"{name!r}: the test model is called test:hash-<dimensions>, for example test:hash-64")
        description = ModelDescription(
            name=name,
            dimensions=int(found[1]),
            max_tokens=256,
            query_prefix="",
            passage_prefix="",
            pooling="mean",
            normalize=True,
            fingerprint=hashlib.blake2b(f"{name} 1".encode(), digest_size=16).hexdigest(),
        )
        tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
        tokenizer.normalizer = Lowercase()
        tokenizer.pre_tokenizer = Whitespace()
        super().__init__(description, _Words(tokenizer, description), batch_size)

    def embed(self, ids: TokenIds, mask: TokenIds) -> Vectors:
        size = self.description.dimensions
        rows = np.empty((len(ids), size), dtype=np.float32)
        for index, (row, kept) in enumerate(zip(ids, mask, strict=True)):
            words = [int(word) for word in row[kept == 1]] or [0]
            rows[index] = np.sum([_direction(word, size) for word in words], axis=0)
        return rows


class _Words(Tokens):
    """Counts like its tokenizer, of which every word is unknown, but tells words apart by their hash."""

    def ids(self, texts: Sequence[str], prefix: str) -> Iterator[TokenIds]:
        for text in texts:
            words = self.tokenizer.pre_tokenizer.pre_tokenize_str((prefix + text).lower())
            yield np.asarray([_word_id(word) for word, _ in words], dtype=np.int64)


def _word_id(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=7).digest(), "big")


@lru_cache(maxsize=1 << 15)
def _direction(word: int, size: int) -> Vectors:
    return np.random.default_rng(word).standard_normal(size, dtype=np.float32)
