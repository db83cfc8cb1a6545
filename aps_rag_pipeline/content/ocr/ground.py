"""Screens as black on white, whatever their colours: each pixel by how far it stands out from the ground around it.

Control screens put labels on tinted panels and values in alarm colours on boxes: what is light on dark here is dark on
light there, so the picture is neither inverted nor measured against one colour as a whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from aps_rag_pipeline.content.ocr.engine import Word

#: Colours told apart as grounds.
_COLOURS = 24
#: Half width and height, in pixels, of the neighbourhood whose most common colour is the ground: wider than a letter.
_REACH = (24, 12)
#: Contrast (0..255) below which a difference is not stretched to black: noise stays grey.
_FAINT = 40.0
#: Side of a square of one colour that no letter fills.
_STROKE = 10
_BLOCK = 4
_SAMPLE = 400_000
#: Pixels that are worked on at once, and rows that a band sees beyond its own.
_AT_ONCE = 3_000_000
_MARGIN = 40
_INK = 110
#: How far from its middle a dot is looked at.
_REACH_OF_DOT = 3
#: Share of a word's height within which a dot behind its box is its own, and above which no full stop stands.
_BEHIND, _BASE = 0.45, 0.6

_POINTS = re.compile(r"[.,:;]")

Grey = NDArray[np.uint8]
#: Where full stops stand, and the dots of colons: row and column of their middle, from the top down. Stippling has more
#: of them than a screen has letters.
Dots = list[tuple[int, int]]


def standing_out(image: Image.Image) -> tuple[Image.Image, Dots]:
    """Grey of the same size, ground white and what stands out from it black; the dots of bitmap fonts, made square."""
    width, height = image.size
    if width * height <= _AT_ONCE:
        grey, dots = _band(image)
        return Image.fromarray(grey), sorted(dots)
    # What is worked out for each pixel takes many times the picture: a large one is done band by band.
    whole, seen = Image.new("L", image.size), []
    step = max(_AT_ONCE // width, 8 * _MARGIN)
    for top in range(0, height, step):
        first = max(top - _MARGIN, 0)
        grey, dots = _band(image.crop((0, first, width, min(top + step + _MARGIN, height))))
        whole.paste(Image.fromarray(grey[top - first : top - first + step]), (0, top))
        seen += [(row + first, column) for row, column in dots if top <= row + first < top + step]
    return whole, sorted(seen)


def _band(image: Image.Image) -> tuple[Grey, Dots]:
    pixels = np.asarray(image, dtype=np.int16)
    cells = np.asarray(image.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))
    difference = np.abs(pixels - _ground(pixels, cells)).max(axis=2).astype(np.uint8)
    difference[_solid(cells)] = 0
    ink = np.clip(difference * (255 / np.maximum(_strongest(difference) * 0.9, _FAINT)), 0, 255)
    return _square_dots((255 - ink).astype(np.uint8))


def pointed(word: Word, dots: Sequence[tuple[int, int]]) -> Word:
    """The word with the full stops and colons that were seen in the picture, where it has as many such signs; a full
    stop at its end that was not read at all is added. `dots` are in order, those of the picture from the top down."""
    right, bottom = word.left + word.width, word.top + word.height
    behind = right + max(2.0, _BEHIND * word.height)
    beside = dots[bisect_left(dots, (word.top - 1, 0)) : bisect_left(dots, (bottom + 2, 0))]
    near = sorted((column, row) for row, column in beside if word.left - 1 <= column <= behind)
    signs: list[str] = []
    last = -9
    for column, row in near:
        if column - last <= 1 and signs:
            signs[-1] = ":"  # two dots, one above the other
        elif column <= right + 1 or row >= word.top + _BASE * word.height:
            signs.append(".")
        last = column
    read = len(_POINTS.findall(word.text))
    if signs and len(signs) == read + 1 and signs[-1] == "." and last >= right - 2 and word.text[-1:].isalnum():
        word = word._replace(text=f"{word.text}.", width=max(word.width, last + 2 - word.left))
    elif not signs or len(signs) != read:
        return word
    seen = iter(signs)
    return word._replace(text=_POINTS.sub(lambda point: _point(point[0], next(seen)), word.text))


def _point(read: str, seen: str) -> str:
    # One dot of a colon may touch a letter and so be missed: a colon that was read stays one.
    return ":" if ":" in (read, seen) else seen if read == "," else read


def _ground(pixels: NDArray[np.int16], cells: Grey) -> NDArray[np.int16]:
    """The most common colour around each pixel; `cells` says which of a few colours each pixel is nearest to."""
    most = np.zeros(cells.shape, np.uint8)
    chosen = np.zeros(cells.shape, np.uint8)
    colours = np.zeros((256, 3), np.int16)
    step = max(1, cells.size // _SAMPLE)
    sampled, sample = cells.ravel()[::step], pixels.reshape(-1, 3)[::step].astype(np.int32)
    codes = (sample[:, 0] << 16) | (sample[:, 1] << 8) | sample[:, 2]
    for cell in np.flatnonzero(np.bincount(sampled, minlength=256)):
        found, counts = np.unique(codes[sampled == cell], return_counts=True)
        colour = int(found[counts.argmax()])
        colours[cell] = (colour >> 16, colour >> 8 & 255, colour & 255)
        mask = Image.fromarray((cells == cell).astype(np.uint8) * 255)
        share = np.asarray(mask.filter(ImageFilter.BoxBlur(_REACH)))
        more = share > most
        most[more], chosen[more] = share[more], cell
    ground: NDArray[np.int16] = colours[chosen]
    return ground


def _solid(cells: Grey) -> NDArray[np.bool_]:
    """Pixels inside a square of one colour that is wider than a stroke of a letter: the edges of panels are no text."""
    changes = np.zeros(cells.shape, np.bool_)
    changes[:, 1:] |= cells[:, 1:] != cells[:, :-1]
    changes[1:] |= cells[1:] != cells[:-1]
    # A change lies between a pixel and the one before it: a square is free of them from its second row and column on.
    flat = _around(changes, _STROKE - 1, 0) == 0
    return _around(flat, 0, _STROKE - 1) > 0


def _around(marked: NDArray[np.bool_], after: int, before: int) -> NDArray[np.int32]:
    """How many marked pixels lie up to `before` above and left of each, and up to `after` below and right of it."""
    height, width = marked.shape
    sums = np.zeros((height + 1, width + 1), np.int32)
    np.cumsum(np.cumsum(marked, axis=0, dtype=np.int32), axis=1, out=sums[1:, 1:])
    rows, columns = np.arange(height), np.arange(width)
    top, bottom = np.maximum(rows - before, 0), np.minimum(rows + after + 1, height)
    left, right = np.maximum(columns - before, 0), np.minimum(columns + after + 1, width)
    below, above = sums[bottom], sums[top]
    counts: NDArray[np.int32] = below[:, right] - below[:, left] - above[:, right] + above[:, left]
    return counts


def _strongest(difference: Grey) -> NDArray[np.float32]:
    """The largest difference near each pixel, smoothly."""
    height, width = difference.shape
    padded = np.pad(difference, ((0, -height % _BLOCK), (0, -width % _BLOCK)))
    blocks = padded.reshape(padded.shape[0] // _BLOCK, _BLOCK, padded.shape[1] // _BLOCK, _BLOCK).max(axis=(1, 3))
    small = Image.fromarray(blocks).filter(ImageFilter.MaxFilter(5)).filter(ImageFilter.BoxBlur(2))
    large = small.resize((padded.shape[1], padded.shape[0]), Image.Resampling.BILINEAR)
    return np.asarray(large, dtype=np.float32)[:height, :width]


def _square_dots(grey: Grey) -> tuple[Grey, Dots]:
    """The crosses by which the fixed fonts of X draw full stops and colons, as squares.

    Tesseract takes the cross for a comma, two of them for a semicolon: no PV name would survive.
    """
    ink = np.pad(grey < _INK, _REACH_OF_DOT)
    height, width = grey.shape
    out = grey.copy()
    dots: Dots = []
    for tall, square in ((0, (-1, 1, 0, 2)), (1, (-1, 2, -1, 2))):  # the arms are one row, or two
        first, last, left, right = square
        for row, column in zip(*np.nonzero(_crosses(ink, height, width, tall)), strict=True):
            dots.append((int(row), int(column)))
            out[row - 1 : row + tall + 2, column - 1 : column + 2] = 255
            out[row + first : row + last, column + left : column + right] = grey[row, column]
    return out, dots


def _crosses(ink: NDArray[np.bool_], height: int, width: int, tall: int) -> NDArray[np.bool_]:
    """Middles of crosses three pixels wide and `tall` + 3 high that stand by themselves."""

    def at(down: int, right: int) -> NDArray[np.bool_]:
        down, right = down + _REACH_OF_DOT, right + _REACH_OF_DOT
        return ink[down : down + height, right : right + width]

    cross = at(-1, 0) & at(tall + 1, 0)
    for row in range(tall + 1):
        cross &= at(row, 0) & at(row, 1) & at(row, -1)
    for row, column in ((-2, 0), (-1, 1), (-1, -1), (tall + 1, 1), (tall + 1, -1), (tall + 2, 0)):
        cross &= ~at(row, column)
    beside = [at(0, side) | at(tall, side) for side in (-2, 2)]
    cross &= ~(beside[0] & beside[1])  # one side may touch a letter
    return cross
