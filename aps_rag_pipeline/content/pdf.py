"""PDF: its text in reading order, tables and sections. A page without usable text is attached, for the OCR stage."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from aps_rag_pipeline.content.assembly import Assembly, Partition, Picture
from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.pdf_lines import Line
from aps_rag_pipeline.content.pdf_notes import read_notes
from aps_rag_pipeline.content.pdf_pages import read_page
from aps_rag_pipeline.content.pdf_parts import parts_of
from aps_rag_pipeline.content.pdf_running import without_running
from aps_rag_pipeline.content.pdf_sections import Bookmark
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import Link, Part
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Blobs, UnreadableError

if TYPE_CHECKING:
    import pypdfium2 as pdfium

#: PDFium is not safe for threads: whoever uses it in this process holds this lock meanwhile.
PDFIUM_LOCK = threading.Lock()

#: Fewer letters and digits than this beside a picture are a stamp or a page number, not the page's text.
_FEW = 25
_DRAWN = 40
_MAX_LINKS = 5000
_MAX_EMBEDDED = 50
_MAX_BOOKMARKS = 20_000
_MAX_RUNNING = 20
#: Titles that programs invent.
_IDLE_TITLES = (
    "untitled",
    "microsoft word",
    "microsoft powerpoint",
    "powerpoint presentation",
    "adobe photoshop pdf",
    "slide 1",
)


def partition_pdf(data: bytes, name: str, limits: Limits, blobs: Blobs, zone: tzinfo) -> Partition:
    """Parts in reading order, `locator` "page n": prose by section, titled by bookmark or heading, and tables.

    Each page has a part, an empty one where it shows no text. Running heads are left out and named in `running_heads`.

    Raises:
        UnreadableError: protected, damaged, or more pages than the limits allow.
    """
    with PDFIUM_LOCK:
        document = _open(data)
        try:
            return _read(document, data, name, limits, blobs, zone)
        finally:
            document.close()


def _open(data: bytes) -> pdfium.PdfDocument:
    import pypdfium2 as pdfium
    import pypdfium2.raw as raw

    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        code = getattr(error, "err_code", None)
        if code == raw.FPDF_ERR_PASSWORD:
            raise UnreadableError("protected by a password", remedy="save it without one") from error
        if code == raw.FPDF_ERR_SECURITY:
            raise UnreadableError(
                "its protection is of an unknown kind", remedy="save it without protection"
            ) from error
        raise UnreadableError("damaged: no PDF reader can open it", remedy="fetch it again or print it anew") from error


def _read(
    document: pdfium.PdfDocument, data: bytes, name: str, limits: Limits, blobs: Blobs, zone: tzinfo
) -> Partition:
    count = len(document)
    if count > limits.max_pages:
        raise UnreadableError(
            f"{count} pages, more than limits.max_pages ({limits.max_pages})", remedy="raise the limit or split it"
        )
    found = Partition(fields={"pages": count})
    _properties(document, found, zone)
    targets: dict[str, None] = {}
    read = [_page(document, index, targets) for index in range(count)]
    pages, running = without_running([page.lines for page in read])
    unread = {index for index, page in enumerate(read) if not page.readable}
    assembly = Assembly(blobs)
    whole = Picture(name, data, "application/pdf")
    for index, parts in enumerate(parts_of(pages, _bookmarks(document, count))):
        assembly.parts += parts
        if read[index].notes:
            assembly.parts.append(Part("prose", "\n".join(read[index].notes), parts[-1].locator))
        if index in unread:
            assembly.picture(whole, page=index + 1)
    for embedded in _embedded(document):
        assembly.picture(embedded)
    found.parts, found.attachments = assembly.finish()
    found.links = [Link("url", target) for target in targets]
    if unread:
        found.fields["pages_without_text"] = len(unread)
    if running:
        found.fields["running_heads"] = running[:_MAX_RUNNING]
    return found


def _properties(document: pdfium.PdfDocument, found: Partition, zone: tzinfo) -> None:
    try:
        values = {key: clean(value).strip() for key, value in document.get_metadata_dict(skip_empty=True).items()}
    except UnicodeDecodeError:
        return  # broken properties cost the title, not the text
    title = values.get("Title", "")
    found.title = "" if title.lower().startswith(_IDLE_TITLES) else title
    found.author = values.get("Author", "")
    found.created_at = pdf_time(values.get("CreationDate", ""), zone)
    found.modified_at = pdf_time(values.get("ModDate", ""), zone)


def pdf_time(text: str, zone: tzinfo) -> datetime | None:
    """`D:20240131120000-06'00'` as an aware UTC time; None where it is none."""
    digits = text.removeprefix("D:").replace("'", "")
    stamp, offset = digits[:14], digits[14:]
    if len(stamp) < 8 or not stamp.isdigit():
        return None
    stamp = stamp.ljust(14, "0")
    written = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]}"
    if offset[:1] in ("+", "-") and offset[1:5].isdigit():
        written += f"{offset[:3]}:{offset[3:5]}"
    elif offset[:1] == "Z":
        written += "+00:00"
    return parse_time(written, zone)


def _bookmarks(document: pdfium.PdfDocument, count: int) -> dict[int, list[Bookmark]]:
    """Page index -> the bookmarks that point to it."""
    import pypdfium2 as pdfium

    found: dict[int, list[Bookmark]] = {}
    try:
        for number, bookmark in enumerate(document.get_toc(max_depth=6)):
            target = bookmark.get_dest()
            index = target.get_index() if target else None
            title = " ".join(clean(bookmark.get_title()).split())
            if index is not None and 0 <= index < count and title:
                found.setdefault(index, []).append(Bookmark(title[:300], _height(target)))
            if number >= _MAX_BOOKMARKS:
                break
    except (pdfium.PdfiumError, UnicodeDecodeError):
        return {}  # broken bookmarks cost the titles, not the text
    return found


def _height(target: pdfium.PdfDest) -> float | None:
    """How far from the lower edge of its page a bookmark points, where it says."""
    import pypdfium2.raw as raw

    view, values = target.get_view()
    place = {raw.PDFDEST_VIEW_XYZ: 1, raw.PDFDEST_VIEW_FITH: 0, raw.PDFDEST_VIEW_FITBH: 0}.get(view)
    return float(values[place]) if place is not None and place < len(values) else None


class _Page(NamedTuple):
    """The lines of a page, whether they say all that it shows, and what was written onto it."""

    lines: list[Line]
    readable: bool
    notes: list[str]


def _page(document: pdfium.PdfDocument, index: int, targets: dict[str, None]) -> _Page:
    import pypdfium2 as pdfium

    try:
        page = document[index]
    except pdfium.PdfiumError:
        return _Page([], False, [])
    try:
        found = read_page(page)
        readable = found.sound and (found.letters >= _FEW or not _shows_more(page, found.letters))
        _page_links(document, page, targets)
        return _Page(found.lines, readable, read_notes(page))
    finally:
        page.close()


def _shows_more(page: pdfium.PdfPage, letters: int) -> bool:
    """Whether a page with little text holds pictures, or drawings enough to be letters."""
    import pypdfium2.raw as raw

    drawn = 0
    for item in page.get_objects(max_depth=4):
        if item.type == raw.FPDF_PAGEOBJ_IMAGE:
            return True
        drawn += item.type in (raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_SHADING) or (
            item.type == raw.FPDF_PAGEOBJ_TEXT and not letters
        )
        if drawn >= (_DRAWN if letters else 1):
            return True
    return False


def _page_links(document: pdfium.PdfDocument, page: pdfium.PdfPage, targets: dict[str, None]) -> None:
    import pypdfium2.raw as raw

    position = ctypes.c_int(0)
    link = raw.FPDF_LINK()
    while len(targets) < _MAX_LINKS and raw.FPDFLink_Enumerate(page, position, link):
        action = raw.FPDFLink_GetAction(link)
        if not action or raw.FPDFAction_GetType(action) != raw.PDFACTION_URI:
            continue
        size = raw.FPDFAction_GetURIPath(document, action, None, 0)
        buffer = ctypes.create_string_buffer(size)
        raw.FPDFAction_GetURIPath(document, action, buffer, size)
        target = clean(buffer.value.decode("utf-8", "replace")).strip()
        if target.startswith(("http://", "https://", "ftp://", "mailto:")):
            targets[target] = None


def _embedded(document: pdfium.PdfDocument) -> Iterator[Picture]:
    import pypdfium2 as pdfium

    for index in range(min(document.count_attachments(), _MAX_EMBEDDED)):
        try:
            attachment = document.get_attachment(index)
            name, data = clean(attachment.get_name()), bytes(attachment.get_data())
        except (pdfium.PdfiumError, UnicodeDecodeError):
            continue
        if data:
            yield Picture(name, data)
