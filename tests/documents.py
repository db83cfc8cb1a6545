"""Documents with known content, written here so that tests can ask for every word of them."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime

from PIL import Image

#: Pads passwords in the standard security handler of PDF.
_PAD = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def png(width: int = 8, height: int = 8, color: tuple[int, int, int] = (200, 30, 30)) -> bytes:
    target = io.BytesIO()
    Image.new("RGB", (width, height), color).save(target, "PNG")
    return target.getvalue()


def pdf(
    pages: Sequence[Sequence[str] | None],
    title: str = "",
    bookmarks: Sequence[tuple[str, int]] = (),
    link: str = "",
    password: str = "",
) -> bytes:
    """A PDF with one string a line; a page of None shows a picture of no letters instead.

    `bookmarks` are (title, page index); `link` becomes an annotation of the first page.
    """
    file = _PdfFile(password)
    catalog, tree, font, picture = file.reserve(), file.reserve(), file.reserve(), file.reserve()
    file.set(font, b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    pixels = zlib.compress(bytes(64 * 64))
    head = b"/Type /XObject /Subtype /Image /Width 64 /Height 64 /ColorSpace /DeviceGray /BitsPerComponent 8"
    file.stream(picture, head + b" /Filter /FlateDecode", pixels)
    numbers = []
    for index, lines in enumerate(pages):
        page, content = file.reserve(), file.reserve()
        numbers.append(page)
        file.stream(content, b"", _drawing(lines))
        notes = b""
        if link and index == 0:
            note = file.reserve()
            file.set(
                note, b"<< /Type /Annot /Subtype /Link /Rect [0 0 9 9] /A << /S /URI /URI (%s) >> >>" % link.encode()
            )
            notes = b" /Annots [%d 0 R]" % note
        resources = b"<< /Font << /F1 %d 0 R >> /XObject << /Im1 %d 0 R >> >>" % (font, picture)
        file.set(
            page,
            b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 612 792] /Resources %s /Contents %d 0 R%s >>"
            % (tree, resources, content, notes),
        )
    kids = b" ".join(b"%d 0 R" % number for number in numbers)
    file.set(tree, b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(numbers)))
    file.set(catalog, b"<< /Type /Catalog /Pages %d 0 R%s >>" % (tree, _outlines(file, bookmarks, numbers)))
    info = file.reserve()
    file.set(info, b"<< /Title (%s) /CreationDate (D:20240131120000-06'00') >>" % title.encode("latin-1"))
    return file.finish(catalog, info)


def _drawing(lines: Sequence[str] | None) -> bytes:
    if lines is None:
        return b"q 400 0 0 400 100 200 cm /Im1 Do Q"
    escaped = (line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in lines)
    shown = b" ".join(b"(%s) Tj T*" % line.encode("cp1252") for line in escaped)
    return b"BT /F1 11 Tf 14 TL 60 740 Td %s ET" % shown


def _outlines(file: _PdfFile, bookmarks: Sequence[tuple[str, int]], pages: list[int]) -> bytes:
    if not bookmarks:
        return b""
    root, *items = (file.reserve() for _ in range(len(bookmarks) + 1))
    for index, (title, page) in enumerate(bookmarks):
        following = b" /Next %d 0 R" % items[index + 1] if index + 1 < len(items) else b""
        file.set(
            items[index],
            b"<< /Title (%s) /Parent %d 0 R /Dest [%d 0 R /Fit]%s >>" % (title.encode(), root, pages[page], following),
        )
    file.set(root, b"<< /Type /Outlines /First %d 0 R /Last %d 0 R /Count %d >>" % (items[0], items[-1], len(items)))
    return b" /Outlines %d 0 R" % root


class _PdfFile:
    """Numbered objects on their way to a file; with a password, streams are encrypted with 40-bit RC4."""

    def __init__(self, password: str) -> None:
        self.objects: list[bytes] = []
        self.id = b"0123456789abcdef"
        self.encryption = b""
        self.key = b""
        if password:
            padded = (password.encode() + _PAD)[:32]
            owner = _rc4(hashlib.md5(padded).digest()[:5], padded)
            self.key = hashlib.md5(padded + owner + struct.pack("<i", -4) + self.id).digest()[:5]
            user = _rc4(self.key, _PAD)
            self.encryption = b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (
                owner.hex().encode(),
                user.hex().encode(),
            )

    def reserve(self) -> int:
        self.objects.append(b"null")
        return len(self.objects)

    def set(self, number: int, body: bytes) -> None:
        self.objects[number - 1] = body

    def stream(self, number: int, head: bytes, data: bytes) -> None:
        if self.key:
            salt = struct.pack("<I", number)[:3] + b"\0\0"
            data = _rc4(hashlib.md5(self.key + salt).digest()[:10], data)
        self.set(number, b"<< %s /Length %d >>\nstream\n%s\nendstream" % (head, len(data), data))

    def finish(self, catalog: int, info: int) -> bytes:
        out = bytearray(b"%PDF-1.4\n")
        offsets = []
        for number, body in enumerate(self.objects, 1):
            offsets.append(len(out))
            out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
        start = len(out)
        out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(offsets) + 1)
        out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
        encrypt = b" /Encrypt %s" % self.encryption if self.encryption else b""
        ids = b"<%s>" % self.id.hex().encode()
        trailer = b"<< /Size %d /Root %d 0 R /Info %d 0 R /ID [%s %s]%s >>"
        out += b"trailer\n" + trailer % (len(offsets) + 1, catalog, info, ids, ids, encrypt)
        return bytes(out + b"\nstartxref\n%d\n%%%%EOF\n" % start)


def _rc4(key: bytes, data: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out = bytearray()
    i = j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
