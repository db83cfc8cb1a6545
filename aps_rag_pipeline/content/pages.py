"""HTML and Markdown pages to parts, without what belongs to the site rather than to the page."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import unquote_to_bytes

from aps_rag_pipeline.content.assembly import Assembly, Partition, Picture
from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.markup import parse_html, tree_blocks
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.content.wikilines import plain_html
from aps_rag_pipeline.sources.base import Blobs, UnreadableError

if TYPE_CHECKING:
    from bs4 import Tag

#: Gives the picture behind an address in a page, or None where it is not at hand.
FindPicture = Callable[[str], Picture | None]

_SITE_TAGS = frozenset(("nav", "script", "style", "noscript", "template", "iframe", "button", "select"))
_SITE_ROLES = frozenset(("navigation", "search", "contentinfo", "banner"))
_SITE_CLASSES = frozenset(
    ("headerlink", "mw-editsection", "sphinxsidebar", "navbox", "visually-hidden", "sr-only", "breadcrumbs")
)
_DATA_URI = re.compile(r"""\bdata:[^"'\s()<>]*""")
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_CREATED = ("dcterms.created", "dc.date", "date", "article:published_time", "created")
_MODIFIED = ("dcterms.modified", "last-modified", "article:modified_time", "revised", "modified")
#: A longer page is no hand-written one; its paragraphs are read without their marks.
_MAX_MARKDOWN = 1_000_000
_MAX_HTML = 4_000_000
_MAX_DATA_URI = 32_000_000


class Target(NamedTuple):
    """What a page links to, as it states it."""

    address: str
    text: str


@dataclass
class Page(Partition):
    """A page. `title` is the one of its head; `heading` the first in its text."""

    heading: str = ""
    targets: list[Target] = field(default_factory=list)


def markdown_to_html(text: str) -> str:
    """CommonMark with tables and struck-out text. HTML inside passes through, to be read as such."""
    if len(text) > _MAX_MARKDOWN:
        return plain_html(text)
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return str(parser.render(text))


def partition_page(html: str, blobs: Blobs, zone: tzinfo, find_picture: FindPicture = lambda _: None) -> Page:
    """Parts by headings: prose, each table and each stretch of code on its own, pictures behind the text before."""
    assembly = Assembly(blobs)
    page = read_page(html, assembly, zone, find_picture)
    page.parts, page.attachments = assembly.finish()
    page.heading = assembly.first_heading
    return page


def read_page(html: str, assembly: Assembly, zone: tzinfo, find_picture: FindPicture = lambda _: None) -> Page:
    """Lay a page out into `assembly`; what is returned holds its head and its links."""
    length = len(html)
    if length > _MAX_HTML and (length := len(_DATA_URI.sub("", html))) > _MAX_HTML:
        raise UnreadableError(f"a page of {length / 1e6:.0f} million characters", remedy="split it")
    soup = parse_html(html)
    page = Page()
    _head(soup, page, zone)
    _strip(soup)
    page.targets = _take_targets(soup)
    _mark_pictures(soup, assembly, find_picture)
    _number_lists(soup)
    _open_frames(soup)
    for block in tree_blocks(soup):
        if block.kind == "heading":
            assembly.heading(block.level, block.text)
        elif block.kind == "table":
            assembly.table(block.text, block.title)
        elif block.kind == "code":
            assembly.code(block.text)
        else:
            assembly.prose(block.text)
    return page


def _head(soup: Tag, page: Page, zone: tzinfo) -> None:
    title = soup.find("title")
    page.title = " ".join(clean(title.get_text()).split()) if title else ""
    stated: dict[str, str] = {}
    for meta in soup.find_all("meta"):
        name = str(meta.get("name") or meta.get("property") or meta.get("http-equiv") or "").lower()
        stated.setdefault(name, clean(str(meta.get("content") or "")).strip())
    page.author = stated.get("author", "") or stated.get("dc.creator", "")
    page.created_at = next((time for name in _CREATED if (time := parse_time(stated.get(name, ""), zone))), None)
    page.modified_at = next((time for name in _MODIFIED if (time := parse_time(stated.get(name, ""), zone))), None)


def _strip(soup: Tag) -> None:
    for tag in soup.find_all(_is_site):
        if not tag.decomposed:
            tag.decompose()


def _is_site(tag: Tag) -> bool:
    """Whether an element is the site's, not the page's: navigation, controls, what nobody sees."""
    if tag.name in _SITE_TAGS:
        return True
    if tag.name == "footer":
        return tag.parent is not None and tag.parent.name == "body"
    found = tag.attrs
    if not found:
        return False
    classes = found.get("class") or ()
    return (
        "hidden" in found
        or found.get("aria-hidden") == "true"
        or str(found.get("role", "")).lower() in _SITE_ROLES
        or not _SITE_CLASSES.isdisjoint(classes)
        or bool(_HIDDEN.search(str(found.get("style", ""))))
    )


def _take_targets(soup: Tag) -> list[Target]:
    """Where the page's links lead. Their words stay; the addresses leave the text."""
    found: list[Target] = []
    for tag in soup.find_all("a"):
        address = clean(str(tag.get("href") or "")).strip()
        if address and not address.startswith(("#", "javascript:", "data:")):
            found.append(Target(address, " ".join(clean(tag.get_text(" ")).split())))
        del tag["href"]
    return list(dict.fromkeys(found))


def _mark_pictures(soup: Tag, assembly: Assembly, find_picture: FindPicture) -> None:
    for number, tag in enumerate(soup.find_all("img"), 1):
        source = str(tag.get("src") or tag.get("data-src") or "").strip()
        if source.startswith("data:"):
            picture = data_uri(source, f"picture-{number}")
        else:
            picture = find_picture(source) if source else None
        if picture is not None:
            tag.insert_after(assembly.mark(picture))


def _number_lists(soup: Tag) -> None:
    """A list that goes on where another stopped keeps its numbers: steps of a procedure are called by them."""
    for tag in soup.find_all("ol", start=True):
        start = str(tag["start"])
        if not start.isdigit() or start == "1":
            continue
        tag.name = "ul"
        for number, item in enumerate(tag.find_all("li", recursive=False), int(start)):
            first = next((child for child in item.children if str(child).strip()), None)
            inside = first if first is not None and getattr(first, "name", None) == "p" else item
            cast("Tag", inside).insert(0, f"{number}. ")


def _open_frames(soup: Tag) -> None:
    """Tables around other tables are layout: they become plain boxes before anybody looks for rows in them."""
    frames = {id(frame) for table in soup.find_all("table") if (frame := _table_around(table)) is not None}
    if not frames:
        return
    for tag in soup.find_all(["tr", "td", "th", "tbody", "thead", "tfoot"]):
        if id(_table_around(tag)) in frames:
            tag.name = "div"
    for table in soup.find_all("table"):
        if id(table) in frames:
            table.name = "div"


def _table_around(tag: Tag) -> Tag | None:
    around = tag.parent
    while around is not None and around.name != "table":
        around = around.parent
    return around


def data_uri(source: str, name: str) -> Picture | None:
    """The picture that an address of the form `data:` holds; None where it holds none."""
    head, comma, body = source[5:].partition(",")
    media_type = head.split(";")[0].strip().lower()
    if not comma or not media_type.startswith("image/") or len(body) > _MAX_DATA_URI:
        return None
    raw = unquote_to_bytes(body)
    try:
        data = base64.b64decode(b"".join(raw.split())) if head.rstrip().endswith("base64") else raw
    except (binascii.Error, ValueError):
        return None
    return Picture(name + (mimetypes.guess_extension(media_type) or ""), data, media_type) if data else None
