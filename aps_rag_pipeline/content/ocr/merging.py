"""Words of several readings of one picture → one reading: at each place the one that Tesseract is surest of."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from aps_rag_pipeline.content.ocr.engine import Word

#: Share of the smaller box by which two readings are of the same place.
_SAME = 0.5
#: What it counts, in confidence, that another reading says the same.
_AGREED = 30.0
#: What it costs to hold a sign that no name or reading has at that place, where another reading lacks it.
_DOUBTED = 50.0
_ODD = re.compile(r"\$\d|\$-|[‘’“”]|\w;\w|^[\[(|][\w.\-]+$|^[\w.\-]+[\])|]$")


def scaled(words: list[Word], factor: float) -> list[Word]:
    """Words read from a picture enlarged by `factor`, with their boxes in the picture itself."""
    if factor == 1:
        return words
    return [
        word._replace(
            left=round(word.left / factor),
            top=round(word.top / factor),
            width=max(1, round(word.width / factor)),
            height=max(1, round(word.height / factor)),
        )
        for word in words
    ]


class Place(NamedTuple):
    """What the surest reading says at one place; by number which readings saw something there, and whether another of
    them says the same."""

    words: list[Word]
    seen_by: frozenset[int]
    agreed: bool


def merged(readings: list[list[Word]]) -> list[Place]:
    """Each place of the picture once, with its words from left to right."""
    found: list[Place] = []
    for place in _places(readings):
        said = {number: sorted(words, key=lambda word: word.left) for number, words in place.items()}
        texts = Counter(_text(words) for words in said.values())
        best = max(said.values(), key=lambda words: _weight(words, texts[_text(words)] > 1))
        found.append(Place(best, frozenset(said), texts[_text(best)] > 1))
    return found


def mean(words: list[Word]) -> float:
    """Confidence of some words together, by their length."""
    letters = sum(len(word.text) for word in words)
    return sum(word.confidence * len(word.text) for word in words) / letters if letters else 0.0


def _weight(words: list[Word], agreed: bool) -> float:
    doubted = any(_ODD.search(word.text) for word in words)
    return mean(words) + (_AGREED if agreed else 0) - (_DOUBTED if doubted else 0)


def _text(words: list[Word]) -> str:
    return " ".join(word.text for word in words)


def _places(readings: list[list[Word]]) -> Iterator[dict[int, list[Word]]]:
    """Words by reading, grouped where their boxes overlap."""
    items = sorted(
        ((number, word) for number, words in enumerate(readings) for word in words), key=lambda item: item[1].top
    )
    parent = list(range(len(items)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    open_items: list[int] = []
    for index, (number, word) in enumerate(items):
        open_items = [other for other in open_items if items[other][1].top + items[other][1].height > word.top]
        for other in open_items:
            if items[other][0] != number and _share(items[other][1], word) > _SAME:
                parent[root(index)] = root(other)
        open_items.append(index)
    places: dict[int, dict[int, list[Word]]] = {}
    for index, (number, word) in enumerate(items):
        places.setdefault(root(index), {}).setdefault(number, []).append(word)
    yield from places.values()


def _share(one: Word, other: Word) -> float:
    width = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
    height = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
    if width <= 0 or height <= 0:
        return 0.0
    return width * height / max(1, min(one.width * one.height, other.width * other.height))


def rows(words: list[Word]) -> list[list[Word]]:
    """Words by row across the whole picture, each from left to right: a label and its value stand side by side."""
    found: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.top + word.height / 2):
        middle = word.top + word.height / 2
        last = found[-1] if found else []
        if last and middle - statistics.fmean(w.top + w.height / 2 for w in last) < word.height / 2:
            last.append(word)
        else:
            found.append([word])
    return [sorted(row, key=lambda word: word.left) for row in found]
