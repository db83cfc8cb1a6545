"""Teams channels: Microsoft Graph chatMessages, exported as JSON or read live, a record for each thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from aps_rag_pipeline.sources.base import Failure, Ignored, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.chats.messages import Channel, Message, find_messages
from aps_rag_pipeline.sources.chats.names import ChannelPlace, thread_id
from aps_rag_pipeline.sources.chats.threads import Room, ThreadWriter
from aps_rag_pipeline.sources.companions import companion, read_companion
from aps_rag_pipeline.sources.files import FileEntry, Listing, Unit
from aps_rag_pipeline.sources.graphchat.feed import TeamsGraph
from aps_rag_pipeline.sources.jsonfiles import JsonFileSource, load_json

_PICTURES = "hostedContents"


class TeamsFiles(JsonFileSource):
    """Folders of channels with message files in them; the unit is the folder, since a reply may come in a later file.

    Pictures lie in `hostedContents/<message id>/<content id>.<ext>` or `hostedContents/<content id>.<ext>` beside the
    message file. Where several folders carry the same channel name, the files of those that come first in order of
    names count as files of the later ones too: their threads have the first claim on an id.
    """

    key = "teams"
    version = 1
    patterns = ("*.json", "*.jsonl", "*.ndjson")

    def units(self, listing: Listing) -> Iterator[Unit]:
        folders: dict[str, list[FileEntry]] = {}
        for entry in listing.files:
            folders.setdefault(_folder(entry), []).append(entry)
        elders: dict[str, list[FileEntry]] = {}
        for place in sorted(map(self._place, folders)):
            earlier = elders.setdefault(place.slug, [])
            own = folders[place.key]
            folders[place.key] = own + earlier
            earlier += own
        for folder, entries in folders.items():
            yield Unit(folder, tuple(entries))

    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        channel = Channel(unit.name)
        whole = True
        for entry in unit.files:
            if _folder(entry) != unit.name:
                continue
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
        writer = ThreadWriter(self.feed, self.context, self._room(unit, channel))
        for root, messages in channel.threads().items():
            if root not in channel.messages and not whole:
                name, place = writer.room.record_id(root), messages[0].place
                reason = "its first message is in none of the files that could be read"
                yield Failure(unit.name, name, place, reason, "mend the other file of this folder", False, name)
            else:
                yield from writer.write(root, messages)

    def _room(self, unit: Unit, channel: Channel) -> Room:
        place = self._place(unit.name)
        rivals = self._rivals(unit)

        def record_id(root: str) -> str:
            return thread_id(place, root, (rival for rival, roots in rivals.items() if root in roots))

        def root_of(message_id: str) -> str:
            known = channel.messages.get(message_id)
            return channel.root_of(known) if known else message_id

        return Room(unit.name, place.team, place.name, record_id, root_of, self._picture)

    def _rivals(self, unit: Unit) -> dict[ChannelPlace, set[str]]:
        """Channels of the same name that come before this one, with the first messages of their threads. What cannot
        be read of them is told where they are read themselves."""
        channels: dict[str, Channel] = {}
        for entry in unit.files:
            folder = _folder(entry)
            if folder == unit.name:
                continue
            channel = channels.setdefault(folder, Channel(folder))
            try:
                found = load_json(self.load(entry), entry.name, self.feed.encoding)
            except UnreadableError:
                continue
            for value in found.values:
                for message in find_messages(value.value, value.place, entry.path.parent, folder):
                    if isinstance(message, Message):
                        channel.add(message)
        return {self._place(folder): set(channel.threads()) for folder, channel in channels.items()}

    def _picture(self, message: Message, picture: str, only: bool) -> tuple[str, bytes]:
        """Name and bytes of a picture in a file beside its message."""
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

    def _place(self, folder: str) -> ChannelPlace:
        if folder == ".":
            location = self.feed.location
            return ChannelPlace("", location.name if location.is_dir() else location.stem, folder)
        above, _, name = folder.rpartition("/")
        return ChannelPlace(above.rpartition("/")[2], name, folder)


def _folder(entry: FileEntry) -> str:
    return entry.name.rpartition("/")[0] or "."


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


FORMS: dict[str, type[Source]] = {"files": TeamsFiles, "graph": TeamsGraph}
