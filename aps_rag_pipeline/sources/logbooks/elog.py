"""Entries of PSI ELOG: as its data files and its `Download` command give them, and as its XML export does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from aps_rag_pipeline.content.markup import blocks_to_text, parse_html, tree_blocks
from aps_rag_pipeline.content.tables import slug
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import FieldValue, Link
from aps_rag_pipeline.sources.base import Failure, FeedError, UnreadableError
from aps_rag_pipeline.sources.logbooks.elcode import elcode_to_markdown
from aps_rag_pipeline.sources.logbooks.model import Document, Entry, Reading
from aps_rag_pipeline.sources.logbooks.pasted import take_pasted

#: Ending of the data files, and the beginning of each entry in them.
START = "$@MID@$:"
_RULE = re.compile(r"^={40}[ \t]*(?:\n|$)", re.MULTILINE)
_ENTRY = re.compile(r"^(?=\$@MID@\$:)", re.MULTILINE)
_OWN_HEADERS = frozenset(("date", "reply_to", "in_reply_to", "attachment", "encoding", "locked_by", "mid"))
_STORED = re.compile(r"(\d{6}_\d{6})[/_]([^/?#]+)")
_REFERENCE = re.compile(r"\belog:(\d{1,9})\b(?!/)", re.IGNORECASE)
_SEVERAL = re.compile(r"\s*\|\s*")
#: Attributes that logbooks commonly name the writer and the subject by; `options` names others.
_AUTHORS = ("author", "entered_by", "name", "operator", "user", "from")
_TITLES = ("subject", "title", "topic")


@dataclass(frozen=True)
class Naming:
    """Which attributes say who wrote, what about, and when it happened. A logbook's configuration decides."""

    author: tuple[str, ...] = _AUTHORS
    title: tuple[str, ...] = _TITLES
    event: tuple[str, ...] = ()
    logbook: str = ""

    @staticmethod
    def of(options: Mapping[str, object], logbook: str = "") -> Naming:
        """From `options.author`, `.title`, `.event` and `.logbook` of a feed.

        Raises:
            FeedError: one of them is no text.
        """
        named: dict[str, tuple[str, ...]] = {}
        for key in ("author", "title", "event", "logbook"):
            value = options.get(key)
            if value is not None:
                if not isinstance(value, str):
                    raise FeedError(f"options.{key} is {value!r}; it is the name of an attribute of the log book")
                named[key] = (value,)
        own = named.pop("logbook", (logbook,))[0]
        return Naming(**{key: (slug(value[0]),) for key, value in named.items()}, logbook=own)


@dataclass(frozen=True)
class RawEntry:
    """An entry as ELOG keeps it. `headers` are by slug, in their order."""

    id: str
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""

    @property
    def parent(self) -> str:
        """The id of the entry that this one answers; empty for none."""
        return next(iter(_numbers(self.headers.get("in_reply_to", ""))), "")

    @property
    def replies(self) -> list[str]:
        return _numbers(self.headers.get("reply_to", ""))


def is_elog(text: str) -> bool:
    """Whether a text is a data file or an export of ELOG."""
    head = text[:400].lstrip("\ufeff\r\n\t ")
    return head.startswith(START) or (head.startswith("<") and "<ELOG_LIST" in text[:2000])


def read_elog(text: str, unit: str, name: str, naming: Naming) -> Reading:
    """The entries of a data file or an XML export."""
    if text.lstrip("\ufeff\r\n\t ").startswith("<"):
        raws: Iterable[RawEntry | UnreadableError] = parse_xml(text, name)
    else:
        raws = (_attempt(piece) for piece in split_entries(text))
    for number, raw in enumerate(raws, 1):
        if isinstance(raw, UnreadableError):
            place = f"{name}: entry {number}"
            yield Failure(unit, place, place, str(raw), raw.remedy, raw.permanent)
        else:
            yield to_entry(raw, f"{name}: entry {raw.id}", naming)


def split_entries(text: str) -> Iterator[str]:
    """The pieces of a data file, each one entry."""
    plain = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    yield from (piece for piece in _ENTRY.split(plain) if piece.strip())


def parse_entry(text: str) -> RawEntry:
    """One entry from its text.

    Raises:
        UnreadableError: it is none, or cut off.
    """
    plain = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    rule = _RULE.search(plain)
    if not plain.startswith(START) or rule is None:
        raise UnreadableError(
            "no entry of ELOG: it begins with $@MID@$ and its headers end with a line of 40 equals signs",
            remedy="get the entry again; it may be cut off",
        )
    headers: dict[str, str] = {}
    for line in plain[: rule.start()].split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            headers.setdefault(slug(key), clean(value).strip())
    number = headers.pop("mid", "")
    if not number.isdigit():
        raise UnreadableError("an entry of ELOG without an id", remedy="mend it in the data file")
    return RawEntry(str(int(number)), headers, clean(plain[rule.end() :]).rstrip("\n"))


