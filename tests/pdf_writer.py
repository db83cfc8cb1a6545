"""PDF pages drawn piece by piece: text at a place, lines, any direction, any script. For tests that know each word."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

#: Letters that are narrower and wider than most in Helvetica.
_NARROW, _WIDE = "fijlrtI.,:;'!|()[]-/ ", "mwMW%@"


def width(text: str, size: float) -> float:
    """About the width of a text in Helvetica, in points, not too little."""
    return sum(0.34 if c in _NARROW else 0.95 if c in _WIDE else 0.73 if c.isupper() else 0.56 for c in text) * size


def wrapped(text: str, room: float, size: float) -> list[str]:
    """Lines of a text that are not wider than `room` points."""
    lines: list[str] = []
    for word in text.split():
        if lines and width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@dataclass
class Page:
    """Drawing operators of one page; y is measured from the top. `rotate` goes into /Rotate as it is."""

    wide: float = 612
    high: float = 792
    rotate: str = ""
    operators: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, size: float = 10, *, bold: bool = False, turn: int = 0) -> None:
        cos, sin = {0: (1, 0), 90: (0, 1), 180: (-1, 0), 270: (0, -1)}[turn]
        font = "F2" if bold else "F1"
        said = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        matrix = f"{cos} {sin} {-sin} {cos} {x:.2f} {self.high - y:.2f}"
        self.operators.append(f"BT /{font} {size} Tf {matrix} Tm ({said}) Tj ET")

    def codes(self, x: float, y: float, codes: bytes, size: float = 12) -> None:
        """Codes of the font that has a map to Unicode of its own (`Document.letters`)."""
        self.operators.append(f"BT /F3 {size} Tf {x} {self.high - y} Td <{codes.hex()}> Tj ET")

    def line(self, x0: float, y0: float, x1: float, y1: float) -> None:
        self.operators.append(f"0.5 w {x0} {self.high - y0} m {x1} {self.high - y1} l S")

    def note(self, entries: str) -> None:
        """An annotation, by the entries of its dictionary."""
        self.notes.append(f"<< /Type /Annot /Rect [10 10 90 30] {entries} >>")

    def box(self, x: float, y: float, wide: float, high: float, *, fill: bool = False) -> None:
        self.operators.append(f"{x} {self.high - y - high} {wide} {high} re {'f' if fill else 'S'}")

    def picture(self, x: float, y: float, wide: float, high: float) -> None:
        self.operators.append(f"q {wide} 0 0 {high} {x} {self.high - y - high} cm /Im1 Do Q")

    def paragraph(self, x: float, y: float, text: str, room: float, size: float = 10) -> float:
        """Draw a text in lines; gives the place of the next line."""
        for line in wrapped(text, room, size):
            self.text(x, y, line, size)
            y += 1.2 * size
        return y

    def table(self, x: float, y: float, rows: Sequence[Sequence[str]], widths: Sequence[float], rules: str) -> float:
        """Draw a table with `rules` of all cells ("grid"), three level lines ("book") or none ("")."""
        step, top = 16.0, y
        for row in rows:
            at = x
            for cell, wide in zip(row, widths, strict=True):
                self.text(at + 3, y + 11, cell, 9)
                at += wide
            y += step
        edges = [x]
        for wide in widths:
            edges.append(edges[-1] + wide)
        levels = {"grid": range(len(rows) + 1), "book": (0, 1, len(rows)), "": ()}[rules]
        for level in levels:
            self.line(x, top + level * step, edges[-1], top + level * step)
        for edge in edges if rules == "grid" else ():
            self.line(edge, top, edge, y)
        return y


def document(
    pages: Iterable[Page], letters: str = "", bookmarks: Sequence[tuple[str, int, float]] = (), title: bytes = b""
) -> bytes:
    """The bytes of a PDF. `letters` are what the codes 1, 2, ... of the third font stand for; `bookmarks` are
    (title, page index, place from the top).
    """
    pages = list(pages)
    pixels = zlib.compress(bytes(64 * 64))
    objects = [
        b"",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /ToUnicode 6 0 R >>",
        _stream(b"", _map(letters)),
        _stream(
            b"/Type /XObject /Subtype /Image /Width 64 /Height 64 /ColorSpace /DeviceGray /BitsPerComponent 8"
            b" /Filter /FlateDecode",
            pixels,
        ),
        b"270",
    ]
    kids = []
    for page in pages:
        resources = b"<< /Font << /F1 3 0 R /F2 4 0 R /F3 5 0 R >> /XObject << /Im1 7 0 R >> >>"
        rotate = f"/Rotate {page.rotate}" if page.rotate else ""
        head = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {page.wide} {page.high}] {rotate} /Resources ".encode()
        kids.append(len(objects) + 1)
        notes = f"/Annots [{' '.join(page.notes)}]".encode() if page.notes else b""
        objects.append(head + resources + notes + b" /Contents %d 0 R >>" % (len(objects) + 2))
        objects.append(_stream(b"", "\n".join(page.operators).encode("cp1252")))
    outline = _outline(objects, bookmarks, kids, [page.high for page in pages])
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R%s >>" % outline
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(b"%d 0 R" % kid for kid in kids), len(kids))
    objects.append(b"<< /Title <%s> >>" % title.hex().encode())
    return _file(objects)


#: A value of `Page.rotate` that is an indirect object (270).
INDIRECT = "8 0 R"


def _map(letters: str) -> bytes:
    lines = "".join(f"<{code:02x}> <{ord(char):04x}>\n" for code, char in enumerate(letters, 1))
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def\n"
        "1 begincodespacerange <00> <ff> endcodespacerange\n"
        f"{len(letters)} beginbfchar\n{lines}endbfchar endcmap end end"
    ).encode()


def _stream(head: bytes, data: bytes) -> bytes:
    return b"<< %s /Length %d >>\nstream\n%s\nendstream" % (head, len(data), data)


def _outline(
    objects: list[bytes], bookmarks: Sequence[tuple[str, int, float]], kids: list[int], heights: list[float]
) -> bytes:
    if not bookmarks:
        return b""
    root = len(objects) + 1
    first, last = root + 1, root + len(bookmarks)
    objects.append(b"<< /Type /Outlines /First %d 0 R /Last %d 0 R /Count %d >>" % (first, last, len(bookmarks)))
    for number, (title, page, top) in enumerate(bookmarks, first):
        after = f" /Next {number + 1} 0 R" if number < last else ""
        target = f"[{kids[page]} 0 R /XYZ 0 {heights[page] - top} null]"
        objects.append(f"<< /Title ({title}) /Parent {root} 0 R /Dest {target}{after} >>".encode("latin-1"))
    return b" /Outlines %d 0 R" % root


def _file(objects: list[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\n" % (len(objects) + 1, len(objects))
    out += b"startxref\n%d\n%%%%EOF\n" % start
    return bytes(out)
