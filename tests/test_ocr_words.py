"""What is made of Tesseract's words: full stops as they are drawn, and which of several readings is believed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aps_rag_pipeline.content.ocr import engine, ground, merging, reading


def word(text: str, confidence: float = 96, height: int = 12) -> engine.Word:
    return engine.Word(text, confidence, 10, 20, 6 * len(text), height, (1, 1, 1))


#: A full stop and a comma of two fixed fonts of X.
STOPS = ((".#.", "###", ".#."), (".#.", "###", "###", ".#."))
COMMAS = (("##.", ".#.", "#.."), ("###", "###", "..#", "##."))


def drawn(sign: tuple[str, ...]) -> Image.Image:
    cells = np.full((30, 40), 187, np.uint8)
    for row, line in enumerate(sign):
        cells[12 + row, 18:21] = [40 if cell == "#" else 187 for cell in line]
    return Image.fromarray(cells).convert("RGB")


@pytest.mark.parametrize("stop", STOPS)
def test_the_full_stops_of_fixed_fonts_are_made_square(stop: tuple[str, ...]) -> None:
    grey, dots = ground.standing_out(drawn(stop))
    assert dots == [(13, 19)]
    dark = np.asarray(grey) < 128
    rows, columns = np.nonzero(dark)
    assert dark[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all()


@pytest.mark.parametrize("comma", COMMAS)
def test_commas_are_no_full_stops(comma: tuple[str, ...]) -> None:
    assert ground.standing_out(drawn(comma))[1] == []


@pytest.mark.parametrize(
    ("read", "dots", "said"),
    [
        ("changes,", [(30, 56)], "changes."),
        ("changes", [(30, 54)], "changes."),  # behind the box, on the line
        ("changes", [(30, 60)], "changes"),  # the next word's
        ("changes", [(21, 54)], "changes"),  # too high for a full stop
        ("a;b", [(24, 16), (29, 16)], "a:b"),
        ("S:B", [(24, 16), (29, 16), (31, 29)], "S:B."),
        ("1,5", [], "1,5"),
    ],
)
def test_full_stops_are_what_the_picture_shows(read: str, dots: list[tuple[int, int]], said: str) -> None:
    assert ground.pointed(word(read), dots).text == said


class Looked(list[tuple[int, int]]):
    """Dots of which is counted how many are looked at."""

    looks = 0

    def __getitem__(self, which: Any) -> Any:
        found = super().__getitem__(which)
        self.looks += len(found) if isinstance(which, slice) else 1
        return found

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.looks += len(self)
        return super().__iter__()


def test_a_stippled_screen_costs_no_look_at_each_of_its_dots_for_each_word() -> None:
    stippled = np.full((1500, 2000), 200, np.uint8)
    stippled[1::4, 61::4] = stippled[2::4, 61::4] = stippled[3::4, 61::4] = 20
    stippled[2::4, 60::4] = stippled[2::4, 62::4] = 20
    stippled[:, 1990:] = stippled[:40] = stippled[1490:] = 200
    stippled[29:32, 16] = stippled[30, 15:18] = 20  # the one full stop of the word
    _, dots = ground.standing_out(Image.fromarray(stippled).convert("RGB"))
    assert len(dots) > 100_000
    assert dots == sorted(dots)
    looked = Looked(dots)
    assert ground.pointed(word("a,b"), looked).text == "a.b"
    assert ground.pointed(word("1,5")._replace(top=700), looked).text == "1,5"
    assert 0 < looked.looks < len(dots) / 20


@pytest.mark.parametrize(
    ("seen", "by", "agreed", "kept"),
    [
        (word("-36.0", 89, 6), {1}, False, False),  # a wrong digit looks like a right one
        (word("-36.0", 70, 6), {1, 2}, True, True),
        (word("-36.0", 89, 12), {1}, False, True),
        (word("1-20:0", 89, 12), {1}, False, False),
        (word("12:30:00", 89, 12), {1}, False, True),
        (word("Hinutes", 84, 6), {1}, False, False),
        (word("Minutes", 92, 6), {1}, False, True),
        (word("Minutes", 52, 6), {0, 1}, False, True),
        (word("S35:BM", 20, 6), {1}, False, True),
        (word("--", 55, 12), {0, 1}, True, False),
    ],
)
def test_what_one_reading_alone_found_must_be_sure(seen: engine.Word, by: set[int], agreed: bool, kept: bool) -> None:
    place = merging.Place([seen], frozenset(by), agreed)
    assert (seen.confidence >= reading._least(seen, place)) == kept
