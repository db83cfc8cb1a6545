"""OpenDocument text (.odt): headings, paragraphs, lists, tables and pictures of its one XML file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from datetime import tzinfo
from typing import TYPE_CHECKING

from aps_rag_pipeline.content.archives import check_unpacked
from aps_rag_pipeline.content.assembly import Assembly, Partition, Picture
from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.markup import pipe_table
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Blobs, UnreadableError

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_OASIS = "{urn:oasis:names:tc:opendocument:xmlns:"
_OFFICE, _TEXT, _TABLE, _DRAW = (f"{_OASIS}{name}:1.0}}" for name in ("office", "text", "table", "drawing"))
_META = f"{_OASIS}meta:1.0}}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_LEFT_OUT = frozenset((_TEXT + "tracked-changes", _OFFICE + "annotation", _TEXT + "sequence-decls"))
_MAX_REPEAT = 200


def partition_opendocument(data: bytes, limits: Limits, blobs: Blobs, zone: tzinfo) -> Partition:
    """Parts by section, each table its own.

    Raises:
        UnreadableError: damaged, protected, or beyond the limits.
    """
    check_unpacked(data, limits)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = frozenset(archive.namelist())
        if "META-INF/manifest.xml" in names and b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise UnreadableError("protected by a password", remedy="save it without one")
        root = _parsed(archive.read("content.xml"))
        found = _properties(archive.read("meta.xml"), zone) if "meta.xml" in names else Partition()
        body = root.find(f"{_OFFICE}body/{_OFFICE}text")
        if body is None:
            raise UnreadableError("holds no text body", remedy="open it and save it again")
        assembly = Assembly(blobs)
        for picture in list(body.iter(_DRAW + "image")):
            name = picture.get(_HREF, "").removeprefix("./")
            if name in names:
                mark = assembly.mark(Picture(name.rsplit("/", 1)[-1], archive.read(name)))
                picture.tail = mark + (picture.tail or "")
    _blocks(body, assembly, 0)
    found.parts, found.attachments = assembly.finish()
    targets = ((link.get(_HREF, ""), _inline(link)) for link in body.iter(_TEXT + "a"))
    found.links = list(dict.fromkeys(Link("url", address, text) for address, text in targets if "://" in address))
    found.title = found.title or assembly.first_heading
    return found


def _parsed(xml: bytes) -> Element:
    from lxml import etree

    return etree.fromstring(xml, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))


def _properties(xml: bytes, zone: tzinfo) -> Partition:
    root = _parsed(xml)

    def stated(name: str) -> str:
        element = next(root.iter(name), None)
        return clean(element.text or "").strip() if element is not None else ""

    return Partition(
        title=stated(_DC + "title"),
        author=stated(_META + "initial-creator") or stated(_DC + "creator"),
        created_at=parse_time(stated(_META + "creation-date"), zone),
        modified_at=parse_time(stated(_DC + "date"), zone),
    )


def _blocks(parent: Element, assembly: Assembly, depth: int) -> None:
    for child in parent:
        if child.tag == _TEXT + "h":
            level = child.get(_TEXT + "outline-level", "1")
            assembly.heading(int(level) if level.isdigit() else 1, _inline(child))
        elif child.tag == _TEXT + "p":
            assembly.prose(_inline(child))
            for table in child.iter(_TABLE + "table"):
                _table(table, assembly)
        elif child.tag == _TEXT + "list":
            assembly.prose("\n".join(_items(child, 0)))
        elif child.tag == _TABLE + "table":
            _table(child, assembly)
        elif isinstance(child.tag, str) and child.tag not in _LEFT_OUT and depth < 50:
            _blocks(child, assembly, depth + 1)


def _items(parent: Element, depth: int) -> Iterator[str]:
    for item in parent:
        mark = "- "
        for child in item:
            if child.tag == _TEXT + "list" and depth < 50:
                yield from _items(child, depth + 1)
            elif isinstance(child.tag, str) and (text := _inline(child)):
                yield "  " * depth + mark + text
                mark = "  "


def _table(table: Element, assembly: Assembly) -> None:
    rows = []
    for row in table.iter(_TABLE + "table-row"):
        cells: list[str] = []
        for cell in row:
            if cell.tag not in (_TABLE + "table-cell", _TABLE + "covered-table-cell"):
                continue
            text = " ".join(_inline(child) for child in cell if isinstance(child.tag, str)).strip()
            repeat = cell.get(_TABLE + "number-columns-repeated", "1")
            cells.extend([text] * (min(int(repeat), _MAX_REPEAT) if repeat.isdigit() else 1))
        while cells and not cells[-1]:
            cells.pop()
        rows.append(cells)
    assembly.table(pipe_table(rows))


def _inline(element: Element) -> str:
    return " ".join(clean("".join(_words(element))).split(" ")).strip()


def _words(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if child.tag == _TEXT + "tab":
            yield "\t"
        elif child.tag == _TEXT + "line-break":
            yield "\n"
        elif child.tag == _TEXT + "s":
            yield " "
        elif child.tag == _TEXT + "note":
            yield " [" + " ".join("".join(_words(body)) for body in child.iter(_TEXT + "note-body")).strip() + "]"
        elif isinstance(child.tag, str) and child.tag not in _LEFT_OUT and child.tag != _TABLE + "table":
            yield from _words(child)
        yield child.tail or ""
