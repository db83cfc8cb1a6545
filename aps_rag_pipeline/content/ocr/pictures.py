"""From bytes to pictures that Tesseract reads well: within limits, dark on light, large enough."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from io import BytesIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.Image import Resampling

from aps_rag_pipeline.content.ocr.frames import LONGEST, Frame
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

#: Tesseract gains nothing above it (A4 at 460 dots an inch) and its time grows with the area.
MAX_READ_PIXELS = 20_000_000
_TIGHT, _MARGIN = 64, 20
#: Frames of an animation that are looked at; they mostly show the same text.
_ANIMATION_FRAMES = 4


def open_frames(data: bytes, limits: Limits) -> Iterator[Frame]:
    """The frames of a picture: all pages of a TIFF, some of an animation, else the one there is.

    Raises:
        UnreadableError: no picture, a broken one, or one with more pixels or pages than allowed.
    """
    with warnings.catch_warnings():
        # Pillow's own warning and error about bombs come at other sizes than the configured one, which is checked here.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        Image.MAX_IMAGE_PIXELS = None
        try:
            picture = Image.open(BytesIO(data))
            kind, count = picture.format or "", getattr(picture, "n_frames", 1)
            if kind in ("TIFF", "MPO") and count > limits.max_pages:
                raise UnreadableError(f"the picture has {count} pages, the limit is {limits.max_pages}", remedy=_RAISE)
            for index in _chosen(kind, count):
                picture.seek(index)
                _check_size(picture.size, limits)
                if min(picture.size) >= 2 * LONGEST:  # a JPEG can be decoded in a fraction of its size
                    picture.draft(picture.mode, _half(picture.size))
                picture.load()
                frame = Frame(picture)
                if count == 1:
                    del picture  # the largest thing in memory goes with the frame's last piece
                yield frame
                del frame
        except UnidentifiedImageError as error:
            raise UnreadableError("not a picture of a kind that can be read", remedy=_CONVERT) from error
        except (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError) as error:
            if "cannot find loader" in str(error):  # known by its first bytes alone
                raise UnreadableError(f"pictures of kind {kind} cannot be read", remedy=_CONVERT) from error
            raise UnreadableError(f"the picture is broken: {error}", remedy="export it anew") from error
        except MemoryError as error:
            raise UnreadableError("the picture needs more memory than there is", remedy=_RAISE) from error


_RAISE = "split it, or raise limits in facility.yaml"
_CONVERT = "save it as PNG"


def _chosen(kind: str, count: int) -> list[int]:
    if count <= 1:
        return [0]
    if kind == "TIFF":
        return list(range(count))
    if kind in ("MPO", "ICO", "ICNS"):
        return [0]  # the others are previews of the first
    step = max(1, count // _ANIMATION_FRAMES)
    return sorted({*range(0, count, step), count - 1})


def _check_size(size: tuple[int, int], limits: Limits) -> None:
    pixels = size[0] * size[1]
    if pixels > limits.max_pixels:
        raise UnreadableError(
            f"the picture has {size[0]} x {size[1]} pixels, the limit is {limits.max_pixels:,}", remedy=_RAISE
        )


def _half(size: tuple[int, int]) -> tuple[int, int]:
    factor = min(size) // LONGEST
    return size[0] // factor, size[1] // factor


def enlarged(image: Image.Image, factor: int, smooth: Resampling = Resampling.LANCZOS) -> Image.Image:
    """The picture `factor` times as large, as far as it stays below the size that Tesseract needs."""
    room = (MAX_READ_PIXELS / (image.width * image.height)) ** 0.5
    scale = min(float(factor), max(1.0, room))
    return image if scale == 1 else _scaled(image, scale, smooth)


def _scaled(image: Image.Image, scale: float, smooth: Resampling = Resampling.LANCZOS) -> Image.Image:
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, smooth)


def framed(image: Image.Image) -> Image.Image:
    """A small picture with room around it, without which Tesseract sees no line."""
    if min(image.size) >= _TIGHT:
        return image
    values, counts = np.unique(np.asarray(image).reshape(-1, 3), axis=0, return_counts=True)
    red, green, blue = (int(value) for value in values[counts.argmax()])
    return ImageOps.expand(image, _MARGIN, (red, green, blue))


def dark_on_light(image: Image.Image) -> Image.Image:
    """The picture, inverted where most of it is dark."""
    dark = float(np.median(np.asarray(image.convert("L")))) < 110
    return ImageOps.invert(image) if dark else image


def is_blank(image: Image.Image) -> bool:
    """Whether there is nothing to see, or too little for a letter."""
    return min(image.size) < 6 or int(np.ptp(np.asarray(image.convert("L")))) < 8
