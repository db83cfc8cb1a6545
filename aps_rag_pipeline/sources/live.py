"""Live feeds: services that are asked, unit by unit.

A scan lists every live unit with a token that moves whenever the unit does, and reads those whose token moved. No
clock, window or watermark decides: an edit of an old entry, a late entry, a clock that is wrong and a change of time
zone are all seen by comparing tokens. What the listing leaves out is asked for by name before it counts as gone.
"""

from __future__ import annotations

import hashlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import (
    Blobs,
    Change,
    Complete,
    Cursor,
    Failure,
    FeedError,
    Found,
    Ignored,
    Relabel,
    Source,
    SourceContext,
    UnreadableError,
    Upsert,
)
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError

log = logging.getLogger(__name__)

#: So many items in a row that cannot be read lead to a look at whether the service is there at all.
_SUSPICIOUS_ROW = 3
#: So many times network.deadline_s may be lost to items that do not come before the rest is left to the next sync.
_PATIENCE = 3
_REST = "(the rest)"


@dataclass(frozen=True)
class Listed:
    """A unit as the listing shows it. `state` is opaque: equal means that nothing of the unit has moved, empty that
    this is not known. Subclasses carry what reading needs, the data too where the listing gives them anyway."""

    name: str
    state: str


U = TypeVar("U", bound=Listed)


@dataclass
class Memory:
    """What a feed knows from its last sync beside the tokens of its units; it is kept in the cursor."""

    #: For the scan itself; JSON values. Written anew by each scan.
    notes: dict[str, Any] = field(default_factory=dict)
    #: Unit → key of an attachment, which must change when its bytes do → sha256.
    files: dict[str, dict[str, str]] = field(default_factory=dict)

    def attachment(self, blobs: Blobs, unit: str, key: str, fetch: Callable[[], bytes]) -> str:
        """The sha256 of an attachment, fetched only if it has never been."""
        known = self.files.setdefault(unit, {})
        if known.get(key) not in blobs:
            known[key] = blobs.put(fetch())
        return known[key]


class Scan(ABC, Generic[U]):
    """One look at a live feed. It may hold connections; it is closed when the stream ends."""

    def __init__(self, feed: Feed, context: SourceContext, memory: Memory) -> None:
        self.feed = feed
        self.context = context
        self.memory = memory

    @abstractmethod
    def units(self) -> Iterator[U | Failure | Ignored]:
        """Every live unit. A `Failure` names a part of the feed that could not be listed: what lies below its unit
        (`unit` itself or `unit/...`) is kept as it is.

        Raises:
            FeedError: the listing cannot be had, is cut off, or is an error in disguise.
        """

    @abstractmethod
    def read(self, unit: U) -> Iterator[Upsert | Failure | Ignored]:
        """The live records of a unit, called from several threads where `LiveSource.parallel` is above 1.

        Raises:
            GoneError: it has gone since it was listed.
            OutageError: not now; it is tried again with the next sync.
            UnreadableError: it cannot be read.
        """

    def labels(self, unit: U) -> tuple[str, tuple[str, ...]] | None:
        """Record id and labels of a unit where the listing alone tells them: they hold also while it cannot be read."""
        return None

    def prefetch(self, units: Sequence[U]) -> None:
        """Fetch several units at once where the protocol can, before each of them is read. It may fail: what it does
        not bring, `read` asks for alone."""
        return

    def gone(self, name: str) -> bool:
        """Whether a unit that the listing leaves out is really gone.

        Raises:
            OutageError: it cannot be told now.
        """
        return True

    def alive(self) -> bool:
        """Whether the service answers; asked when several items in a row could not be read."""
        try:
            next(iter(self.units()), None)
        except FeedError:
            return False
        return True

    def close(self) -> None:
        """Let go of connections."""
        return


