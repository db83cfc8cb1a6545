"""Messages out of Graph pages, the newest state of each, and the thread it belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.sources.base import Failure, Ignored
from aps_rag_pipeline.sources.jsonfiles import JsonObject, at, mapping, sequence, string

_PARENT = re.compile(r"[?&]parentMessageId=(\d+)")
_VERSION = re.compile(r"https://graph\.microsoft\.com/(?:beta|v1\.0)/")
#: What tells two states of a message apart; reactions and read marks do not.
_CONTENT = ("subject", "body", "from", "createdDateTime", "lastEditedDateTime", "deletedDateTime", "attachments")


@dataclass(frozen=True)
class Message:
    """A chat message and where it was read. `folder` is where the bytes of its pictures lie beside it."""

    id: str
    place: str
    folder: Path
    data: JsonObject = field(repr=False)
    root_hint: str = ""

    @property
    def parent(self) -> str:
        """The id of the message that this one answers, empty for the first of a thread."""
        return string(self.data.get("replyToId")) or self.root_hint or self.parent_in_url

    @property
    def parent_in_url(self) -> str:
        match = _PARENT.search(string(self.data.get("webUrl")))
        return match.group(1) if match and match.group(1) != self.id else ""

    @property
    def channel(self) -> str:
        return string(at(self.data, "channelIdentity.channelId")) or string(self.data.get("chatId"))

    @property
    def created(self) -> datetime | None:
        return self._time("createdDateTime")

    @property
    def changed(self) -> datetime | None:
        """When its words last changed or went away."""
        moments = (self._time(name) for name in ("createdDateTime", "lastEditedDateTime", "deletedDateTime"))
        return max((moment for moment in moments if moment), default=None)

    @property
    def state(self) -> tuple[datetime, str]:
        """Grows with every state of the message."""
        moments = (self._time("lastModifiedDateTime"), self.changed)
        return max((m for m in moments if m), default=_NEVER), string(self.data.get("etag"))

    @property
    def author(self) -> str:
        sender = mapping(self.data.get("from"))
        for kind in ("user", "application", "device", "conversation"):
            name = string(at(sender, f"{kind}.displayName"))
            if name:
                return name
        user = string(at(sender, "user.id"))
        return f"user {user[:8]}" if user else ""

    @property
    def silence(self) -> str:
        """Why the message says nothing to readers; empty when it does."""
        kind = self.data.get("messageType")
        if kind == "systemEventMessage" or self.data.get("eventDetail"):
            return "a system event"
        if kind not in (None, "message"):
            return f"a message of the unknown type {string(kind) or kind}"
        if self.data.get("deletedDateTime"):
            return "a deleted message"
        if "blockAccess" in str(at(self.data, "policyViolation.dlpAction")):
            return "a message that a data loss policy blocks"
        if "<systemEventMessage" in str(at(self.data, "body.content")):
            return "a system event"
        return ""

    def same_content(self, other: Message) -> bool:
        """Whether a reader would see the same; the version of the interface in picture addresses is no difference."""
        return all(_unversioned(self.data.get(key)) == _unversioned(other.data.get(key)) for key in _CONTENT)

    def _time(self, name: str) -> datetime | None:
        return parse_time(self.data.get(name), UTC)


def _unversioned(value: object) -> str:
    return _VERSION.sub("", str(value))


_NEVER = datetime.min.replace(tzinfo=UTC)


def find_messages(value: object, place: str, folder: Path, unit: str) -> Iterator[Message | Failure | Ignored]:
    """The messages of a JSON value: a Graph page, a list, one message, replies inside their root."""
    if isinstance(value, list):
        if not value:
            yield Ignored(place, "a page without messages")
        for number, item in enumerate(value, 1):
            yield from find_messages(item, f"{place}: message {number}", folder, unit)
        return
    item = mapping(value)
    if isinstance(item.get("value"), list):
        yield from find_messages(item["value"], place, folder, unit)
    elif "contentBytes" in item and "body" not in item:
        yield Ignored(place, "hosted content, which belongs to a message elsewhere")
    elif "body" not in item and "messageType" not in item:
        keys = ", ".join(sorted(item)[:8]) or "none"
        yield Failure(
            unit, place, place, f"not a chat message; keys: {keys}", "leave the file out with `exclude`", True
        )
    elif not string(item.get("id")):
        remedy = "export the message as Graph returns it; without an id it can be neither cited nor updated"
        yield Failure(unit, place, place, "a message without id", remedy, True)
    else:
        yield from _with_replies(item, place, folder, unit)


def _with_replies(item: JsonObject, place: str, folder: Path, unit: str) -> Iterator[Message | Failure | Ignored]:
    message = Message(string(item["id"]), place, folder, item)
    yield message
    for number, reply in enumerate(sequence(item.get("replies")), 1):
        for found in find_messages(reply, f"{place}: reply {number}", folder, unit):
            if isinstance(found, Message) and not found.parent:
                found = Message(found.id, found.place, found.folder, found.data, message.id)
            yield found


class Channel:
    """The messages of one channel by id, each in its newest state."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.messages: dict[str, Message] = {}

    def add(self, message: Message) -> Failure | Ignored | None:
        """Take a message in; says what was left out when its id was there before."""
        known = self.messages.setdefault(message.id, message)
        if known is message:
            return None
        apart = known.channel and message.channel and known.channel != message.channel
        if not apart and known.same_content(message):
            return Ignored(message.place, f"the same message as at {known.place}")
        if apart or known.state == message.state:
            what = "another channel" if apart else "other content"
            reason = f"message {message.id} stands here and, with {what}, at {known.place}; the first is kept"
            remedy = "export each channel into a folder of its own" if apart else "remove the one that is wrong"
            return Failure(self.unit, message.place, message.place, reason, remedy, True)
        older, newer = sorted((known, message), key=lambda each: each.state)
        self.messages[message.id] = newer
        return Ignored(older.place, f"an older state of the message at {newer.place}")

    def root_of(self, message: Message) -> str:
        """The id of the first message of its thread, whether that message is known or not."""
        seen = {message.id}
        while parent := self._parent(message):
            if parent in seen:  # a ring of replies: its smallest id stands for the thread
                return min(seen)
            above = self.messages.get(parent)
            if above is None:
                return parent
            seen.add(parent)
            message = above
        return message.id

    def _parent(self, message: Message) -> str:
        stated, in_url = message.parent, message.parent_in_url
        # The two can differ; the one that leads to a known message wins, the stated one otherwise.
        return in_url if in_url in self.messages and stated not in self.messages else stated

    def threads(self) -> dict[str, list[Message]]:
        """Messages by the id of their thread's first message, in order of time."""
        found: dict[str, list[Message]] = {}
        for message in self.messages.values():
            found.setdefault(self.root_of(message), []).append(message)
        return {root: in_order(messages) for root, messages in found.items()}


def in_order(messages: Iterable[Message]) -> list[Message]:
    """Messages in order of time, those without one first."""
    return sorted(messages, key=lambda message: (message.created or _NEVER, message.id))
