"""Log entries with their replies as records."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from aps_rag_pipeline.content.dates import iso_utc, parse_time
from aps_rag_pipeline.content.markup import Block, markdown_blocks, markdown_links
from aps_rag_pipeline.content.references import find_references
from aps_rag_pipeline.records import Attachment, FieldValue, Link, Part, PartKind, Record
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, SourceContext, UnreadableError
from aps_rag_pipeline.sources.companions import companion, file_name, media_type, read_companion
from aps_rag_pipeline.sources.logbooks.model import Entry
from aps_rag_pipeline.sources.wording import attribution, headline

_STORED = re.compile(r"/(?:log/attachments|api/Downloads/Attachments)/([^?#]+)", re.IGNORECASE)
#: The server keeps pictures in three sizes and hands out names without the ending that tells them apart.
_SIZES = ("", ".original", ".scaled")
#: Replies without a readable time stand behind the others.
_LATE = datetime.max.replace(tzinfo=UTC)
_MARKS = re.compile(r"^[#>*\s\-+]+|[*_`~]{1,3}")
_EVENT = re.compile(
    r"(?:(?:event|fault|occurrence) time|time of (?:the )?(?:event|fault|occurrence)|(?:occurred|happened) (?:at|on)"
    r"|late entry (?:for|from))[\s:*_]{0,6}(?:(?P<date>\d{4}-\d\d-\d\d|\d{1,2}/\d{1,2}/\d{4})[T ,]{1,3}(?:at )?)?"
    r"(?P<clock>\d{1,2}:\d\d(?::\d\d)?(?: ?[ap]m\b)?(?:Z|[+-]\d\d:?\d\d)?)",
    re.IGNORECASE,
)


class AttachedFiles(Protocol):
    """Where the files lie that entries name."""

    def read(self, address: str, name: str, stored: bool) -> bytes | None:
        """The bytes of a file; None where files are not wanted. `stored` says that the server gave it its name.

        Raises:
            UnreadableError: it cannot be had.
        """
        ...


@dataclass(frozen=True)
class FilesBeside:
    """Files of an export: beside the file that names them, or in a folder of attachments there or at the root."""

    folder: Path
    root: Path
    context: SourceContext

    def read(self, address: str, name: str, stored: bool) -> bytes:
        folders = dict.fromkeys((self.folder, self.root))
        beside = [] if stored else [folder / address for folder in folders]
        path = companion(self.root, [*beside, *(f / "attachments" / (name + size) for f in folders for size in _SIZES)])
        if path is None:
            raise UnreadableError(
                "the attachment is not in the export",
                remedy=f"put the file at attachments/{name} in the feed's folder",
                permanent=False,
            )
        return read_companion(path, self.context)


@dataclass
class Thread:
    """A record in the making: one entry and what its replies add."""

    entry: Entry
    parts: list[Part] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class ThreadWriter:
    """Turns the entries of one unit into records."""

    feed: Feed
    context: SourceContext
    unit: str
    attached: AttachedFiles

    def record(self, entry: Entry) -> tuple[Record, list[Failure]]:
        """The record of a top-level entry, and a failure for each attachment that is not where it should be."""
        thread = Thread(entry)
        moments = [(self._time(each.created), self._time(each.modified)) for each in entry.thread()]
        self._write(thread, entry, "")
        replies = sorted(list(entry.thread())[1:], key=lambda reply: self._time(reply.created) or _LATE)
        for reply in replies:
            said = attribution(reply.author, self._time(reply.created), self.context.zone)
            self._write(thread, reply, f"{said}: " if said else "")
        for each in entry.thread():
            for address, shown in each.files.items():
                self._attach(thread, each, address, shown, -1)
        texts = "\n\n".join(each.text for each in entry.thread())
        stated = [*entry.links, *thread.links, *find_references(_without_attachments(texts))]
        if entry.parent:
            stated.insert(0, Link("reply_to", entry.parent))
        itself = f"BELY:{entry.id}"
        record = Record(
            source="bely",
            feed=self.feed.name,
            id=entry.id,
            title=self._title(entry),
            created_at=moments[0][0],
            modified_at=max((moment for pair in moments for moment in pair if moment), default=None),
            author=entry.author,
            url=self._url(entry),
            parts=tuple(thread.parts),
            attachments=tuple(thread.attachments),
            fields=self._fields(entry, len(replies), moments[0]),
            links=tuple(dict.fromkeys(link for link in stated if link.target != itself)),
            access=next((own for own in (entry.access, entry.document.access) if own is not None), self.feed.access),
        )
        return record, thread.failures

    def _time(self, value: object) -> datetime | None:
        moment = parse_time(value, self.context.zone, self.feed.date_order)
        # Stores round times to seconds when they are saved again; a fraction would make an old entry look changed.
        return moment.replace(microsecond=0) if moment else None

    def _write(self, thread: Thread, entry: Entry, said: str) -> None:
        """The text of one entry as parts; pictures and files that it shows become attachments behind them."""
        kinds: dict[str, PartKind] = {"prose": "transcript" if said else "prose", "table": "table", "code": "code"}
        for block in markdown_blocks(entry.text.strip()):
            number = len(thread.parts)
            text = block.text if block.kind == "code" else self._readable(thread, entry, block, number)
            if said and block.kind == "prose":
                text, said = said + text, ""
            thread.parts.append(Part(kinds[block.kind], text, f"log {entry.id}", block.title))

    def _readable(self, thread: Thread, entry: Entry, block: Block, part: int) -> str:
        """Markdown with its links written out for readers: a picture by its caption, a link with its address."""

        def written(text: str, target: str, image: bool) -> str:
            if _STORED.search(target) or target in entry.files:
                name = self._attach(thread, entry, target, text, part)
                return f"[{'picture' if image else 'file'}: {text or name}]"
            return f"{text} ({target})" if text and text != target else target

        return _rewrite(block.text, written)

    def _attach(self, thread: Thread, entry: Entry, address: str, shown: str, part: int) -> str:
        """Add the file at an address to the record; returns the name that readers know it by."""
        stored = _STORED.search(address)
        name = file_name(_bare(stored.group(1)) if stored else address)
        if not name or (is_external(address) and not stored):
            thread.links.append(Link("url", address, shown))
            return name or address
        shown = entry.files.get(address) or shown
        known = shown if "." in shown else name
        item = f"{entry.id}/{name}"
        if any(item == failure.item for failure in thread.failures):
            return known
        try:
            data = entry.pasted.get(address) or self.attached.read(address, name, stored is not None)
        except UnreadableError as error:
            reason = f"{known}: {error}"
            thread.failures.append(
                Failure(self.unit, item, entry.place, reason, error.remedy, error.permanent, thread.entry.id)
            )
            return known
        if data is None:
            return known
        kind = media_type(name if "." in name else known, data)
        found = Attachment(known, kind, self.context.blobs.put(data), part, locator=f"log {entry.id}")
        if all(found.sha256 != other.sha256 for other in thread.attachments):
            thread.attachments.append(found)
        return known

    def _title(self, entry: Entry) -> str:
        if entry.title:
            return headline(entry.title)
        plain = _rewrite(entry.text, lambda text, target, image: "" if image else text)
        for line in plain.split("\n"):
            words = " ".join(_MARKS.sub("", line).split())
            if any(char.isalnum() for char in words):
                return headline(words)
        return headline(entry.document.name) or f"Log entry {entry.id}"

    def _fields(
        self, entry: Entry, replies: int, moments: tuple[datetime | None, datetime | None]
    ) -> dict[str, FieldValue]:
        fields: dict[str, FieldValue] = {**entry.document.fields, **entry.fields}
        named = {"document": entry.document.name, "document_id": entry.document.id, "section": entry.section}
        fields |= {name: text for name, text in named.items() if text}
        if replies:
            fields["reply_count"] = replies
        created, modified = moments
        if entry.modified_by and entry.modified_by != entry.author and created and modified and modified > created:
            fields["edited_by"] = entry.modified_by
        if created is None and entry.created not in (None, ""):
            fields["created_raw"] = str(entry.created)
        if modified is None and entry.modified not in (None, ""):
            fields["modified_raw"] = str(entry.modified)
        stated, raw = self._event(entry, created)
        if stated:
            fields["event_time"] = iso_utc(stated)
        elif raw:
            fields["event_time_raw"] = raw
        return fields

    def _event(self, entry: Entry, created: datetime | None) -> tuple[datetime | None, str]:
        """When it happened, where the entry says so: a field of its own, or its text; and what could not be read."""
        if entry.event not in (None, ""):
            return self._time(entry.event), str(entry.event)
        match = _EVENT.search(entry.text)
        if not match:
            return None, ""
        zone = self.context.zone
        day = match["date"] or (created.astimezone(zone).date().isoformat() if created else "")
        moment = self._time(f"{day} {match['clock']}") if day else None
        if moment and created and not match["date"] and moment > created:
            moment = self._time(f"{created.astimezone(zone).date() - timedelta(days=1)} {match['clock']}")
        return moment, match.group()

    def _url(self, entry: Entry) -> str:
        template = self.feed.url_template
        return template.replace("{id}", entry.id).replace("{document}", entry.document.id) if template else ""


def is_external(address: str) -> bool:
    """Whether an address names a host, with or without a scheme."""
    return "://" in address.replace("\\", "/") or address.startswith("//")


def _bare(stored: str) -> str:
    """The stored name in a download address, without the size that may follow it."""
    return re.sub(r"/(?:scaled|thumbnail|md5)/?$", "", stored)


def _rewrite(text: str, written: Callable[[str, str, bool], str]) -> str:
    """Markdown with each outermost link put through `written(text, target, image)`; a picture inside one goes along."""
    pieces: list[str] = []
    end = 0
    for link in markdown_links(text):
        if link.start < end:
            written(link.text, link.target, link.image)
            continue
        pieces += [text[end : link.start], written(link.text, link.target, link.image)]
        end = link.end
    return "".join([*pieces, text[end:]])


def _without_attachments(text: str) -> str:
    return _rewrite(text, lambda said, target, image: said if _STORED.search(target) else f"[{said}]({target})")
