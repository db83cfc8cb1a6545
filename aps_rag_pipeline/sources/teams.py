"""Teams channels: exports of Microsoft Graph chatMessage JSON, a record for each thread."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from aps_rag_pipeline.content.references import find_references
from aps_rag_pipeline.records import Attachment, FieldValue, Link, Part, PartKind, Record
from aps_rag_pipeline.sources.base import Failure, Ignored, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.chats.bodies import Body, plain_title, read_body
from aps_rag_pipeline.sources.chats.messages import Channel, Message, find_messages
from aps_rag_pipeline.sources.companions import companion, media_type, read_companion
from aps_rag_pipeline.sources.files import FileEntry, Listing, Unit
from aps_rag_pipeline.sources.jsonfiles import JsonFileSource, at, load_json, mapping, sequence, string
from aps_rag_pipeline.sources.wording import attribution, headline

_PICTURES = "hostedContents"
_KINDS: dict[str, PartKind] = {"table": "table", "code": "code"}


@dataclass
class Thread:
    """A record in the making."""

    id: str
    parts: list[Part] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    missing: list[Failure] = field(default_factory=list)


class TeamsFiles(JsonFileSource):
    """Folders of channels with message files in them; the unit is the folder, since a reply may come in a later file.

    Pictures lie in `hostedContents/<message id>/<content id>.<ext>` or `hostedContents/<content id>.<ext>` beside the
    message file.
    """

    key = "teams"
    version = 1
    patterns = ("*.json", "*.jsonl", "*.ndjson")

    def units(self, listing: Listing) -> Iterator[Unit]:
        folders: dict[str, list[FileEntry]] = {}
        for entry in listing.files:
            folders.setdefault(entry.name.rpartition("/")[0] or ".", []).append(entry)
        for folder, entries in folders.items():
            yield Unit(folder, tuple(entries))

    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        channel = Channel(unit.name)
        whole = True
        for entry in unit.files:
            try:
                found = load_json(self.load(entry), entry.name, self.feed.encoding)
            except UnreadableError as error:
                whole = False
                yield Failure(unit.name, entry.name, entry.name, str(error), error.remedy, error.permanent)
                continue
            if found.broken:
                whole = False
                yield Failure(unit.name, entry.name, entry.name, found.problem, "export the file again", True)
            for value in found.values:
                for message in find_messages(value.value, value.place, entry.path.parent, unit.name):
                    left_out = channel.add(message) if isinstance(message, Message) else message
                    if left_out:
                        yield left_out
        for root, messages in channel.threads().items():
            yield from self._thread(channel, root, messages, unit, whole)

    def _thread(
        self, channel: Channel, root: str, messages: list[Message], unit: Unit, whole: bool
    ) -> Iterator[Upsert | Failure | Ignored]:
        name = self._channel_name(unit)
        thread = Thread(f"{_slug(name)}/{root}")
        place = messages[0].place
        if root not in channel.messages and not whole:
            reason = "its first message is in none of the files that could be read"
            yield Failure(unit.name, thread.id, place, reason, "mend the other file of this folder", False, thread.id)
            return
        bodies: list[tuple[Message, Body]] = []
        for message in messages:
            body = Body() if message.silence else read_body(message.data)
            if message.silence or not body.blocks:
                yield Ignored(message.place, message.silence or "a message without text")
            else:
                bodies.append((message, body))
        for message, body in bodies:
            self._write(thread, channel, message, body, unit)
        if thread.parts:
            yield Upsert(self._record(thread, channel, root, messages, bodies, name, unit), unit.name, place)
            yield from thread.missing

    def _record(
        self,
        thread: Thread,
        channel: Channel,
        root: str,
        messages: list[Message],
        bodies: list[tuple[Message, Body]],
        name: str,
        unit: Unit,
    ) -> Record:
        first = channel.messages.get(root, messages[0])
        live = [message for message, _ in bodies]
        subject = string(first.data.get("subject")) if first in live else ""
        fields: dict[str, FieldValue] = {"channel": name, "message_count": len(live)}
        folders = unit.name.split("/")
        if len(folders) > 1:
            fields["team"] = folders[-2]
        people = list(dict.fromkeys(message.author for message in live if message.author))
        named = {"participants": people, "mentions": _mentioned(live)}
        fields |= {key: names for key, names in named.items() if names}
        if subject:
            fields["subject"] = subject
        if string(first.data.get("importance")) in ("high", "urgent"):
            fields["importance"] = string(first.data["importance"])
        if root not in channel.messages:
            fields["first_message_missing"] = True
        changed = (message.changed for message in messages)
        url = string(first.data.get("webUrl"))
        if not url and self.feed.url_template:
            url = self.feed.url_template.replace("{id}", thread.id)
        return Record(
            source="teams",
            feed=self.feed.name,
            id=thread.id,
            title=headline(subject or plain_title(bodies[0][1]) or f"Thread in {name}"),
            created_at=first.created or live[0].created,
            modified_at=max((moment for moment in changed if moment), default=None),
            author=first.author if first in live else live[0].author,
            url=url,
            parts=tuple(thread.parts),
            attachments=tuple(thread.attachments),
            fields=fields,
            links=_unrepeated(thread),
            access=self.feed.access,
        )

    def _write(self, thread: Thread, channel: Channel, message: Message, body: Body, unit: Unit) -> None:
        """The parts, links and pictures of one message; who spoke and when stands at the head of its first part."""
        said = attribution(message.author, message.created, self.context.zone)
        locator = f"message {message.id}"
        first = len(thread.parts)
        if said and body.blocks[0].kind in _KINDS:
            thread.parts.append(Part("transcript", f"{said}:", locator))
            said = ""
        for block in body.blocks:
            text = f"{'#' * block.level} {block.text}" if block.kind == "heading" else block.text
            last = thread.parts[-1] if len(thread.parts) > first else None
            if block.kind in _KINDS:
                thread.parts.append(Part(_KINDS[block.kind], text, locator, block.title))
            elif last and last.kind == "transcript":
                thread.parts[-1] = Part("transcript", f"{last.text}\n\n{text}", locator)
            else:
                thread.parts.append(Part("transcript", f"{said}: {text}" if said else text, locator))
                said = ""
        thread.links += body.links
        for quoted in body.quoted:
            known = channel.messages.get(quoted)
            target = f"{_slug(self._channel_name(unit))}/{channel.root_of(known) if known else quoted}"
            if quoted and target != thread.id:
                thread.links.append(Link("chat", f"TEAMS:{target}"))
        for number, picture in enumerate(dict.fromkeys(body.pictures), 1):
            self._picture(thread, message, picture, number, len(body.pictures) == 1, first, unit)

    def _picture(
        self, thread: Thread, message: Message, picture: str, number: int, only: bool, part: int, unit: Unit
    ) -> None:
        """Store a picture of a message, or remember that its bytes are missing; the thread is read without it."""
        try:
            name, data = self._bytes(message, picture, number, only)
            if len(data) > self.context.limits.max_file_mb * 1e6:
                raise UnreadableError("larger than limits.max_file_mb", remedy="raise the limit")
        except UnreadableError as error:
            content = "a picture inside the text" if picture.startswith("data:") else picture
            reason = f"picture {number} of message {message.id}: {error}"
            item = f"{thread.id}/{message.id}/{number}"
            remedy = error.remedy.replace("{content}", content)
            thread.missing.append(
                Failure(unit.name, item, message.place, reason, remedy, error.permanent, record_id=thread.id)
            )
            return
        kind = media_type(name, data)
        if not os.path.splitext(name)[1]:
            name += mimetypes.guess_extension(kind) or ""
        found = Attachment(name, kind, self.context.blobs.put(data), part, locator=f"message {message.id}")
        if all(found.sha256 != other.sha256 for other in thread.attachments):
            thread.attachments.append(found)

    def _bytes(self, message: Message, picture: str, number: int, only: bool) -> tuple[str, bytes]:
        """Name and bytes of a picture: in its address, in the message, or in a file beside it.

        Raises:
            UnreadableError: the bytes are nowhere, or are no base64.
        """
        plain = f"message-{message.id}-{number}"
        if picture.startswith("data:"):
            head, _, body = picture.partition(",")
            return plain, _base64(body) if head.endswith(";base64") else unquote_to_bytes(body)
        for content in map(mapping, sequence(message.data.get("hostedContents"))):
            if picture in (string(content.get("id")), string(content.get("@microsoft.graph.temporaryId"))):
                stated = string(content.get("contentBytes"))
                if stated:
                    return plain, _base64(stated)
        location = self.feed.location
        root = location if location.is_dir() else location.parent
        path = companion(root, _candidates(message.folder / _PICTURES, message.id, picture, only))
        if path is None:
            raise UnreadableError(
                "its bytes are not in the export",
                remedy=f"put them at {_PICTURES}/{message.id}/{{content}}.<ext> beside {message.place.split(': ')[0]}",
                permanent=False,
            )
        return path.name, read_companion(path, self.context)

    def _channel_name(self, unit: Unit) -> str:
        if unit.name != ".":
            return unit.name.rsplit("/", 1)[-1]
        location = self.feed.location
        return location.name if location.is_dir() else location.stem


def _candidates(pictures: Path, message_id: str, content_id: str, only: bool) -> Iterator[Path]:
    """Files that may hold a picture. Ids hold signs that file names cannot; exports then escape or replace them."""
    names = {content_id, quote(content_id, safe=""), content_id.replace("/", "_")}
    own = pictures / message_id
    for folder in (own, pictures):
        try:
            files = sorted(os.listdir(folder)) if _inside(folder) else []
        except OSError:  # no such folder: the picture is not there
            continue
        matching = [file for file in files if file in names or os.path.splitext(file)[0] in names]
        if not matching and only and folder == own and len(files) == 1:
            matching = files  # the one picture of the message, saved under a name of the exporter's own
        yield from (folder / file for file in matching)


def _inside(folder: Path) -> bool:
    """Whether a message id names a plain folder here, and not a way out of it."""
    return folder.name not in ("", ".", "..") and folder.is_dir()


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except (binascii.Error, ValueError) as error:
        raise UnreadableError(f"its bytes are no base64 ({error})", remedy="export the message again") from error


def _mentioned(messages: list[Message]) -> list[str]:
    names = (string(at(item, "mentionText")) for message in messages for item in sequence(message.data.get("mentions")))
    return list(dict.fromkeys(name for name in names if name))


def _unrepeated(thread: Thread) -> tuple[Link, ...]:
    """Links of the thread, one for each target: a file's address is not given again as a URL."""
    texts = "\n\n".join(part.text for part in thread.parts)
    found: dict[str, Link] = {}
    for link in (*thread.links, *find_references(texts)):
        found.setdefault(link.target, link)
    found.pop(f"TEAMS:{thread.id}", None)
    return tuple(found.values())


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name.lower()).strip("-") or "channel"


FORMS: dict[str, type[Source]] = {"files": TeamsFiles}
