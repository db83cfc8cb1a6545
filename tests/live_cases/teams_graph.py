"""Microsoft Graph: threads in channels of two teams, some of which bear the same name."""

from __future__ import annotations

import os
from typing import Any

from aps_rag_pipeline.demo.live.msgraph import Channel, MemoryStore, Server, Team, put

TOKEN = "graph-token-of-the-tests"


class Case:
    """The text of items 3, 6, ... is that of a late reply; even ones leave no trace when they are deleted. Edits move
    the time of modification as Graph does it, reactions too, and each channel tells first of who came to it."""

    source = "teams"
    form = "graph"
    listing = r"/teams"
    item = ""

    def __init__(self) -> None:
        os.environ["APS_RAG_TEST_GRAPH_TOKEN"] = TOKEN
        rooms = [[Channel("19:a@thread.tacv2", "General"), Channel("19:b@thread.tacv2", "RF & Timing")]]
        rooms += [[Channel("19:c@thread.tacv2", "General")]]
        self.store = MemoryStore([Team("team-1", "Operations", rooms[0]), Team("team-2", "Controls", rooms[1])])
        self.channels = [channel for team in self.store.found for channel in team.channels]
        for channel in self.channels:
            put(channel, [message(1, event=True)])
        self.app = Server(self.store)
        self.app.tokens = {TOKEN}
        self.texts: dict[int, str] = {}
        self.edits = 0

    def feed(self, url: str) -> dict[str, Any]:
        token = {"env": "APS_RAG_TEST_GRAPH_TOKEN"}
        return {"name": "live", "source": "teams", "form": "graph", "url": url, "credentials": {"token": token}}

    def put(self, number: int, text: str) -> None:
        self.edits += 1
        first = "look at this" if number % 3 == 0 else text
        known = number in self.texts
        put(self.channel(number), [message(number * 10, first, edited=self.edits if known else 0)])
        if number % 3 == 0:
            reply = message(number * 10 + 1, text, parent=number * 10, edited=self.edits if known else 0)
            put(self.channel(number), [reply])
        self.texts[number] = text

    def delete(self, number: int) -> None:
        channel, root = self.channel(number), str(ID + number * 10)
        del self.texts[number]
        if number % 2 == 0:
            del channel.messages[root]
            channel.replies.pop(root, None)
            return
        for gone in (channel.messages[root], *channel.replies.get(root, {}).values()):
            gone.update({"deletedDateTime": moment(59), "from": None, "body": {"contentType": "html", "content": ""}})

    def wanted(self) -> dict[str, str]:
        slugs = ("general", "rf-timing", "general")
        return {f"{slugs[number % 3]}/{ID + number * 10}": text for number, text in self.texts.items()}

    def close(self) -> None:
        return

    def channel(self, number: int) -> Channel:
        return self.channels[number % 3]


ID = 1_700_000_000_000


def moment(minute: int, digits: str = "1234567") -> str:
    return f"2026-01-15T18:{minute % 60:02d}:00.{digits}Z"


def message(
    number: int, text: str = "", parent: int | None = None, edited: int = 0, event: bool = False, **more: Any
) -> dict[str, Any]:
    """A chatMessage as Graph gives it; the number of digits of its times varies as there."""
    when = moment(number, "1234567"[: number % 7 + 1])
    return {
        "id": str(ID + number),
        "replyToId": None if parent is None else str(ID + parent),
        "etag": str(ID + number + edited),
        "messageType": "systemEventMessage" if event else "message",
        "createdDateTime": when,
        "lastModifiedDateTime": moment(edited) if edited else when,
        "lastEditedDateTime": moment(edited) if edited else None,
        "deletedDateTime": None,
        "subject": None,
        "importance": "normal",
        "webUrl": f"https://teams.microsoft.com/l/message/x/{ID + number}?parentMessageId={ID + (parent or number)}",
        "from": None if event else {"application": None, "user": {"id": "8ea0e38b", "displayName": "Robin Kline"}},
        "body": {"contentType": "html", "content": "<systemEventMessage/>" if event else f"<p>{text}</p>"},
        "eventDetail": {"@odata.type": "#microsoft.graph.membersAddedEventMessageDetail"} if event else None,
        "attachments": [],
        "mentions": [],
        "reactions": [],
        **more,
    }
