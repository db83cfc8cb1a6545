"""The contract between a source and the sync: what a feed may say about itself, and nothing else.

A source is read in *units*, the smallest thing that can be fetched and judged whole: a file, a log document, a page of
rows. `Complete(unit)` states that every live record of that unit has been given in this stream, so that whatever the
catalog still holds of the unit is gone. A unit that could not be read is a `Failure` and loses nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Protocol
from zoneinfo import ZoneInfo

import msgspec

from aps_rag_pipeline.records import Attachment, Record
from aps_rag_pipeline.settings import Feed, Limits, Network


class FeedError(Exception):
    """The feed as a whole cannot be read: an outage, never an emptiness. Nothing of it is changed."""


class UnreadableError(Exception):
    """One item cannot be read. `permanent` means that only a change of the item itself can help."""

    def __init__(self, reason: str, *, remedy: str = "", permanent: bool = True) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.permanent = permanent


class Upsert(msgspec.Struct, frozen=True, tag="upsert"):
    """A live record. `place` says where it was read (file and row), for messages to people."""

    record: Record
    unit: str
    place: str


class Complete(msgspec.Struct, frozen=True, tag="complete"):
    """Every live record of the unit has been given; a unit that no longer exists is complete without any."""

    unit: str


class Removal(msgspec.Struct, frozen=True, tag="removal"):
    """The source states that this record is gone."""

    id: str


class Relabel(msgspec.Struct, frozen=True, tag="relabel"):
    """The labels of a record whose text cannot be read now: who may see the version that is served."""

    id: str
    access: tuple[str, ...]


class Failure(msgspec.Struct, frozen=True, tag="failure", omit_defaults=True):
    """An item that could not be read. It is remembered and retried; `record_id`, where known, keeps its old version.

    With `item` equal to `unit` the whole unit failed and must not be followed by its `Complete`.
    """

    unit: str
    item: str
    place: str
    reason: str
    remedy: str = ""
    permanent: bool = False
    record_id: str = ""


class Ignored(msgspec.Struct, frozen=True, tag="ignored"):
    """Something that is not a record by design (a lock file, a binary, a system event): counted, not retried."""

    place: str
    reason: str


class Cursor(msgspec.Struct, frozen=True, tag="cursor", omit_defaults=True):
    """The last item of a complete stream; a stream without it was cut off and moves no cursor. `fingerprint` is that of
    what the stream listed, from a source that tells it."""

    value: Any
    fingerprint: str | None = None


Change = Upsert | Complete | Removal | Relabel | Failure | Ignored | Cursor


class Blobs(Protocol):
    """Where bytes of attachments go."""

    def put(self, data: bytes) -> str:
        """Store the bytes once and return their sha256 in hex."""
        ...

    def __contains__(self, sha256: object) -> bool: ...

    def get(self, sha256: str) -> bytes: ...


@dataclass(frozen=True)
class SourceContext:
    """What a source may use besides its feed. `scratch` is a folder of the feed's own, for what it fetched and may
    fetch again (a clone); it need not exist."""

    zone: ZoneInfo
    blobs: Blobs
    limits: Limits
    network: Network = field(default_factory=Network)
    scratch: Path = Path("scratch")


@dataclass(frozen=True)
class Found:
    """What `aps-rag config check` says of a feed."""

    units: int
    detail: str


class Source(ABC):
    """One feed of one source. Implementations hold no state between calls."""

    #: Key of the source in `records.SOURCES`.
    key: ClassVar[str]
    #: Raise it when the same bytes would now give another record: every unit of the feed is then read again.
    version: ClassVar[int] = 1
    #: Whether a unit is one item for good, whatever id its record bears: a purge then keeps out the unit too.
    unit_is_record: ClassVar[bool] = False
    #: The pause between two looks of a sensor at a feed in which nothing moves; looking may cost a whole listing.
    look_every: ClassVar[timedelta] = timedelta(0)

    def __init__(self, feed: Feed, context: SourceContext) -> None:
        self.feed = feed
        self.context = context

    @abstractmethod
    def fingerprint(self) -> str | None:
        """Cheap digest of the feed's state; equal means nothing has moved, None means unknown: look.

        Raises:
            FeedError: the feed cannot be reached.
        """

    @property
    def tells_fingerprint(self) -> bool:
        """Whether the stream ends with the fingerprint, so that nobody need list the feed twice."""
        return False

    @abstractmethod
    def changes(self, cursor: Any, retry: frozenset[str] = frozenset()) -> Iterator[Change]:
        """What moved since `cursor` (None: everything), and the units of `retry` whatever the cursor says.

        Raises:
            FeedError: the feed cannot be read; the stream so far is thrown away.
        """

    @abstractmethod
    def inventory(self) -> Iterator[str]:
        """The ids of all live records, for reconciliation."""

    def again(self, cursor: Any) -> Any:
        """The cursor from which everything is read once more, to reconcile; None starts from nothing."""
        return None

    def fetch_attachment(self, attachment: Attachment) -> bytes:
        """The bytes of an attachment that was not stored with its record.

        Raises:
            UnreadableError: it cannot be had alone.
        """
        raise UnreadableError(
            f"{attachment.name}: attachments are read together with their record",
            remedy="sync the feed again",
            permanent=False,
        )

    @abstractmethod
    def check(self) -> Found:
        """Look at the feed without reading it all.

        Raises:
            FeedError: with what is wrong and what would help.
        """
