"""Pictures piece by piece: what comes out is what making it whole would give, in a fraction of the memory."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from aps_rag_pipeline.content.ocr import frames, pictures
from aps_rag_pipeline.content.ocr.frames import Frame
from aps_rag_pipeline.settings import Limits

MEASURE = """
import sys
from pathlib import Path
from aps_rag_pipeline.content.ocr import pictures
from aps_rag_pipeline.settings import Limits
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10
data, before = Path(sys.argv[1]).read_bytes(), peak()
(frame,) = pictures.open_frames(data, Limits())
count = 0
for _, _, piece in frame.pieces():
    count += piece.width * piece.height
    del piece
print(peak() - before, count)
"""


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    values = np.random.default_rng(3).integers(0, 255, (height // 4, width // 4, 4), dtype=np.uint8)
    return Image.fromarray(values, "RGBA").resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def opened(image: Image.Image, kind: str = "PNG", **options: object) -> Frame:
    out = BytesIO()
    image.save(out, kind, **options)
    (frame,) = pictures.open_frames(out.getvalue(), Limits())
    return frame


def whole(frame: Frame) -> np.ndarray:
    ((left, top, piece),) = frame.pieces()
    assert (left, top) == (0, 0)
    return np.asarray(piece)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_exif_says(orientation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_AT_ONCE", 1000)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = noise(160, 100)
    frame = opened(image, exif=exif)
    image.getexif()[0x0112] = orientation
    assert np.array_equal(whole(frame), np.asarray(ImageOps.exif_transpose(image)))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("exif", [b"XXXXXXXX", b"MM\0\0\0\0\0\x08", b"MM\0", b"II*\0", b"II*\0\xff\xff\xff\xff"])
@pytest.mark.filterwarnings("ignore:.*EXIF")
def test_damaged_exif_costs_the_orientation_alone(kind: str, exif: bytes) -> None:
    image = noise(64, 48)
    frame = opened(image, kind, exif=b"Exif\0\0" + exif, **({"lossless": True} if kind == "WEBP" else {}))
    assert frame.size == (64, 48)
    assert np.abs(whole(frame).astype(int) - np.asarray(image)).mean() < (1 if kind != "JPEG" else 30)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_pieces_of_a_turned_picture_cover_it_in_order(orientation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LONGEST", 200)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = noise(100, 1000) if orientation in (1, 3) else noise(1000, 100)
    frame = opened(image, exif=exif)
    image.getexif()[0x0112] = orientation
    found = list(frame.pieces())
    assert len(found) > 4
    assert [top for _, top, _ in found] == sorted(top for _, top, _ in found)
    assert all(piece.height <= 200 for _, _, piece in found)
    assert np.array_equal(
        np.concatenate([np.asarray(piece) for _, _, piece in found]), np.asarray(ImageOps.exif_transpose(image))
    )


def test_bands_are_made_smaller_as_if_they_were_one(monkeypatch: pytest.MonkeyPatch) -> None:
    image = noise(333, 401)
    monkeypatch.setattr(frames, "LONGEST", 150)
    once = image.resize((150, round(401 * 150 / 333)), Image.Resampling.LANCZOS)
    monkeypatch.setattr(frames, "_AT_ONCE", 3000)
    found = whole(opened(image)).astype(int)
    assert found.shape == np.asarray(once).shape
    assert np.abs(found - np.asarray(once)).max() <= 1


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16"])
def test_any_mode_becomes_rgb_band_by_band(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_AT_ONCE", 1000)
    if mode == "I;16":
        values = np.asarray(noise(120, 90, "L")).astype(np.uint16) * 40 + 700
        image, due = Image.fromarray(values), np.asarray(noise(120, 90, "L")).astype(float)
        due = np.repeat(((due - due.min()) * 255 / (due.max() - due.min())).astype(int)[:, :, None], 3, axis=2)
    else:
        image = noise(120, 90, mode)
        ground = Image.new("RGBA", image.size, "black" if mode == "LA" else "white")
        drawn = image.convert("RGBA")
        grey, weight = (np.asarray(band, float) for band in (drawn.convert("RGB").convert("L"), drawn.getchannel("A")))
        ground = Image.new("RGBA", image.size, "black" if (grey * weight).sum() / weight.sum() > 128 else "white")
        due = np.asarray(Image.alpha_composite(ground, drawn).convert("RGB") if "A" in mode else image.convert("RGB"))
    found = whole(opened(image, "TIFF"))
    assert np.abs(found.astype(int) - due).max() <= 1


def test_a_jpeg_that_is_too_large_is_decoded_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (frames, pictures):
        monkeypatch.setattr(module, "LONGEST", 200)
    frame = opened(noise(840, 1000), "JPEG", quality=90)
    assert frame.size == (210, 250)
    assert whole(frame).shape == (238, 200, 3)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process alone is told by Linux")
@pytest.mark.parametrize(("mode", "size"), [("RGBA", (2000, 12_000)), ("LA", (5000, 5000))])
def test_a_picture_is_decoded_once_and_never_copied_whole(mode: str, size: tuple[int, int], tmp_path: Path) -> None:
    Image.new(mode, size).save(tmp_path / "x.tif", compression="tiff_lzw")
    decoded = size[0] * size[1] * 4
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "x.tif")],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    taken, pixels = map(int, done.stdout.split())
    assert pixels == pytest.approx(size[0] * size[1] * min(1, frames.LONGEST / min(size)) ** 2, rel=0.01)
    piece = 4 * min(pixels, 1.5 * frames.LONGEST * min(*size, frames.LONGEST))
    assert decoded < taken < decoded + piece + 60e6  # of a large picture, a copy would be several times as much
