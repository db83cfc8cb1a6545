"""What the services have in common: threads with tokens, files that are fetched once, listings that carry entries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urljoin

import httpx
import msgspec

from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.live import Listed, Memory, Scan, digest
from aps_rag_pipeline.sources.logbooks.model import Entry, by_id, gather
from aps_rag_pipeline.sources.logbooks.threads import ThreadWriter, is_external
from aps_rag_pipeline.sources.logbooks.units import cut_thread, is_whole, unit_records
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.net.http import Http


@dataclass(frozen=True)
class ThreadUnit(Listed):
    """A top-level entry with its replies, as the listing gave them."""

    entry: Entry


@dataclass(frozen=True)
class WebFiles:
    """The files of one unit, each fetched once. `fetch(address)` gives the bytes of a file; `key(address)` is what
    changes when they do."""

    context: SourceContext
    memory: Memory
    unit: str
    fetch: Callable[[str], bytes]
    key: Callable[[str], str] = str

    def read(self, address: str, name: str, stored: bool) -> bytes | None:
        if is_external(address):
            return None
        try:
            sha256 = self.memory.attachment(
                self.context.blobs, self.unit, self.key(address), lambda: self._get(address)
            )
        except OutageError as error:
            raise UnreadableError(
                str(error), remedy="it is fetched again with the next sync", permanent=False
            ) from error
        return self.context.blobs.get(sha256)

    def _get(self, address: str) -> bytes:
        data = self.fetch(address)
        if not data:
            raise UnreadableError("the server gives an empty file", remedy="attach it again", permanent=False)
        limit = self.context.limits.max_file_mb
        if len(data) > limit * 1e6:
            raise UnreadableError(
                f"{len(data) / 1e6:.0f} MB, more than limits.max_file_mb ({limit:g})", remedy="raise the limit"
            )
        return data


class EntriesScan(Scan[ThreadUnit]):
    """A service whose listing carries the entries whole: the token of a thread is a digest of all that it says."""

    def __init__(self, feed: Feed, context: SourceContext, memory: Memory, http: Http) -> None:
        super().__init__(feed, context, memory)
        self.http = http
        self._answers: set[str] = set()

    @abstractmethod
    def listing(self) -> Iterator[Entry | Failure | Ignored]:
        """Every live entry, replies among them. Of an entry that comes several times the last counts."""

    @abstractmethod
    def fetch(self, unit: ThreadUnit, address: str) -> bytes:
        """The bytes of a file that an entry of the unit names."""

    def key(self, entry: Entry, address: str) -> str:
        """What changes when the bytes of a file do."""
        return address

    def units(self) -> Iterator[ThreadUnit | Failure | Ignored]:
        entries: dict[str, Entry] = {}
        for found in self.listing():
            if isinstance(found, Entry):
                entries[found.id] = found
            elif isinstance(found, Failure) and found.record_id and found.record_id not in entries:
                # The entry is there, if unreadable: what is known of it stays.
                yield msgspec.structs.replace(found, unit=found.record_id, item=found.record_id)
            else:
                yield found
        tops = gather(sorted(entries.values(), key=by_id))
        self._answers = entries.keys() - {top.id for top in tops}
        for top in tops:
            yield ThreadUnit(top.id, token(top), top) if is_whole(top) else cut_thread(top, top.id)

    def read(self, unit: ThreadUnit) -> Iterator[Upsert | Failure | Ignored]:
        files = WebFiles(
            self.context,
            self.memory,
            unit.name,
            lambda address: self.fetch(unit, address),
            lambda address: self.key(unit.entry, address),
        )
        yield from unit_records([unit.entry], ThreadWriter(self.feed, self.context, unit.name, files))

    def gone(self, name: str) -> bool:
        """An entry that became a reply goes on in another record."""
        return name in self._answers or self.absent(name)

    def absent(self, name: str) -> bool:
        """Whether the service knows the entry no longer."""
        return True

    def close(self) -> None:
        self.http.close()


def token(entry: Entry) -> str:
    """A digest of everything that a thread says."""
    return digest(
        *sorted(
            repr(
                (
                    each.id, each.parent, each.title, each.text, each.author, each.created, each.modified,
                    each.modified_by, each.event, each.section, each.document, sorted(each.fields.items()),
                    each.links, sorted(each.files.items()), each.access,
                )
            )
            for each in entry.thread()
        )
    )  # fmt: skip


def joined(base: str, address: str) -> str:
    """The whole address that one found in an entry stands for; the address itself where it is none."""
    try:
        return urljoin(base, address)
    except ValueError:
        return address


def same_origin(target: str, base: str) -> bool:
    """Whether an address leads to the scheme, host and port of another, as the client that asks would read it."""
    try:
        there, here = httpx.URL(target), httpx.URL(base)
    except httpx.InvalidURL:
        return False
    same = (there.scheme, there.host, there.port) == (here.scheme, here.host, here.port)
    return same and there.userinfo in (b"", here.userinfo)
