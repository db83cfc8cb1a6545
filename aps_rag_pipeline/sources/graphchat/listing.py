"""What there is: teams, their channels, and the threads of a channel with everything said in them.

Threads are listed whole, replies included. Graph's `delta` tells of first messages only, so a late reply to an old
thread would never be seen, and a window of time would lose edits; the token of a thread is a digest of its words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from aps_rag_pipeline.sources.base import Failure, Ignored, UnreadableError
from aps_rag_pipeline.sources.chats.messages import Channel, Message, find_messages, in_order
from aps_rag_pipeline.sources.chats.names import ChannelPlace
from aps_rag_pipeline.sources.graphchat.client import GraphClient
from aps_rag_pipeline.sources.graphchat.options import GraphOptions
from aps_rag_pipeline.sources.jsonfiles import JsonObject, mapping, string
from aps_rag_pipeline.sources.live import digest
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.patience import Patience

#: The most that Graph gives of messages at a time.
_PAGE = "50"
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
#: What moves although a reader sees the same.
_VOLATILE = frozenset(("etag", "lastModifiedDateTime", "reactions", "replies", "messageHistory"))


@dataclass(frozen=True)
class Room:
    """A channel: `unit`, the ids of team and channel, is what all its threads' units begin with."""

    team_id: str
    channel_id: str
    place: ChannelPlace

    @property
    def unit(self) -> str:
        return f"{self.team_id}/{self.channel_id}"


@dataclass
class Told:
    """A thread as it was listed: its messages in their newest state, and what of it is no message."""

    messages: Channel
    left_out: list[Failure | Ignored] = field(default_factory=list)
    problem: str = ""

    def in_order(self) -> list[Message]:
        """The messages in order of time. The listing says that they are one thread, whatever else they say."""
        return in_order(self.messages.messages.values())

    def state(self, *names: str) -> str:
        """Moves with everything a reader can see of the thread, and with the `names` it goes under."""
        said = (
            json.dumps(_visible(message.data), sort_keys=True)
            for _, message in sorted(self.messages.messages.items(), key=lambda item: item[0])
        )
        troubles = sorted(f"{found.place} {found.reason}" for found in self.left_out if isinstance(found, Failure))
        return digest(*names, *said, *troubles)


async def find_teams(client: GraphClient, options: GraphOptions) -> tuple[dict[str, str], list[str]]:
    """Names of the teams to read by id, and what of `options.teams` is none of them.

    Raises:
        OutageError: the teams cannot be listed.
    """
    if options.teams and all(_GUID.fullmatch(name) for name in options.teams):
        return await _teams_by_id(client, options.teams)
    found: dict[str, str] = {}
    async for values in client.pages(client.address("/teams")):
        found |= {string(team.get("id")): string(team.get("displayName")) for team in map(mapping, values)}
    found.pop("", None)
    if not options.teams:
        return found, []
    wanted = {name.casefold() for name in options.teams}
    chosen = {key: name for key, name in found.items() if {key.casefold(), name.casefold()} & wanted}
    answered = {text.casefold() for pair in chosen.items() for text in pair}
    return chosen, [name for name in options.teams if name.casefold() not in answered]


async def _teams_by_id(client: GraphClient, ids: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """An app may be let into single teams and not be allowed to list them all."""
    found, missing = {}, []
    for team_id in ids:
        try:
            team = await client.json(client.address(f"/teams/{quote(team_id)}"))
        except GoneError:
            missing.append(team_id)
        else:
            found[string(team.get("id")) or team_id] = string(team.get("displayName"))
    return found, missing


async def find_rooms(client: GraphClient, team_id: str, team: str) -> list[tuple[Room, str]]:
    """The channels of a team, each with its kind of membership.

    Raises:
        OutageError: they cannot be listed, or there is none, which no team can be without.
    """
    found = []
    url = client.address(f"/teams/{quote(team_id)}/channels")
    async for values in client.pages(url):
        for channel in map(mapping, values):
            channel_id = string(channel.get("id"))
            name = string(channel.get("displayName"))
            room = Room(team_id, channel_id, ChannelPlace(team, name, f"{team_id}/{channel_id}"))
            if channel_id:
                found.append((room, string(channel.get("membershipType")) or "standard"))
    if not found:
        raise OutageError(f"{url}: no channel is listed, but every team has one")
    return found


async def find_threads(client: GraphClient, room: Room, patience: Patience) -> dict[str, Told]:
    """All threads of a channel by the id of their first message; one without an id goes by the place it was at.
    `patience` is spent on replies that have to be asked for.

    Raises:
        OutageError: they cannot be listed to the end.
    """
    path = f"/teams/{quote(room.team_id)}/channels/{quote(room.channel_id)}/messages"
    found: dict[str, Told] = {}
    number = 0
    async for values in client.pages(client.address(path, {"$top": _PAGE, "$expand": "replies"})):
        for value in values:
            number += 1
            first = mapping(value)
            root = string(first.get("id")) or f"without-id-{number}"
            told = found.setdefault(root, Told(Channel(f"{room.unit}/{root}")))
            try:
                replies = await _replies(client, f"{path}/{quote(root)}", first, patience)
            except (OutageError, UnreadableError) as error:
                told.problem = f"its replies cannot be listed: {error}"
                continue
            for each in _messages({**first, "replies": replies}, room, root):
                left_out = told.messages.add(each) if isinstance(each, Message) else each
                if left_out is not None:
                    told.left_out.append(left_out)
    return found


async def _replies(client: GraphClient, path: str, first: JsonObject, patience: Patience) -> list[object]:
    """The replies that came with a message, and those behind their own link; asked for where none came along."""
    stated = first.get("replies")
    if not string(first.get("id")):
        return []
    if isinstance(stated, list):
        replies, url = list(stated), string(first.get("replies@odata.nextLink"))
    else:
        replies, url = [], client.address(f"{path}/replies", {"$top": _PAGE})
    if url:
        with patience.spent_on("the rest of it"):
            async for values in client.pages(url):
                replies += values
    return replies


def _messages(first: JsonObject, room: Room, root: str) -> Iterator[Message | Failure | Ignored]:
    place = f"{room.place.team}/{room.place.name}: message {root}"
    return find_messages(first, place, Path(), f"{room.unit}/{root}")


def _visible(data: JsonObject) -> JsonObject:
    return {key: value for key, value in data.items() if key not in _VOLATILE and "@odata." not in key}
