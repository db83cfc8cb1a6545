"""What every encoder does alike: prefixes, limits, batches by length, order, normalisation."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from aps_rag_pipeline.models.description import ModelDescription, TextTooLongError
from aps_rag_pipeline.models.tokens import TokenIds, Tokens

Vectors = npt.NDArray[np.float32]
#: Called with the number of texts that have been encoded since the last call.
Progress = Callable[[int], None]

#: As long as there are so few texts that a batch can be filled no more than this often for each thread, it is smaller.
_BATCHES_A_THREAD = 4
#: Texts that are tokenised and sorted together; bounds the memory besides the result.
WINDOW = 4096


class Encoder(ABC):
    """Turns texts into float32 vectors of length 1. Safe to share by threads.

    `backend` names what runs the model, for reports. `batches_at_once` is how many calls of `embed` pay side by side.
    """

    backend: str = ""

    def __init__(
        self, description: ModelDescription, tokens: Tokens, batch_size: int = 32, batches_at_once: int = 1
    ) -> None:
        self.description = description
        self.tokens = tokens
        self.batch_size = batch_size
        self.batches_at_once = batches_at_once

    def encode_passages(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Vectors of passages, shape (len(texts), dimensions), in the order of `texts`.

        Raises:
            TextTooLongError: a text has more tokens than the model reads.
        """
        return self._encode(texts, self.description.passage_prefix, progress)

    def stream_passages(self, texts: Iterable[str], progress: Progress | None = None) -> Iterator[Vectors]:
        """Vectors of any number of passages in bounded memory: blocks of at most `WINDOW` rows, in order.

        Raises:
            TextTooLongError: with an index counted from the block's first text.
        """
        rest = iter(texts)
        while block := list(itertools.islice(rest, WINDOW)):
            yield self.encode_passages(block, progress)

    def encode_query(self, query: str | Sequence[str]) -> Vectors:
        """The vector of a query, shape (dimensions,), or those of several, shape (n, dimensions).

        Raises:
            TextTooLongError: a query has more tokens than the model reads.
        """
        if isinstance(query, str):
            vector: Vectors = self._encode([query], self.description.query_prefix, None)[0]
            return vector
        return self._encode(query, self.description.query_prefix, None)

    @abstractmethod
    def embed(self, ids: TokenIds, mask: TokenIds) -> Vectors:
        """Vectors of a padded batch: `ids` and `mask` of shape (n, longest); any length of vector will do."""

    def _encode(self, texts: Sequence[str], prefix: str, progress: Progress | None) -> Vectors:
        result = np.empty((len(texts), self.description.dimensions), dtype=np.float32)
        for start in range(0, len(texts), WINDOW):
            self._encode_window(texts[start : start + WINDOW], prefix, start, result, progress)
        return result

    def _encode_window(
        self, texts: Sequence[str], prefix: str, start: int, result: Vectors, progress: Progress | None
    ) -> None:
        rows = list(self.tokens.ids(texts, prefix))
        for index, row in enumerate(rows):
            if len(row) > self.description.max_tokens:
                raise TextTooLongError(start + index, len(row), self.description.max_tokens, texts[index])
        # Neighbours in length share a batch, so that little of it is padding; the longest go first, so that none of the
        # threads has much left when the others are done.
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]), reverse=True)
        size = self._batch_size(len(order))
        batches = [order[first : first + size] for first in range(0, len(order), size)]

        def embed(batch: list[int]) -> Vectors:
            return self.embed(*_padded([rows[index] for index in batch]))

        for batch, vectors in zip(batches, self._mapped(embed, batches), strict=True):
            result[[start + index for index in batch]] = _unit(vectors)
            if progress is not None:
                progress(len(batch))

    def _batch_size(self, texts: int) -> int:
        """Few texts make smaller batches where several run side by side, so that none of the threads stands idle."""
        if self.batches_at_once == 1:
            return self.batch_size
        return max(min(self.batch_size, texts // (self.batches_at_once * _BATCHES_A_THREAD)), 1)

    def _mapped(self, embed: Callable[[list[int]], Vectors], batches: list[list[int]]) -> Iterator[Vectors]:
        if self.batches_at_once == 1 or len(batches) == 1:
            yield from map(embed, batches)
            return
        with ThreadPoolExecutor(self.batches_at_once, thread_name_prefix="batch") as threads:
            yield from threads.map(embed, batches)


def _padded(rows: list[TokenIds]) -> tuple[TokenIds, TokenIds]:
    shape = (len(rows), max(map(len, rows)))
    ids, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return ids, mask


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit
