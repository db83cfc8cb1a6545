"""Pictures of control screens, as people paste them into a chat: light on dark, values in alarm colours."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from aps_rag_pipeline.demo.facility import at
from aps_rag_pipeline.demo.incidents import Incident, number

if TYPE_CHECKING:
    from random import Random

    from PIL import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

_BACK, _PANEL, _TEXT, _GREEN, _RED = (32, 38, 46), (18, 22, 28), (230, 232, 236), (120, 235, 130), (255, 110, 100)
_WIDTH, _LINE, _MARGIN, _VALUES = 900, 40, 24, 530
_TITLE_SIZE, _TEXT_SIZE = 26, 20
#: Pixels between letters: control screens space them widely, and a 1 beside a point is then still two signs.
_TRACKING = 2


def lines(rng: Random, incident: Incident) -> list[tuple[str, str]]:
    """Rows of a screen (label, value): the signal that went wrong among its neighbours."""
    rows = [("Device", incident.device.name)]
    for signal in incident.device.kind.signals:
        bad = signal.suffix == incident.variable.signal.suffix
        value = incident.value if bad else f"{number(rng, float(signal.low), float(signal.high))} {signal.unit}".strip()
        rows.append((signal.words, value))
    rows.append(("Channel", incident.variable.name))
    rows.append(("Time", f"{at(incident.start):%Y-%m-%d %H:%M}"))
    return rows


def text_lines(incident: Incident, rows: list[tuple[str, str]]) -> tuple[str, ...]:
    """What can be read on the picture, line by line."""
    return (_title(incident), *(f"{label} {value}" for label, value in rows))


def draw(incident: Incident, rows: list[tuple[str, str]]) -> bytes:
    """The picture as PNG."""
    from PIL import Image, ImageDraw, ImageFont

    height = _MARGIN * 2 + _LINE * (len(rows) + 1) + 12
    image = Image.new("RGB", (_WIDTH, height), _BACK)
    pen = ImageDraw.Draw(image)
    # Pillow's own font comes with it, so that every machine draws the same picture.
    big, plain = ImageFont.load_default(_TITLE_SIZE), ImageFont.load_default(_TEXT_SIZE)
    _type(pen, _MARGIN, _MARGIN - 4, _title(incident), big, _TEXT)
    for index, (label, value) in enumerate(rows):
        top = _MARGIN + 12 + _LINE * (index + 1)
        _type(pen, _MARGIN, top, label, plain, _TEXT)
        colour = _RED if value == incident.value else _GREEN
        pen.rectangle((_VALUES, top - 4, _WIDTH - _MARGIN, top + _LINE - 10), fill=_PANEL)
        _type(pen, _VALUES + 10, top, value, plain, colour)
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _type(
    pen: ImageDraw.ImageDraw, x: float, y: float, text: str, font: FreeTypeFont | ImageFont, fill: tuple[int, int, int]
) -> None:
    for sign in text:
        pen.text((x, y), sign, font=font, fill=fill)
        x += font.getlength(sign) + _TRACKING


def _title(incident: Incident) -> str:
    return f"{incident.system} status"