class LiveSource(Source, Generic[U]):
    """A feed that is read through scans."""

    look_every = timedelta(hours=6)
    unit_is_record = True
    #: Units that are prefetched and read together.
    block: ClassVar[int] = 50
    #: Threads that read a block; 1 where reading waits for nothing.
    parallel: ClassVar[int] = 4

    @abstractmethod
    def scan(self, memory: Memory) -> Scan[U]:
        """A scan of the feed.

        Raises:
            FeedError: the configuration lacks something, or the service cannot be reached.
        """

    def fingerprint(self) -> str | None:
        """Digest of the listing. Override it where the protocol has something cheaper that moves with everything."""
        with closing(self.scan(Memory())) as scan:
            return _fingerprint(scan.units())

    @property
    def tells_fingerprint(self) -> bool:
        return type(self).fingerprint is LiveSource.fingerprint

    def changes(self, cursor: Any, retry: frozenset[str] = frozenset()) -> Iterator[Change]:
        if not self._is_ours(cursor):
            cursor = None
        known: dict[str, str] = dict(cursor["units"]) if cursor else {}
        memory = Memory(dict(cursor.get("notes", {})), dict(cursor.get("files", {}))) if cursor else Memory()
        with closing(self.scan(memory)) as scan:
            reading = _Reading(self, scan, known, retry)
            yield from reading.stream()
        files = {unit: files for unit, files in memory.files.items() if unit in reading.listed and files}
        fingerprint = reading.fingerprint if self.tells_fingerprint else None
        value = {"form": self.feed.form, "units": reading.seen, "notes": memory.notes, "files": files}
        yield Cursor(value, fingerprint)

    def again(self, cursor: Any) -> Any:
        """Everything is read again, but what is gone is still told from what was never there, and attachments that
        were fetched are not fetched twice."""
        return {**cursor, "units": dict.fromkeys(cursor["units"], "")} if self._is_ours(cursor) else None

    def _is_ours(self, cursor: Any) -> bool:
        """Whether a cursor names units of this form: a feed may have been read from files before."""
        return isinstance(cursor, dict) and cursor.get("form") == self.feed.form

    def inventory(self) -> Iterator[str]:
        for change in self.changes(None):
            if isinstance(change, Upsert):
                yield change.record.id

    def check(self) -> Found:
        with closing(self.scan(Memory())) as scan:
            found = list(scan.units())
        units = sum(isinstance(item, Listed) for item in found)
        failed = next((item for item in found if isinstance(item, Failure)), None)
        detail = f"{self.feed.place} answers; {units} listed"
        if failed is not None:
            detail += f"; a part cannot be listed: {failed.reason}"
        if not units:
            raise FeedError(f"{self.feed.place}: answers, but there is nothing to read; check `url` and `options`")
        return Found(units, detail)


