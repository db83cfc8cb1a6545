"""Office Open XML packages (DOCX, PPTX): made safe and openable before their parser sees them."""

from __future__ import annotations

import io
import re
import zipfile
from datetime import datetime
from typing import Protocol

from aps_rag_pipeline.content.archives import check_unpacked
from aps_rag_pipeline.content.assembly import Partition
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import as_utc
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

_TYPES = "[Content_Types].xml"
#: Templates, slide shows and files with macros hold the same XML under another name, which the parsers refuse.
_DISGUISES: tuple[tuple[bytes, bytes], ...] = (
    (
        rb"application/(?:vnd\.openxmlformats-officedocument\.wordprocessingml\.template"
        rb"|vnd\.ms-word\.(?:document|template)\.macroEnabled(?:Template)?)\.main\+xml",
        b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
    ),
    (
        rb"application/(?:vnd\.openxmlformats-officedocument\.presentationml\.(?:template|slideshow)"
        rb"|vnd\.ms-powerpoint\.(?:presentation|template|slideshow)\.macroEnabled)\.main\+xml",
        b"application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml",
    ),
)
_IDLE_TITLES = ("powerpoint presentation", "word document", "untitled", "slide 1", "title", "presentation", "document")


def open_package(data: bytes, limits: Limits) -> bytes:
    """The package as its parser wants it.

    Raises:
        UnreadableError: it unpacks to more than the limits allow, is damaged, or declares entities in its XML.
    """
    check_unpacked(data, limits, _Entities().look)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            types = archive.read(_TYPES)
            plain = types
            for disguise, name in _DISGUISES:
                plain = re.sub(disguise, name, plain)
            if plain == types:
                return data
            return _with_types(archive, plain)
    except (KeyError, zipfile.BadZipFile, ValueError) as error:
        raise UnreadableError(f"damaged Office file ({error})", remedy="open it and save it again") from error


def _with_types(archive: zipfile.ZipFile, types: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as copy:
        for member in archive.infolist():
            copy.writestr(member, types if member.filename == _TYPES else archive.read(member))
    return target.getvalue()


class _Entities:
    """Watches for document type declarations: Office files have none, and entities are only ever an attack."""

    def __init__(self) -> None:
        self._rest = b""

    def look(self, member: str, stretch: bytes) -> None:
        if not member.lower().endswith((".xml", ".rels", ".vml")):
            return
        text = self._rest + stretch.replace(b"\x00", b"")
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            raise UnreadableError(f"{member} declares XML entities", remedy="open the file and save it again")
        self._rest = text[-16:] if stretch else b""


class CoreProperties(Protocol):
    """What python-docx and python-pptx both call `core_properties`."""

    title: str
    author: str
    created: datetime | None
    modified: datetime | None


def core_properties(properties: CoreProperties, found: Partition) -> None:
    """Title, author and times that a package states of itself."""
    title = " ".join(clean(properties.title or "").split())
    found.title = "" if title.lower() in _IDLE_TITLES else title
    found.author = clean(properties.author or "").strip()
    found.created_at = _time(properties.created)
    found.modified_at = _time(properties.modified)


def _time(value: datetime | None) -> datetime | None:
    from datetime import UTC

    return as_utc(value, UTC) if value is not None else None