def parse_xml(text: str, name: str) -> list[RawEntry | UnreadableError]:
    """The entries of an export.

    Raises:
        UnreadableError: it is no whole export.
    """
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        # A declaration may name the encoding that the text no longer has.
        root = etree.fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", text.lstrip("\ufeff")).encode(), parser)
    except etree.XMLSyntaxError as error:
        raise UnreadableError(f"{name}: the XML is cut off or damaged ({error})", remedy="export again") from error
    if root.tag != "ELOG_LIST":
        raise UnreadableError(f"{name}: <{root.tag}> where <ELOG_LIST> was due", remedy="export again as XML")
    return [_from_xml(node) for node in root.iterchildren("ENTRY")]


def to_entry(raw: RawEntry, place: str, naming: Naming) -> Entry:
    """What the entry says, its text in Markdown."""
    attached = {stored: stored[14:] for stored in _names(raw.headers.get("attachment", ""))}
    encoding = raw.headers.get("encoding", "plain").lower()
    entry = Entry(
        id=raw.id,
        text=raw.text,
        place=place,
        title=_said(raw, naming.title),
        author=_said(raw, naming.author),
        created=raw.headers.get("date") or None,
        event=_said(raw, naming.event) or None,
        parent=raw.parent,
        document=Document(fields={"logbook": [naming.logbook]} if naming.logbook else {}),
        fields=_fields(raw, naming),
        files=dict(attached),
        links=[Link("log_entry", f"BELY:{number}") for number in dict.fromkeys(_REFERENCE.findall(raw.text))],
    )
    take_pasted(entry)
    if encoding == "html":
        entry.text = _html_to_markdown(entry.text, attached)
    elif encoding == "elcode":
        entry.text = elcode_to_markdown(entry.text, list(attached))
    return entry


def _attempt(piece: str) -> RawEntry | UnreadableError:
    try:
        return parse_entry(piece)
    except UnreadableError as error:
        return error


def _from_xml(node: Iterable[object]) -> RawEntry | UnreadableError:
    headers: dict[str, str] = {}
    for child in node:
        tag, value = getattr(child, "tag", None), getattr(child, "text", None)
        if isinstance(tag, str):
            headers.setdefault(slug(tag), str(value or ""))
    number = headers.pop("mid", "").strip()
    if not number.isdigit():
        return UnreadableError("an entry of ELOG without an id", remedy="export again")
    text = clean(headers.pop("text", "").replace("\r\n", "\n")).rstrip("\n")
    return RawEntry(str(int(number)), {key: clean(value).strip() for key, value in headers.items()}, text)


def _said(raw: RawEntry, names: Iterable[str]) -> str:
    return next((raw.headers[name] for name in names if raw.headers.get(name)), "")


def _fields(raw: RawEntry, naming: Naming) -> dict[str, FieldValue]:
    """The attributes; those with several values parted by `|` as lists."""
    used = {next((name for name in names if raw.headers.get(name)), "") for names in (naming.title, naming.author)}
    fields: dict[str, FieldValue] = {}
    for name, value in raw.headers.items():
        if name not in _OWN_HEADERS and name not in used and value:
            fields[name] = [part for part in _SEVERAL.split(value) if part] if "|" in value else value
    return fields


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if len(name.strip()) > 14]


def _numbers(listed: str) -> list[str]:
    return [str(int(number)) for number in re.findall(r"\d+", listed)]


def _html_to_markdown(html: str, attached: Mapping[str, str]) -> str:
    """A page as Markdown, its pictures as links to the entry's files."""
    tree = parse_html(html)
    for picture in tree.find_all("img"):
        source = str(picture.get("src", ""))
        found = _STORED.search(unquote(source))
        stored = f"{found[1]}_{found[2]}" if found else ""
        target = stored if stored in attached else source
        picture.replace_with(f"![{picture.get('alt') or ''}]({target})" if target else "")
    for link in tree.find_all("a"):
        found = _STORED.search(unquote(str(link.get("href", ""))))
        if found and f"{found[1]}_{found[2]}" in attached:
            link.replace_with(f"[{link.get_text()}]({found[1]}_{found[2]})")
    return blocks_to_text(tree_blocks(tree))
