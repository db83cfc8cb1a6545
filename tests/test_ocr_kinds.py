"""Words found on made screens by kind: light on dark, alarm colours, small fonts. The text is known to the letter."""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageDraw, ImageFont

from aps_rag_pipeline.content import ocr

ROWS = (
    "Storage ring vacuum summary sector 35",
    "S35:KICKER:HVPS:VoltageM   12.48 kV   MAJOR",
    "klystron reflected power   118.2 kW   reset",
    "water supply temperature   84.02 degF normal",
    "gate valve GV12 closed by interlock",
    "beam current 101.9 mA lifetime 9.4 h",
    "corrector S12B:H3 regulation fault acknowledged",
    "operator requests access to the tunnel",
)
WORDS = {word.lower() for row in ROWS for word in row.split()}

#: kind: (ground, ink, size of the font in pixels, share of the words that must be found)
KINDS = {
    "black on white": ("#ffffff", "#000000", 15, 0.95),
    "light on dark": ("#101820", "#e8f0ff", 15, 0.95),
    "green on black": ("#000000", "#00e000", 14, 0.95),
    "red on yellow": ("#f0e000", "#d00000", 14, 0.9),
    "white on alarm red": ("#b00000", "#ffffff", 14, 0.9),
    "magenta on grey": ("#b8b8b8", "#c000c0", 14, 0.9),
    "ten pixels": ("#d0d0d0", "#000000", 10, 0.8),
    "eight pixels": ("#d0d0d0", "#000000", 8, 0.62),
}


def screen(ground: str, ink: str, size: int) -> bytes:
    image = Image.new("RGB", (640, 300), ground)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for number, row in enumerate(ROWS):
        draw.text((20, 15 + number * 34), row, fill=ink, font=font)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def recall(kind: str) -> float:
    ground, ink, size, _ = KINDS[kind]
    found = {word.lower() for word in ocr.read_image(screen(ground, ink, size)).text.split()}
    return len(WORDS & found) / len(WORDS)


@pytest.mark.skipif(ocr.find_tesseract() is None, reason="no Tesseract here")
@pytest.mark.parametrize("kind", KINDS)
def test_words_of_a_made_screen_are_found(kind: str) -> None:
    found, wanted = recall(kind), KINDS[kind][3]
    assert found >= wanted, f"{kind}: {found:.2f} of the words, {wanted} are due"


if __name__ == "__main__":
    for each in KINDS:
        print(f"{each:20} {recall(each):.2f}")
