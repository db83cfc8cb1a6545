"""The record contract: what every source turns its items into, and the two hashes that decide what changed."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

SourceKey = Literal["bely", "icms", "work_requests", "teams", "downtime", "sdds_docs", "code", "wiki", "epics"]

#: The nine kinds of source, in the order in which people read them, with the prefix of their citation keys.
KEY_PREFIX: dict[str, str] = {
    "bely": "BELY",
    "icms": "ICMS",
    "work_requests": "WRQ",
    "teams": "TEAMS",
    "downtime": "DOWN",
    "sdds_docs": "SDDS",
    "code": "CODE",
    "wiki": "WIKI",
    "epics": "PV",
}
SOURCES: tuple[str, ...] = tuple(KEY_PREFIX)

#: The label that admits everybody. It must be written: a record without labels is served to nobody.
PUBLIC = "public"

PartKind = Literal["prose", "table", "code", "transcript"]
LinkKind = Literal[
    "reply_to",  # a thread or entry this one answers
    "parent",  # the document, page or folder this one belongs to
    "work_request",
    "downtime",
    "log_entry",
    "document",
    "chat",
    "wiki",
    "process_variable",
    "file",
    "url",
    "supersedes",
]
#: A time among the fields is an ISO 8601 string in UTC, so that SQL can cast it and JSON can carry it.
FieldValue = str | int | float | bool | list[str]
#: Field of a record that went by other ids before (a renamed file, a moved page): a list of these, the newest first. A
#: key that no record has any more resolves to the record that names its id here, and a purge of either keeps out both.
FORMER_IDS = "former_ids"


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of text in reading order. `locator` says where: page, section path, message id, line range."""

    kind: PartKind
    text: str
    locator: str = ""
    title: str = ""


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that belongs to a record. Its bytes lie once in the blob store under `sha256`.

    `part` is the index of the part it belongs behind (text read from a picture stands there); -1 is the record's end.
    `page` (1-based) narrows it to one page of a paged file, so that a scanned page can be read alone.
    """

    name: str
    media_type: str
    sha256: str
    part: int = -1
    page: int = 0
    locator: str = ""


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reference as the source states it. By `kind`, `target` is a citation key, an id, a PV name, a path or a URL."""

    kind: LinkKind
    target: str
    text: str = ""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item of a feed. All times are aware UTC. `fields` are the source's own values, typed, for filters and SQL."""

    source: str
    feed: str
    id: str
    title: str
    created_at: datetime | None = None
    modified_at: datetime | None = None
    author: str = ""
    url: str = ""
    parts: tuple[Part, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    fields: dict[str, FieldValue] = {}
    links: tuple[Link, ...] = ()
    access: tuple[str, ...] = ()


def former_ids(fields: dict[str, FieldValue]) -> tuple[str, ...]:
    """The ids that a record had before, from its fields."""
    found = fields.get(FORMER_IDS)
    return tuple(found) if isinstance(found, list) else ()


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Canonical JSON of a record: equal records give equal bytes."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> Record:
    return _decoder.decode(data)


def content_hash(record: Record) -> str:
    """Hash of everything a reader can see. Labels have their own hash; `modified_at` is left out because reactions and
    re-saves move it without changing a word."""
    seen = msgspec.structs.replace(record, access=(), modified_at=None)
    return hashlib.blake2b(encode_record(seen), digest_size=16).hexdigest()


def access_hash(access: tuple[str, ...]) -> str:
    return hashlib.blake2b(_encoder.encode(sorted(set(access))), digest_size=8).hexdigest()


def citation_key(source: str, feed: str, record_id: str, several_feeds: bool) -> str:
    """The printable key of a record; the feed stands in it only where its source has several."""
    place = f"{feed}/{record_id}" if several_feeds else record_id
    return f"{KEY_PREFIX[source]}:{place}"


def as_utc(value: datetime, naive_zone: Any) -> datetime:
    """An aware UTC time; a naive one is read in `naive_zone` (a tzinfo)."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=naive_zone)
    return value.astimezone(UTC)
