"""One look at the teams of a feed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import quote

from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, FeedError, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.chats import threads
from aps_rag_pipeline.sources.chats.messages import Message
from aps_rag_pipeline.sources.chats.names import ChannelPlace, thread_id
from aps_rag_pipeline.sources.former_ids import FormerIds
from aps_rag_pipeline.sources.graphchat.client import GraphClient, Loop
from aps_rag_pipeline.sources.graphchat.listing import Room, Told, find_rooms, find_teams, find_threads
from aps_rag_pipeline.sources.graphchat.options import GraphOptions
from aps_rag_pipeline.sources.jsonfiles import JsonObject
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError
from aps_rag_pipeline.sources.options import read_options
from aps_rag_pipeline.sources.patience import Patience

#: Channels that are listed at a time; the requests of a host are bounded by `network.concurrency` anyway.
_CHANNELS_AT_A_TIME = 4
_PICTURES_AT_A_TIME = LiveSource.parallel
_PERMISSION = "give the app ChannelMessage.Read.All, or have the team's owner consent to it for this team"


@dataclass(frozen=True)
class ThreadUnit(Listed):
    """A thread with all that was listed of it."""

    room: Room
    root: str
    former_ids: tuple[str, ...]
    told: Told = field(repr=False, compare=False)


class GraphScan(Scan[ThreadUnit]):
    """Threads of all channels that the feed reads.

    Nothing can be missed: each scan lists every thread with its replies, and compares their words. What is not listed
    is asked for by its own address before it counts as gone. Ids of threads follow the names of channels and teams;
    the notes remember those that they had before.
    """

    def __init__(self, feed: Feed, context: SourceContext, memory: Memory) -> None:
        super().__init__(feed, context, memory)
        self.options = read_options(feed, GraphOptions)
        self.client = GraphClient(feed, self.options, context.network)
        self.loop = Loop(f"graph-{feed.name}")
        self._teams: dict[str, str] = {}
        self._rooms: dict[str, Room] = {}
        #: Units of channels that are not to be read, that have gone, and of teams and channels that cannot be listed.
        self._left_out: set[str] = set()
        self._vanished: set[str] = set()
        self._unlisted: set[str] = set()
        #: By the unit of a channel: message id -> first message of its thread -> id of the record.
        self._roots: dict[str, dict[str, str]] = {}
        self._ids: dict[str, dict[str, str]] = {}
        self._patience = Patience(context.network, _CHANNELS_AT_A_TIME)
        #: For all that is asked one by one: channels of a team, replies of a thread, what is perhaps gone.
        self._small_patience = Patience(context.network, 1)
        self._picture_patience = Patience(context.network, _PICTURES_AT_A_TIME)

    def close(self) -> None:
        self.loop.run(self.client.close())
        self.loop.close()

    def alive(self) -> bool:
        try:
            self.loop.run(find_teams(self.client, self.options))
        except FeedError:
            return False
        return True

    def rooms(self) -> Iterator[Room | Failure | Ignored]:
        """The channels to read, and what stands in for those that cannot be listed or are not to be read.

        Raises:
            FeedError: the teams cannot be listed, or there are none where there were some.
        """
        before: dict[str, str] = self.memory.notes.get("teams", {})
        self._teams, missing = self.loop.run(find_teams(self.client, self.options))
        if not self._teams and before:
            raise FeedError(
                f"{self.feed.place}: no team is listed, but there were {len(before)}: {', '.join(before.values())}; "
                "nothing is removed. Check the app's permissions and options.teams"
            )
        teams = dict(self._teams)
        for failure in self._teams_missing(missing, before):
            self._unlisted.add(failure.unit)
            teams[failure.unit] = before.get(failure.unit, failure.unit)
            yield failure
        self.memory.notes["teams"] = teams
        for team_id, team in sorted(self._teams.items()):
            try:
                with self._small_patience.spent_on("the list"):
                    found = self.loop.run(find_rooms(self.client, team_id, team))
            except (OutageError, UnreadableError) as error:
                self._unlisted.add(team_id)
                yield self._failed(team_id, f"team {team}", error)
                continue
            yield from self._chosen(found)
        yield from self._rooms_missing()

    def _chosen(self, found: list[tuple[Room, str]]) -> Iterator[Room | Ignored]:
        for room, membership in found:
            if membership in self.options.membership:
                self._rooms[room.unit] = room
                yield room
            else:
                self._left_out.add(room.unit)
                reason = f"a channel of the kind {membership}, which options.membership does not name"
                yield Ignored(f"{room.place.team}/{room.place.name}", reason)

    def units(self) -> Iterator[ThreadUnit | Failure | Ignored]:
        rooms = []
        for found in self.rooms():
            if isinstance(found, Room):
                rooms.append(found)
            else:
                yield found
        named: list[tuple[Room, str, Told]] = []
        claims: dict[str, list[str]] = {}
        claimed: dict[str, list[str]] = self.memory.notes.get("claims", {})
        # Channels of one name are taken together, since their threads may claim the same ids.
        rooms.sort(key=lambda room: (room.place.slug, room.place))
        listed = self._listed(rooms)
        for _, group in groupby(rooms, key=lambda room: room.place.slug):
            told: list[tuple[Room, dict[str, Told]]] = []
            for room, (_, future) in zip(group, listed, strict=False):
                try:
                    told.append((room, future.result()))
                except (OutageError, UnreadableError) as error:
                    self._unlisted.add(room.unit)
                    yield self._failed(room.unit, f"channel {room.place.team}/{room.place.name}", error)
            self._name(told, claimed, claims)
            named += ((room, root, thread) for room, found in told for root, thread in found.items())
        self.memory.notes["claims"] = claims
        former = self._former_ids()
        for room, root, thread in named:
            yield self._unit(room, root, thread, former.of(f"{room.unit}/{root}"))

    def read(self, unit: ThreadUnit) -> Iterator[Upsert | Failure | Ignored]:
        yield from unit.told.left_out
        roots, ids = self._roots[unit.room.unit], self._ids[unit.room.unit]

        def picture(message: Message, content_id: str, only: bool) -> tuple[str, bytes]:
            return self._picture(unit, message, content_id)

        room = threads.Room(
            unit.name,
            unit.room.place.team,
            unit.room.place.name,
            lambda root: ids.get(root, f"{unit.room.place.slug}/{root}"),
            lambda message_id: roots.get(message_id, message_id),
            picture,
            unit.former_ids,
        )
        messages = unit.told.in_order()
        if messages:
            yield from threads.ThreadWriter(self.feed, self.context, room).write(unit.root, messages)

    def gone(self, name: str) -> bool:
        above, _, root = name.rpartition("/")
        team_id, _, channel_id = above.partition("/")
        if above in self._left_out | self._vanished or team_id in self._vanished:
            return True
        if self.options.teams and team_id not in self._teams:
            return True  # no longer asked for
        path = f"/teams/{quote(team_id)}/channels/{quote(channel_id)}/messages/{quote(root)}"
        return bool(self._ask(path).get("deletedDateTime"))

    def _ask(self, path: str) -> JsonObject:
        with self._small_patience.spent_on("it"):
            return self.loop.run(self.client.json(self.client.address(path)))

    def _listed(self, rooms: list[Room]) -> Iterator[tuple[Room, Future[dict[str, Told]]]]:
        """Listings under way, some channels ahead of the one that is looked at."""
        ahead: deque[tuple[Room, Future[dict[str, Told]]]] = deque()
        for room in rooms:
            ahead.append((room, self.loop.start(self._threads(room))))
            if len(ahead) == _CHANNELS_AT_A_TIME:
                yield ahead.popleft()
        yield from ahead

    async def _threads(self, room: Room) -> dict[str, Told]:
        with self._patience.spent_on("it"):
            return await find_threads(self.client, room, self._small_patience)

    def _name(
        self,
        told: list[tuple[Room, dict[str, Told]]],
        claimed: dict[str, list[str]],
        claims: dict[str, list[str]],
    ) -> None:
        """Give each thread of channels of one name an id of its own. `claims` are noted, so that a channel that cannot
        be listed keeps its own."""
        claimants: dict[str, set[ChannelPlace]] = {}
        for room, found in told:
            for root in found:
                claimants.setdefault(root, set()).add(room.place)
        for room, found in told:
            ids = self._ids[room.unit] = {}
            self._roots[room.unit] = {each: root for root, thread in found.items() for each in thread.messages.messages}
            for root in found:
                plain = f"{room.place.slug}/{root}"
                absent = {key for key in claimed.get(plain, []) if key in self._unlisted and key in self._rooms}
                rivals = claimants[root] | {self._rooms[key].place for key in absent}
                if len(rivals) > 1:
                    claims[plain] = sorted(rival.key for rival in rivals)
                ids[root] = thread_id(room.place, root, rivals)

    def _former_ids(self) -> FormerIds:
        """Those of all threads. What cannot be listed now is remembered as it was."""
        ids = {f"{unit}/{root}": named for unit, found in self._ids.items() for root, named in found.items()}
        for unit, named in self.memory.notes.get("ids", {}).items():
            if not self._unlisted.isdisjoint((unit.partition("/")[0], unit.rpartition("/")[0])):
                ids.setdefault(unit, named)
        return FormerIds(self.memory.notes, ids)

    def _unit(self, room: Room, root: str, told: Told, former_ids: tuple[str, ...]) -> ThreadUnit | Failure:
        name = f"{room.unit}/{root}"
        place = f"{room.place.team}/{room.place.name}: message {root}"
        if told.problem:
            return Failure(name, name, place, told.problem, "it is asked for again with the next sync", False)
        if not told.messages.messages and told.left_out:
            told_of = told.left_out[0]
            remedy = getattr(told_of, "remedy", "")
            return Failure(name, name, place, told_of.reason, remedy, True)
        names = (self._ids[room.unit][root], room.place.team, room.place.name, *former_ids)
        return ThreadUnit(name, told.state(*names), room, root, former_ids, told)

    def _picture(self, unit: ThreadUnit, message: Message, content_id: str) -> tuple[str, bytes]:
        """Name and bytes of hosted content, fetched once for each message and id."""
        path = f"/teams/{quote(unit.room.team_id)}/channels/{quote(unit.room.channel_id)}/messages/{quote(unit.root)}"
        if message.id != unit.root:
            path += f"/replies/{quote(message.id)}"
        url = self.client.address(f"{path}/hostedContents/{quote(content_id, safe='')}/$value")

        def fetch() -> bytes:
            with self._picture_patience.spent_on("it"):
                return self.loop.run(self.client.content(url))

        try:
            sha256 = self.memory.attachment(self.context.blobs, unit.name, f"{message.id}/{content_id}", fetch)
        except (OutageError, UnreadableError) as error:
            remedy = getattr(error, "remedy", "") or "it is fetched again with the next sync"
            raise UnreadableError(str(error), remedy=remedy, permanent=False) from error
        return content_id, self.context.blobs.get(sha256)

    def _teams_missing(self, missing: list[str], before: dict[str, str]) -> Iterator[Failure]:
        """Teams that keep their threads although they are not listed: those that the options name, and those that do
        not say themselves that they are gone."""
        for name in missing:
            same = [key for key, known in before.items() if name.casefold() in (key.casefold(), known.casefold())]
            for team_id in same or [name]:
                reason = f"options.teams names {name!r}, but the app sees no such team"
                yield Failure(team_id, team_id, self.feed.place, reason, "mend options.teams or let the app in", False)
        if not self.options.teams:
            for team_id in sorted(before.keys() - self._teams.keys()):
                yield from self._told_gone(team_id, f"team {before[team_id]}", f"/teams/{quote(team_id)}")

    def _rooms_missing(self) -> Iterator[Failure]:
        """The same for channels of teams that are listed."""
        before: dict[str, str] = self.memory.notes.get("channels", {})
        channels = {unit: f"{room.place.team}/{room.place.name}" for unit, room in self._rooms.items()}
        for unit, name in sorted(before.items()):
            team_id, _, channel_id = unit.partition("/")
            if unit in self._rooms or unit in self._left_out or team_id not in self._teams.keys() | self._unlisted:
                continue
            channels[unit] = name
            if team_id in self._teams and team_id not in self._unlisted:
                path = f"/teams/{quote(team_id)}/channels/{quote(channel_id)}"
                yield from self._told_gone(unit, f"channel {name}", path)
                if unit in self._vanished:
                    del channels[unit]
        self.memory.notes["channels"] = channels

    def _told_gone(self, unit: str, what: str, path: str) -> Iterator[Failure]:
        try:
            self._ask(path)
            reason = "the listing leaves it out, but it answers when it is asked for"
        except GoneError:
            self._vanished.add(unit)
            return
        except (OutageError, UnreadableError) as error:
            reason = f"the listing leaves it out, and whether it is gone cannot be told: {error}"
        self._unlisted.add(unit)
        yield Failure(unit, unit, f"{self.feed.place} {what}", f"{what}: {reason}", _PERMISSION, False)

    def _failed(self, unit: str, what: str, error: Exception) -> Failure:
        """A part that cannot be listed; its threads are kept.

        Raises:
            FeedError: it is not the part alone: the service does not answer.
        """
        if not isinstance(error, RefusedError | GoneError) and not self.alive():
            raise FeedError(f"{self.feed.place}: no longer answers; the last: {error}") from error
        remedy = _PERMISSION if isinstance(error, RefusedError) else "it is listed again with the next sync"
        return Failure(unit, unit, f"{self.feed.place} {what}", f"{what} cannot be listed: {error}", remedy, False)
