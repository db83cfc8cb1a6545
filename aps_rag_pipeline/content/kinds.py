"""What a file is, told from its bytes first and from its name only where the bytes leave it open."""

from __future__ import annotations

import io
import zipfile
from pathlib import PurePosixPath
from typing import Literal

from aps_rag_pipeline.content.archives import is_zip
from aps_rag_pipeline.content.text import is_binary
from aps_rag_pipeline.sources.base import UnreadableError

Kind = Literal[
    "pdf", "docx", "pptx", "workbook", "odt", "html", "markdown", "rest", "mail", "outlook", "table", "image", "text"
]


class NoDocumentError(UnreadableError):
    """The file is no document at all (a program, a film, an archive): left out by design, not a failure."""


#: Who has a file open is told in 165 bytes or less, beside it, under its name behind these two characters.
_LOCK_BYTES = 1024
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_IMAGES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*")
_OFFICE: dict[str, Kind] = {"word/": "docx", "ppt/": "pptx", "xl/": "workbook"}
_SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".md", ".markdown", ".mdown"), "markdown"),
    **dict.fromkeys((".csv", ".tsv"), "table"),
    **dict.fromkeys((".rst", ".rest"), "rest"),
    **dict.fromkeys((".eml", ".mht", ".mhtml"), "mail"),
}
#: OLE files by a name inside them (UTF-16, as their directory holds it) -> what to say.
_OLE_NAMES: tuple[tuple[str, str, str], ...] = (
    ("EncryptedPackage", "protected by a password", "save it without a password"),
    ("WordDocument", "a Word 97-2003 file (.doc)", "open it in Word or LibreOffice and save it as .docx or PDF"),
    ("PowerPoint Document", "a PowerPoint 97-2003 file (.ppt)", "open it and save it as .pptx or PDF"),
    ("VisioDocument", "a Visio drawing", "export it as PDF"),
)
#: Documents that are not read, by the beginning of their bytes -> what to say.
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (b"{\\rtf", "a rich-text file (.rtf)", "open it and save it as .docx or PDF"),
    (b"%!PS", "a PostScript file", "convert it to PDF"),
    (b"AT&TFORM", "a DjVu file", "convert it to PDF"),
)


def kind_of(data: bytes, name: str) -> Kind:
    """The kind of a document.

    Raises:
        UnreadableError: a document that cannot be read, with what would help.
        NoDocumentError: no document.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if PurePosixPath(name).name.startswith("~$") and len(data) < _LOCK_BYTES:
        raise NoDocumentError("a lock file of an office program")
    if b"%PDF-" in data[:1024]:
        return "pdf"
    if is_zip(data):
        return _zip_kind(data)
    if data.startswith(_OLE):
        return _ole_kind(data)
    for start, what, remedy in _OTHERS:
        if data.startswith(start):
            raise UnreadableError(f"{what} cannot be read", remedy=remedy)
    if data.startswith(_IMAGES) or (data[:2] == b"BM" and suffix in (".bmp", ".dib")) or _is_webp(data):
        return "image"
    if is_binary(data):
        if suffix in (".pdf", ".docx", ".pptx", ".xlsx", ".doc", ".ppt", ".xls"):
            raise UnreadableError(
                f"damaged: it does not begin as a {suffix} file does", remedy="fetch or save it again"
            )
        raise NoDocumentError("a binary file that is no document")
    return _text_kind(data, suffix)


def _is_webp(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def _zip_kind(data: bytes) -> Kind:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            mimetype = archive.read("mimetype")[:100].decode("ascii", "replace") if "mimetype" in names else ""
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise UnreadableError(f"damaged zip container ({error})", remedy="open it and save it again") from error
    if "[Content_Types].xml" in names:
        for folder, kind in _OFFICE.items():
            if any(name.startswith(folder) for name in names):
                return kind
    if mimetype.startswith("application/vnd.oasis.opendocument."):
        if mimetype.split(".")[-1].startswith("text"):
            return "odt"
        raise UnreadableError(f"an OpenDocument file ({mimetype}) cannot be read", remedy="save it as PDF or .xlsx")
    if mimetype.startswith("application/epub"):
        raise UnreadableError("an EPUB book cannot be read", remedy="convert it to PDF or HTML")
    raise NoDocumentError("an archive, not a document")


def _ole_kind(data: bytes) -> Kind:
    for inner, what, remedy in _OLE_NAMES:
        if inner.encode("utf-16-le") in data:
            raise UnreadableError(f"{what} cannot be read", remedy=remedy)
    if "__properties_version1.0".encode("utf-16-le") in data:
        return "outlook"
    if any(f"{inner}\x00".encode("utf-16-le") in data for inner in ("Workbook", "Book")):
        return "workbook"
    raise NoDocumentError("an OLE container that is no document")


def _text_kind(data: bytes, suffix: str) -> Kind:
    if suffix in (".pdf", ".docx", ".pptx", ".xlsx") and not _looks_like_html(data):
        raise UnreadableError(f"damaged: it does not begin as a {suffix} file does", remedy="fetch or save it again")
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    return "html" if _looks_like_html(data) else "text"


def _looks_like_html(data: bytes) -> bool:
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return head.startswith((b"<!doctype html", b"<html")) or b"<html" in head[:512]