class _Reading(Generic[U]):
    """One stream of a live feed."""

    def __init__(self, source: LiveSource[U], scan: Scan[U], known: Mapping[str, str], retry: frozenset[str]) -> None:
        self.source, self.scan, self.known, self.retry = source, scan, known, retry
        #: The tokens up to which the units have been read: those of the next cursor.
        self.seen: dict[str, str] = {}
        self.listed: set[str] = set()
        self.fingerprint: str | None = None
        self._failed_in_a_row = 0
        self._lost_s = 0.0  # to items that could not be had

    def stream(self) -> Iterator[Change]:
        due: list[U] = []
        unlisted: list[str] = []
        listing = _Fingerprint()
        try:
            for found in self.scan.units():
                listing.add(found)
                if isinstance(found, Listed):
                    if found.name not in self.listed:  # a page may come twice
                        self.listed.add(found.name)
                        self.seen[found.name] = found.state
                        if not found.state or self.known.get(found.name) != found.state or found.name in self.retry:
                            due.append(found)
                    continue
                yield found
                if isinstance(found, Failure):
                    unlisted.append(found.unit)
        except UnreadableError as error:
            raise FeedError(f"{self.source.feed.place}: the listing cannot be read: {error}") from error
        self.fingerprint = listing.value
        if self.known and not self.listed and not unlisted:
            raise FeedError(
                f"{self.source.feed.place}: nothing is listed, but {len(self.known)} items were read from it before; "
                "nothing is removed. If they are really gone, remove the feed from facility.yaml"
            )
        vanished = self._vanished(unlisted)
        size = self.source.block
        for start in range(0, len(due), size):
            if self._lost_s > _PATIENCE * self.scan.context.network.deadline_s:
                yield from self._put_off(due[start:])
                break
            yield from self._block(due[start : start + size])
        for name in vanished:
            yield from self._farewell(name)

    def _vanished(self, unlisted: list[str]) -> list[str]:
        vanished, parts = [], set(unlisted)
        for name in self.known:
            if name in self.listed:
                continue
            if name in parts or any(name[:at] in parts for at, sign in enumerate(name) if sign == "/"):
                self.seen[name] = self.known[name]
                self.listed.add(name)
            else:
                vanished.append(name)
        return vanished

    def _block(self, units: list[U]) -> Iterator[Change]:
        try:
            self.scan.prefetch(units)
        except (OutageError, UnreadableError) as error:
            log.debug("several at once: %s; they are asked for one by one", error)
        if self.source.parallel == 1 or len(units) == 1:
            for unit in units:
                yield from self._judged(unit, self._attempt(unit))
            return
        with ThreadPoolExecutor(self.source.parallel, thread_name_prefix=f"read-{self.source.feed.name}") as pool:
            for unit, outcome in zip(units, pool.map(self._attempt, units), strict=True):
                yield from self._judged(unit, outcome)

    def _attempt(self, unit: U) -> list[Upsert | Failure | Ignored] | Exception:
        started = time.monotonic()
        try:
            return list(self.scan.read(unit))
        except Exception as error:  # judged in order by the thread that owns the stream
            if isinstance(error, OutageError):
                self._lost_s += (time.monotonic() - started) / self.source.parallel
            return error

    def _put_off(self, rest: list[U]) -> Iterator[Change]:
        """A service that answers its listing and hangs on its items must not hold up the other feeds for hours."""
        for unit in rest:
            self._not_yet(unit.name)
            yield from self._labels(unit)
        reason = f"{len(rest)} items were not asked for, since too much time went to others that did not come"
        place = self.source.feed.place
        yield Failure(_REST, _REST, place, reason, "the next sync asks for them; see why the service is slow", False)

    def _judged(self, unit: U, outcome: list[Upsert | Failure | Ignored] | Exception) -> Iterator[Change]:
        match outcome:
            case list():
                self._failed_in_a_row = 0
                yield from outcome
                failures = [change for change in outcome if isinstance(change, Failure)]
                if not any(failure.item == failure.unit for failure in failures):
                    yield Complete(unit.name)
                if any(not failure.permanent for failure in failures):
                    self._not_yet(unit.name)
            case GoneError():
                self._failed_in_a_row = 0
                self.seen.pop(unit.name, None)
                yield Complete(unit.name)
            case OutageError():
                self._not_yet(unit.name)
                yield from self._labels(unit)
                yield self._failure(unit.name, str(outcome), "it is tried again with the next sync", False)
                self._suspect(outcome)
            case UnreadableError():
                if not outcome.permanent:
                    self._not_yet(unit.name)
                yield from self._labels(unit)
                yield self._failure(unit.name, str(outcome), outcome.remedy, outcome.permanent)
            case FeedError():
                raise outcome
            case _:
                # A reply of an unexpected shape must cost this unit and nothing else.
                log.debug("reading %s", unit.name, exc_info=outcome)
                reason = f"could not be understood ({type(outcome).__name__}: {outcome})"
                self._not_yet(unit.name)
                yield from self._labels(unit)
                yield self._failure(unit.name, reason, "look at it in its own program", False)

    def _labels(self, unit: U) -> Iterator[Change]:
        told = self.scan.labels(unit)
        if told is not None:
            if unit.name in self.known:
                self.seen[unit.name] = ""  # its old token would not tell that the old labels are in force again
            yield Relabel(*told)

    def _suspect(self, outage: OutageError) -> None:
        """A row of failures is either an outage or that many bad items; only the first ends the stream."""
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= _SUSPICIOUS_ROW:
            self._failed_in_a_row = 0
            if not self.scan.alive():
                raise FeedError(f"{self.source.feed.place}: no longer answers; the last: {outage}") from outage

    def _not_yet(self, name: str) -> None:
        """The next sync reads the unit again, whatever its token."""
        if name in self.known:
            self.seen[name] = "" if self.known[name] == self.seen.get(name) else self.known[name]
        else:
            self.seen.pop(name, None)

    def _farewell(self, name: str) -> Iterator[Change]:
        try:
            if self.scan.gone(name):
                yield Complete(name)
                return
            reason = "the listing leaves it out, but it answers when it is asked for; it is kept"
        except GoneError:
            yield Complete(name)
            return
        except Exception as error:  # whatever an odd reply does to a reader, it proves nothing
            if isinstance(error, FeedError) and not isinstance(error, OutageError):
                raise
            reason = f"the listing leaves it out, and whether it is gone cannot be told: {error}"
        self.seen[name] = self.known[name]
        self.listed.add(name)
        yield self._failure(name, reason, "it is asked for again with the next sync", False)

    def _failure(self, name: str, reason: str, remedy: str, permanent: bool) -> Failure:
        return Failure(name, name, f"{self.source.feed.place} {name}", reason, remedy, permanent)


class _Fingerprint:
    """Digest of a listing, whatever its order; unknown where a part or a token of it is."""

    def __init__(self) -> None:
        self._lines: set[str] = set()
        self._unknown = False

    def add(self, found: Listed | Failure | Ignored) -> None:
        if isinstance(found, Listed):
            self._lines.add(f"{found.name}|{found.state}")
            self._unknown |= not found.state
        elif isinstance(found, Failure):
            self._unknown = True

    @property
    def value(self) -> str | None:
        return None if self._unknown else digest(*sorted(self._lines))


def _fingerprint(listing: Iterable[Listed | Failure | Ignored]) -> str | None:
    made = _Fingerprint()
    for found in listing:
        made.add(found)
    return made.value


def digest(*values: object) -> str:
    """A short token of values, for states and fingerprints."""
    return hashlib.blake2b(
        "\x1f".join(map(str, values)).encode("utf-8", "backslashreplace"), digest_size=12
    ).hexdigest()
