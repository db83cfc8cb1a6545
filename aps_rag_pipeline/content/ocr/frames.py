"""A picture as it was decoded, seen piece by piece as upright, opaque RGB of the size that Tesseract reads best.

Decoded, a large picture takes half a gigabyte; so nothing is ever made of it as a whole.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

#: Longest side, in pixels, of what Tesseract is given at once.
LONGEST = 4400
#: Pixels that are copied at once.
_AT_ONCE = 2_000_000
_GLANCE = 1000
#: How far the filter that makes a picture smaller looks, in pixels of the smaller one.
_LANCZOS = 3
_DEEP = frozenset({"I", "F", "I;16", "I;16B", "I;16L", "I;16N"})
#: By EXIF orientation: how the stored picture is turned, and whether its sides are swapped and it is mirrored across
#: and down by that.
_TURNS: dict[int, tuple[Image.Transpose, bool, bool, bool]] = {
    2: (Image.Transpose.FLIP_LEFT_RIGHT, False, True, False),
    3: (Image.Transpose.ROTATE_180, False, True, True),
    4: (Image.Transpose.FLIP_TOP_BOTTOM, False, False, True),
    5: (Image.Transpose.TRANSPOSE, True, False, False),
    6: (Image.Transpose.ROTATE_270, True, False, True),
    7: (Image.Transpose.TRANSVERSE, True, True, True),
    8: (Image.Transpose.ROTATE_90, True, True, False),
}

Box = tuple[int, int, int, int]


class Frame:
    """One frame of a picture; `size` and boxes (left, top, right, bottom) are in pixels of the upright picture."""

    def __init__(self, image: Image.Image) -> None:
        self._image: Image.Image | None = image
        self._turn = _turn_of(image)
        self.size = image.size[::-1] if self._turn is not None and self._turn[1] else image.size
        self._range = self._values() if image.mode in _DEEP else (0.0, 255.0)
        sample = self._glance()
        self._ground = _ground_of(sample)
        #: Whether it is a scanned sheet rather than a screen.
        self.is_page = self._is_page(sample)

    def pieces(self) -> Iterator[tuple[int, int, Image.Image]]:
        """The frame in pieces that Tesseract can read, cut where least is drawn; each with its left and top in a
        picture that is made smaller where even its short side is longer than is needed.

        A page that was scrolled through or a strip of plots keeps its size, and with it its letters. What was decoded
        is let go with the last piece.
        """
        width, height = self.size
        upright = height >= width
        scale = min(1.0, LONGEST / min(width, height))
        for start, end in self._cuts(upright, round(LONGEST / scale)):
            box = (0, start, width, end) if upright else (start, 0, end, height)
            piece = self._upright(box, scale)
            if end == max(width, height):
                self._image = None
            yield round(box[0] * scale), round(box[1] * scale), piece
            del piece  # before the next one is made

    def _cuts(self, upright: bool, longest: int) -> Iterator[tuple[int, int]]:
        length = max(self.size)
        busy = self._busy(upright) if length > longest * 1.5 else np.zeros(0, np.float32)
        start = 0
        while start < length:
            whole = length - start <= longest or not busy.size
            end = length if whole else _quiet(busy, start + longest // 2, start + longest)
            yield start, end
            start = end

    def _busy(self, upright: bool) -> NDArray[np.float32]:
        """How much changes within each row (or column)."""
        width, height = self.size
        length, across = (height, width) if upright else (width, height)
        step = max(1, _AT_ONCE // across)
        found = []
        for start in range(0, length, step):
            end = min(start + step, length)
            box = (0, start, width, end) if upright else (start, 0, end, height)
            grey = np.asarray(self._upright(box, 1.0).convert("L")).astype(np.int16)
            axis = 1 if upright else 0
            found.append(np.abs(np.diff(grey, axis=axis)).sum(axis=axis, dtype=np.float32))
        return np.concatenate(found)

    def _upright(self, box: Box, scale: float) -> Image.Image:
        if self._turn is None:
            return self._scaled(box, scale)
        turn, swapped, across, down = self._turn
        left, top, right, bottom = (box[1], box[0], box[3], box[2]) if swapped else box
        width, height = self._stored.size
        if across:
            left, right = width - right, width - left
        if down:
            top, bottom = height - bottom, height - top
        return self._scaled((left, top, right, bottom), scale).transpose(turn)

    def _scaled(self, box: Box, scale: float) -> Image.Image:
        """A part of the stored picture as opaque RGB, made smaller band by band as if it were all at once."""
        left, top, right, bottom = box
        if scale == 1 and (right - left) * (bottom - top) <= _AT_ONCE:
            whole = (right - left, bottom - top) == self._stored.size
            return self._flat(self._stored if whole else self._stored.crop(box))
        width, height = max(1, round((right - left) * scale)), max(1, round((bottom - top) * scale))
        one = (bottom - top) / height
        margin = 0 if scale == 1 else math.ceil(_LANCZOS * one)
        step = max(1, int(_AT_ONCE / ((right - left) * one)))
        out = Image.new("RGB", (width, height))
        for row in range(0, height, step):
            last = min(row + step, height)
            first, end = top + row * one, top + last * one
            above, below = max(0, math.floor(first) - margin), min(self._stored.height, math.ceil(end) + margin)
            band = self._flat(self._stored.crop((left, above, right, below)))
            if scale != 1:
                seen = (0.0, first - above, float(right - left), end - above)
                band = band.resize((width, last - row), Image.Resampling.LANCZOS, box=seen)
            out.paste(band, (0, row))
        return out

    @property
    def _stored(self) -> Image.Image:
        if self._image is None:
            raise ValueError("the frame was let go")
        return self._image

    def _flat(self, part: Image.Image) -> Image.Image:
        """Opaque RGB of any mode."""
        if part.mode in _DEEP:
            low, high = self._range
            values = (np.asarray(part, dtype=np.float32) - low) * (255 / (high - low) if high > low else 0)
            return Image.fromarray(values.astype(np.uint8)).convert("RGB")
        if not part.has_transparency_data:
            return part.convert("RGB")
        drawn = part.convert("RGBA")
        flat = Image.new("RGB", part.size, self._ground)
        flat.paste(drawn, (0, 0), drawn)
        return flat

    def _values(self) -> tuple[float, float]:
        """The smallest and the largest value of a picture of more than 8 bits."""
        image = self._stored
        step = max(1, _AT_ONCE // image.width)
        bands = (
            np.asarray(image.crop((0, top, image.width, min(top + step, image.height))))
            for top in range(0, image.height, step)
        )
        ranges = [(float(band.min()), float(band.max())) for band in bands]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def _glance(self) -> Image.Image:
        """Some of its pixels, as they are."""
        width, height = self._stored.size
        less = max(1, max(width, height) // _GLANCE)
        size = (max(1, width // less), max(1, height // less))
        return self._stored.resize(size, Image.Resampling.NEAREST)

    def _is_page(self, sample: Image.Image) -> bool:
        """Whether it is upright, large and mostly one light ground."""
        width, height = self.size
        histogram = self._flat(sample).convert("L").histogram()
        return height >= width * 1.2 and width >= _GLANCE and sum(histogram[200:]) > 0.7 * sum(histogram)


def _turn_of(image: Image.Image) -> tuple[Image.Transpose, bool, bool, bool] | None:
    """How a picture is turned; damaged EXIF does not tell, and the picture is as good without."""
    try:
        return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except (struct.error, SyntaxError, OSError, ValueError, TypeError, LookupError):
        return None


def _ground_of(sample: Image.Image) -> str:
    """What is transparent gets a ground that its drawing stands out from."""
    if sample.mode in _DEEP or not sample.has_transparency_data:
        return "white"
    drawn = sample.convert("RGBA")
    grey = np.asarray(drawn.convert("RGB").convert("L"), dtype=np.float32)
    weight = np.asarray(drawn.getchannel("A"), dtype=np.float32)
    return "black" if float((grey * weight).sum() / max(1.0, float(weight.sum()))) > 128 else "white"


def _quiet(busy: NDArray[np.float32], first: int, last: int) -> int:
    """The middle of the quietest stretch there, and of several the last."""
    window = np.convolve(busy[first:last], np.ones(9, np.float32), "same")
    return last - 1 - int(window[::-1].argmin())
