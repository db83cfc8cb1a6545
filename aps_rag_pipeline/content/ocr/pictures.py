"""From bytes to pictures that Tesseract reads well: within limits, upright, opaque, dark on light, large enough."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from PIL.Image import Resampling

from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

#: Tesseract gains nothing above it (A4 at 460 dots an inch) and its time grows with the area.
MAX_READ_PIXELS = 20_000_000
#: Longest side, in pixels, of what it is given at once.
_LONGEST = 4400
_BAND = 512
_TIGHT, _MARGIN = 64, 20
#: Frames of an animation that are looked at; they mostly show the same text.
_ANIMATION_FRAMES = 4


def open_frames(data: bytes, limits: Limits) -> Iterator[Image.Image]:
    """The frames of a picture as upright, opaque RGB: all pages of a TIFF, some of an animation, else the one there is.

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
                picture.load()
                frame, turned = _reduced(picture), _is_turned(picture)
                if frame is not picture and count == 1:
                    picture.close()
                    del picture  # the largest thing in memory
                yield opaque(ImageOps.exif_transpose(frame) if turned else frame)
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


def _is_turned(image: Image.Image) -> bool:
    return bool(image.getexif().get(ExifTags.Base.Orientation, 1) != 1)


def _check_size(size: tuple[int, int], limits: Limits) -> None:
    pixels = size[0] * size[1]
    if pixels > limits.max_pixels:
        raise UnreadableError(
            f"the picture has {size[0]} x {size[1]} pixels, the limit is {limits.max_pixels:,}", remedy=_RAISE
        )


def _reduced(image: Image.Image) -> Image.Image:
    """The picture in a fraction of its size where it will be shrunk to less anyway: the copies that follow are the
    largest things in memory. What `exif_transpose` needs stays with it."""
    factor = min(image.size) // _LONGEST
    if factor < 2:
        return image
    told = image.getexif()
    if image.mode not in ("L", "LA", "RGB", "RGBA", "CMYK"):
        plain = "RGBA" if image.has_transparency_data else "L" if image.mode == "1" else "RGB"
        image = image if image.mode in ("I", "F", "I;16", "I;16B", "I;16L", "I;16N") else image.convert(plain)
    smaller = image.reduce(factor) if not image.mode.startswith("I;") else image
    smaller.info["exif"] = told.tobytes()
    return smaller


def opaque(image: Image.Image) -> Image.Image:
    """RGB of any mode. What is transparent gets a ground that its drawing stands out from."""
    if image.mode in ("I", "F", "I;16", "I;16B", "I;16L", "I;16N"):
        values = np.asarray(image, dtype=np.float32)
        low, high = float(values.min()), float(values.max())
        scaled = (values - low) * (255 / (high - low) if high > low else 0)
        return Image.fromarray(scaled.astype(np.uint8)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    sample = image.convert("RGBA") if max(image.size) < 2000 else image.reduce(max(image.size) // 1000).convert("RGBA")
    grey = np.asarray(sample.convert("RGB").convert("L"), dtype=np.float32)
    weight = np.asarray(sample.getchannel("A"), dtype=np.float32)
    drawn = float((grey * weight).sum() / max(1.0, float(weight.sum())))
    flat = Image.new("RGB", image.size, "black" if drawn > 128 else "white")
    for top in range(0, image.height, _BAND):  # a copy of it all in RGBA would be the largest thing in memory
        band = image.crop((0, top, image.width, min(top + _BAND, image.height))).convert("RGBA")
        flat.paste(band, (0, top), band)
    return flat


def shrunk(image: Image.Image) -> Image.Image:
    """The picture, made smaller where even its short side is longer than Tesseract needs."""
    short = min(image.size)
    return image if short <= _LONGEST else _scaled(image, _LONGEST / short)


def pieces(image: Image.Image) -> Iterator[tuple[int, int, Image.Image]]:
    """A long picture in pieces that Tesseract can read, cut where least is drawn; each with its left and top.

    A page that was scrolled through or a strip of plots keeps its size, and with it its letters.
    """
    width, height = image.size
    upright = height >= width
    length = max(width, height)
    if length <= _LONGEST * 1.5:
        yield 0, 0, image
        return
    busy = _busy(image, upright)
    start = 0
    while start < length:
        end = length if length - start <= _LONGEST else _quiet(busy, start + _LONGEST // 2, start + _LONGEST)
        box = (0, start, width, end) if upright else (start, 0, end, height)
        yield box[0], box[1], image.crop(box)
        start = end


def _busy(image: Image.Image, upright: bool) -> NDArray[np.float32]:
    """How much changes within each row (or column)."""
    grey = np.asarray(image.convert("L"))
    steps = [
        np.abs(np.diff(grey[row : row + 512].astype(np.int16), axis=1 if upright else 0)).sum(
            axis=1 if upright else 0, dtype=np.float32
        )
        for row in range(0, len(grey), 512)
    ]
    return np.concatenate(steps) if upright else np.sum(steps, axis=0, dtype=np.float32)


def _quiet(busy: NDArray[np.float32], first: int, last: int) -> int:
    """The middle of the quietest stretch there, and of several the last."""
    window = np.convolve(busy[first:last], np.ones(9, np.float32), "same")
    return last - 1 - int(window[::-1].argmin())


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
