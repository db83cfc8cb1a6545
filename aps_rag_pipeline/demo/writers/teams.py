"""Chat channels: a Graph page of messages a month and channel, pictures beside them, and the noise that Teams adds."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec

from aps_rag_pipeline.demo.facility import Person, at
from aps_rag_pipeline.demo.items import Message, Thread

FOLDER = "teams/operations"
_TENANT = "00000000-aaaa-4bbb-8ccc-000000000000"
_URL = re.compile(r"https://\S+")


def file_name(thread: Thread) -> str:
    return f"{FOLDER}/{thread.channel}/messages_{at(thread.messages[0].minute):%Y-%m}.json"


def write(feeds: Path, threads: Iterable[Thread], pictures: Mapping[str, bytes]) -> int:
    """Write threads in order of time, one month in memory. `pictures` maps a message's image name to its bytes."""
    count, month = 0, ""
    pages: dict[str, list[dict[str, Any]]] = {}
    for thread in threads:
        name = file_name(thread)
        if name[-12:] != month:
            _flush(feeds, pages)
            month = name[-12:]
        pages.setdefault(name, []).extend(messages(thread))
        for index, message in enumerate(thread.messages):
            if message.image:
                _write_picture(feeds, thread, index, pictures[message.image])
        count += 1
    _flush(feeds, pages)
    return count


def _flush(feeds: Path, pages: dict[str, list[dict[str, Any]]]) -> None:
    for name, messages in pages.items():
        path = feeds / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A late planned thread may belong to a month that is already written.
        known = msgspec.json.decode(path.read_bytes())["value"] if path.exists() else [_joined(messages[0])]
        path.write_bytes(page([*known, *messages]))
    pages.clear()


def page(messages: list[dict[str, Any]]) -> bytes:
    """A reply of the Graph channel-messages call."""
    context = "https://graph.microsoft.com/v1.0/$metadata#chatMessages"
    return msgspec.json.format(
        msgspec.json.encode({"@odata.context": context, "@odata.count": len(messages), "value": messages}), indent=1
    )


def messages(thread: Thread) -> Iterable[dict[str, Any]]:
    for index, message in enumerate(thread.messages):
        yield message_json(thread, index, message)


def content_id(thread: Thread, index: int) -> str:
    return f"pic{thread.message_id(index)}"


def picture_name(thread: Thread, index: int) -> str:
    """Path of a message's picture below the feeds' folder."""
    folder = f"{FOLDER}/{thread.channel}/hostedContents/{thread.message_id(index)}"
    return f"{folder}/{content_id(thread, index)}.png"


def _write_picture(feeds: Path, thread: Thread, index: int, data: bytes) -> None:
    path = feeds / picture_name(thread, index)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def message_json(thread: Thread, index: int, message: Message) -> dict[str, Any]:
    number, root = thread.message_id(index), thread.message_id(0)
    when = _time(message.minute)
    body = "" if message.deleted else f"<p>{_linked(message.html)}</p>"
    if message.image and not message.deleted:
        place = f"teams/t/channels/{thread.channel}/messages/{number}/hostedContents/{content_id(thread, index)}"
        body += f'<img alt="screenshot" src="https://graph.microsoft.com/v1.0/{place}/$value" width="900">'
    base = f"https://teams.microsoft.com/l/message/19%3A{thread.channel}%40thread.tacv2/{number}"
    return {
        "id": str(number),
        "replyToId": None if index == 0 else str(root),
        "etag": str(number),
        "messageType": "message",
        "createdDateTime": when,
        "lastModifiedDateTime": when,
        "lastEditedDateTime": None,
        "deletedDateTime": when if message.deleted else None,
        "subject": None,
        "summary": None,
        "importance": "normal",
        "locale": "en-us",
        "webUrl": f"{base}?tenantId={_TENANT}&parentMessageId={root}",
        "from": None if message.deleted else _sender(message.author),
        "body": {"contentType": "html", "content": body},
        "channelIdentity": {"teamId": _TENANT, "channelId": f"19:{thread.channel}@thread.tacv2"},
        "attachments": [],
        "mentions": [],
        "reactions": [],
    }


def _sender(person: Person) -> dict[str, Any]:
    user = {"id": person.username, "displayName": person.name, "userIdentityType": "aadUser"}
    return {"application": None, "device": None, "user": user}


def _joined(first: dict[str, Any]) -> dict[str, Any]:
    """The system event that stands at the head of a month: no record, and a reader must pass it by."""
    number = str(int(first["id"]) - 86_399_987)
    event = {"@odata.type": "#microsoft.graph.membersAddedEventMessageDetail"}
    return {
        **first,
        "id": number,
        "etag": number,
        "replyToId": None,
        "messageType": "systemEventMessage",
        "from": None,
        "body": {"contentType": "html", "content": "<systemEventMessage/>"},
        "eventDetail": event,
    }


def _linked(text: str) -> str:
    escaped = html.escape(text, quote=False).replace("\n", "<br>")
    return _URL.sub(lambda match: f'<a href="{match.group()}">{match.group()}</a>', escaped)


def _time(minute: int) -> str:
    return at(minute).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
