"""A PDF of plain text, written by hand: one font, pages of lines. Enough for a document whose words can be selected."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

_WIDTH, _HEIGHT, _MARGIN = 612, 792, 72
_SIZES = {"title": 16, "heading": 13, "text": 10, "code": 9}
_COLUMNS = {"title": 55, "heading": 65, "text": 92, "code": 86}


def pdf(lines: list[tuple[str, str]], title: str) -> bytes:
    """`lines` are (style, text); styles are title, heading, text and code. Long lines are wrapped."""
    pages = list(_pages(lines))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>")
    kids = []
    for content in pages:
        kids.append(f"{len(objects) + 1} 0 R")
        resources = "<< /Font << /F1 3 0 R /F2 4 0 R >> >>"
        box = f"[0 0 {_WIDTH} {_HEIGHT}]"
        body = f"/Resources {resources} /Contents {len(objects) + 2} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox {box} {body} >>")
        objects.append(f"<< /Length {len(content.encode('cp1252', 'replace'))} >>\nstream\n{content}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    objects.append(f"<< /Title ({_escape(title)}) /Producer (demo) >>")
    return _file(objects)


def _file(objects: list[str]) -> bytes:
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("cp1252", "replace")
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\n".encode()
    out += f"startxref\n{start}\n%%EOF\n".encode()
    return bytes(out)


def _pages(lines: list[tuple[str, str]]) -> Iterator[str]:
    """The drawing operators of each page."""
    page: list[str] = []
    y = _HEIGHT - _MARGIN
    for style, text in lines:
        size = _SIZES[style]
        font = "F2" if style == "code" else "F1"
        for piece in textwrap.wrap(text, _COLUMNS[style]) or [""]:
            if y < _MARGIN:
                yield "\n".join(page)
                page, y = [], _HEIGHT - _MARGIN
            page.append(f"BT /{font} {size} Tf {_MARGIN} {y} Td ({_escape(piece)}) Tj ET")
            y -= round(size * 1.35)
        y -= 4
    yield "\n".join(page)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
