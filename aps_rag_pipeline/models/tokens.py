"""Counting in the model's own tokens, so that a text is never longer than what the model reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from aps_rag_pipeline.models.description import ModelDescription, ModelError

TokenIds = npt.NDArray[np.int64]
_BATCH = 1024


class Tokens:
    """The tokenizer of a model, with truncation and padding off.

    Counts are of what the model reads of a passage: passage prefix, text and special tokens. Safe to share by threads.
    """

    def __init__(self, tokenizer: Tokenizer, description: ModelDescription) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.max_tokens = description.max_tokens
        self._prefix = description.passage_prefix
        #: Tokens left for the text itself.
        self.room = self.max_tokens - self.count("")
        if self.room <= 0:
            raise ModelError(f"model {description.name!r} reads {self.max_tokens} tokens, all taken by its prefix")

    @classmethod
    def from_file(cls, file: Path, description: ModelDescription) -> Tokens:
        """Raises:
        ModelError: the file is no tokenizer.
        """
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"{file}: cannot be read as a tokenizer ({error})") from error
        return cls(tokenizer, description)

    def count(self, text: str) -> int:
        """Tokens the model reads for this passage."""
        return len(self.tokenizer.encode(self._prefix + text).ids)

    def counts(self, texts: Sequence[str]) -> list[int]:
        """`count` of each text, in order."""
        return [len(ids) for ids in self.ids(texts, self._prefix)]

    def fits(self, text: str) -> bool:
        """Whether the model reads the whole text."""
        return self.count(text) <= self.max_tokens

    def head(self, text: str) -> str:
        """The longest beginning of a text that fits, for callers that say so when they cut."""
        if self.fits(text):
            return text
        ends = [end for _, end in self.tokenizer.encode(text, add_special_tokens=False).offsets]
        keep = min(self.room, len(ends))
        # Tokens at a border can merge differently, so the cut is checked rather than trusted.
        while keep > 0 and not self.fits(text[: ends[keep - 1]]):
            keep -= 1
        return text[: ends[keep - 1]] if keep else ""

    def ids(self, texts: Sequence[str], prefix: str) -> Iterator[TokenIds]:
        """Token ids of each text with `prefix` before it, as int64 of its own length, in order."""
        for start in range(0, len(texts), _BATCH):
            batch = [prefix + text for text in texts[start : start + _BATCH]]
            for encoding in self.tokenizer.encode_batch_fast(batch):
                yield np.asarray(encoding.ids, dtype=np.int64)
