"""A thread of messages made into a record, wherever the messages were read."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from aps_rag_pipeline.content.references import find_references
from aps_rag_pipeline.records import FORMER_IDS, Attachment, FieldValue, Link, Part, PartKind, Record
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.chats.bodies import Body, plain_title, read_body
from aps_rag_pipeline.sources.chats.messages import Message
from aps_rag_pipeline.sources.companions import media_type
from aps_rag_pipeline.sources.jsonfiles import at, mapping, sequence, string
from aps_rag_pipeline.sources.wording import attribution, headline

_KINDS: dict[str, PartKind] = {"table": "table", "code": "code"}


@dataclass(frozen=True)
class Room:
    """What a thread needs to know of its channel, and the ids it had before.

    `record_id` names a thread by its first message; `root_of` leads from any message to the first of its thread;
    `picture` gives name and bytes of a hosted picture: the message, the picture's id, whether the message has no other.
    It raises `UnreadableError`, whose remedy may hold `{content}` for what the picture is called.
    """

    unit: str
    team: str
    channel: str
    record_id: Callable[[str], str]
    root_of: Callable[[str], str]
    picture: Callable[[Message, str, bool], tuple[str, bytes]]
    former_ids: tuple[str, ...] = ()


@dataclass
class _Draft:
    """A record in the making."""

    id: str
    parts: list[Part] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    missing: list[Failure] = field(default_factory=list)


class ThreadWriter:
    """Makes records of the threads of one channel."""

    def __init__(self, feed: Feed, context: SourceContext, room: Room) -> None:
        self.feed, self.context, self.room = feed, context, room

    def write(self, root: str, messages: list[Message]) -> Iterator[Upsert | Failure | Ignored]:
        """The record of a thread, if anything in it speaks to readers, and what is missing of it. `messages` are in
        order of time; the first of the thread may be absent."""
        draft = _Draft(self.room.record_id(root))
        bodies: list[tuple[Message, Body]] = []
        for message in messages:
            body = Body() if message.silence else read_body(message.data)
            if message.silence or not body.blocks:
                yield Ignored(message.place, message.silence or "a message without text")
            else:
                bodies.append((message, body))
        for message, body in bodies:
            self._add(draft, message, body)
        if draft.parts:
            yield Upsert(self._record(draft, root, messages, bodies), self.room.unit, messages[0].place)
            yield from draft.missing

    def _record(self, draft: _Draft, root: str, messages: list[Message], bodies: list[tuple[Message, Body]]) -> Record:
        stated = next((message for message in messages if message.id == root), None)
        first = stated or messages[0]
        live = [message for message, _ in bodies]
        subject = string(first.data.get("subject")) if first in live else ""
        fields: dict[str, FieldValue] = {"channel": self.room.channel, "message_count": len(live)}
        if self.room.team:
            fields["team"] = self.room.team
        people = list(dict.fromkeys(message.author for message in live if message.author))
        named = {"participants": people, "mentions": _mentioned(live)}
        fields |= {key: names for key, names in named.items() if names}
        if subject:
            fields["subject"] = subject
        if string(first.data.get("importance")) in ("high", "urgent"):
            fields["importance"] = string(first.data["importance"])
        if stated is None:
            fields["first_message_missing"] = True
        if self.room.former_ids:
            fields[FORMER_IDS] = list(self.room.former_ids)
        changed = (message.changed for message in messages)
        url = string(first.data.get("webUrl"))
        if not url and self.feed.url_template:
            url = self.feed.url_template.replace("{id}", draft.id)
        return Record(
            source="teams",
            feed=self.feed.name,
            id=draft.id,
            title=headline(subject or plain_title(bodies[0][1]) or f"Thread in {self.room.channel}"),
            created_at=first.created or live[0].created,
            modified_at=max((moment for moment in changed if moment), default=None),
            author=first.author if first in live else live[0].author,
            url=url,
            parts=tuple(draft.parts),
            attachments=tuple(draft.attachments),
            fields=fields,
            links=_unrepeated(draft),
            access=self.feed.access,
        )

    def _add(self, draft: _Draft, message: Message, body: Body) -> None:
        """The parts, links and pictures of one message; who spoke and when stands at the head of its first part."""
        said = attribution(message.author, message.created, self.context.zone)
        locator = f"message {message.id}"
        first = len(draft.parts)
        if said and body.blocks[0].kind in _KINDS:
            draft.parts.append(Part("transcript", f"{said}:", locator))
            said = ""
        for block in body.blocks:
            text = f"{'#' * block.level} {block.text}" if block.kind == "heading" else block.text
            last = draft.parts[-1] if len(draft.parts) > first else None
            if block.kind in _KINDS:
                draft.parts.append(Part(_KINDS[block.kind], text, locator, block.title))
            elif last and last.kind == "transcript":
                draft.parts[-1] = Part("transcript", f"{last.text}\n\n{text}", locator)
            else:
                draft.parts.append(Part("transcript", f"{said}: {text}" if said else text, locator))
                said = ""
        draft.links += body.links
        for quoted in filter(None, body.quoted):
            target = self.room.record_id(self.room.root_of(quoted))
            if target != draft.id:
                draft.links.append(Link("chat", f"TEAMS:{target}"))
        for number, picture in enumerate(dict.fromkeys(body.pictures), 1):
            self._picture(draft, message, picture, number, len(body.pictures) == 1, first)

    def _picture(self, draft: _Draft, message: Message, picture: str, number: int, only: bool, part: int) -> None:
        """Store a picture of a message, or remember that its bytes are missing; the thread is read without it."""
        try:
            name, data = self._bytes(message, picture, number, only)
            if len(data) > self.context.limits.max_file_mb * 1e6:
                raise UnreadableError("larger than limits.max_file_mb", remedy="raise the limit")
        except UnreadableError as error:
            content = "a picture inside the text" if picture.startswith("data:") else picture
            reason = f"picture {number} of message {message.id}: {error}"
            item = f"{draft.id}/{message.id}/{number}"
            remedy = error.remedy.replace("{content}", content)
            draft.missing.append(
                Failure(self.room.unit, item, message.place, reason, remedy, error.permanent, record_id=draft.id)
            )
            return
        kind = media_type(name, data)
        if not os.path.splitext(name)[1]:
            name += mimetypes.guess_extension(kind) or ""
        found = Attachment(name, kind, self.context.blobs.put(data), part, locator=f"message {message.id}")
        if all(found.sha256 != other.sha256 for other in draft.attachments):
            draft.attachments.append(found)

    def _bytes(self, message: Message, picture: str, number: int, only: bool) -> tuple[str, bytes]:
        """Name and bytes of a picture: in its address, in the message, or where the form finds it.

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
        return self.room.picture(message, picture, only)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except (binascii.Error, ValueError) as error:
        raise UnreadableError(f"its bytes are no base64 ({error})", remedy="export the message again") from error


def _mentioned(messages: list[Message]) -> list[str]:
    names = (string(at(item, "mentionText")) for message in messages for item in sequence(message.data.get("mentions")))
    return list(dict.fromkeys(name for name in names if name))


def _unrepeated(draft: _Draft) -> tuple[Link, ...]:
    """Links of the thread, one for each target: a file's address is not given again as a URL."""
    texts = "\n\n".join(part.text for part in draft.parts)
    found: dict[str, Link] = {}
    for link in (*draft.links, *find_references(texts)):
        found.setdefault(link.target, link)
    found.pop(f"TEAMS:{draft.id}", None)
    return tuple(found.values())
