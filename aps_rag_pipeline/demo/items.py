"""What the demo writes before it has the form of a source: plain values that every writer turns into its own format."""

from __future__ import annotations

from dataclasses import dataclass, field

from aps_rag_pipeline.demo.facility import DAYS, LOG_ID_BASE, Device, Person, Shift, Signal, at

TOTAL_MINUTES = DAYS * 1440
PUBLIC = ("public",)
_SHIFT_DOCUMENTS, _SPECIAL_DOCUMENTS = 10_000, 30_000


@dataclass(slots=True)
class Reply:
    minute: int
    author: Person
    text: str

    @property
    def id(self) -> int:
        return LOG_ID_BASE + self.minute


@dataclass(slots=True)
class Entry:
    """A log entry. Its minute makes its id, so that ids rise with time and are known before anything is written."""

    minute: int
    author: Person
    text: str
    replies: list[Reply] = field(default_factory=list)
    image: str = ""
    edited_minute: int = 0

    @property
    def id(self) -> int:
        return LOG_ID_BASE + self.minute

    @property
    def key(self) -> str:
        return f"BELY:{self.id}"


@dataclass(slots=True)
class LogDocument:
    """A document of the log book: what one crew wrote in a shift, or a page of its own with `serial` > 0."""

    shift: Shift
    entries: list[Entry]
    access: tuple[str, ...] = PUBLIC
    serial: int = 0

    @property
    def id(self) -> int:
        return _SPECIAL_DOCUMENTS + self.serial if self.serial else _SHIFT_DOCUMENTS + self.shift.index


@dataclass(slots=True)
class WorkRequest:
    number: int
    minute: int
    title: str
    description: str
    device: Device
    requester: Person
    assignee: Person
    status: str = "Completed"
    priority: str = "3 - Normal"
    completed_minute: int = 0
    resolution: str = ""
    related: str = ""
    access: tuple[str, ...] = PUBLIC

    @property
    def key(self) -> str:
        return f"WRQ:{self.number}"


@dataclass(slots=True)
class Outage:
    """A downtime record."""

    id: str
    minute: int
    minutes: int
    title: str
    description: str
    device: Device
    cause: str
    reporter: Person
    beam_lost: bool = True
    log_entries: str = ""
    work_requests: str = ""
    pvs: str = ""
    access: tuple[str, ...] = PUBLIC

    @property
    def key(self) -> str:
        return f"DOWN:{self.id}"

    @property
    def end_minute(self) -> int:
        return self.minute + self.minutes

    @property
    def hours(self) -> float:
        return round((at(self.end_minute).timestamp() - at(self.minute).timestamp()) / 3600, 2)


@dataclass(slots=True)
class Message:
    minute: int
    author: Person
    html: str
    image: str = ""
    deleted: bool = False


@dataclass(slots=True)
class Thread:
    """A chat thread; the first message is its root."""

    channel: str
    serial: int
    messages: list[Message]

    @property
    def id(self) -> str:
        return str(self.message_id(0))

    def message_id(self, index: int) -> int:
        """Epoch milliseconds, as Graph does it; the serial keeps threads of one minute apart."""
        return int(at(self.messages[index].minute).timestamp()) * 1000 + (self.serial * 7 + index * 131) % 60_000

    @property
    def key(self) -> str:
        return f"TEAMS:{self.channel}/{self.id}"


@dataclass(slots=True)
class Variable:
    device: Device
    signal: Signal
    note: str = ""

    @property
    def name(self) -> str:
        return self.device.pv(self.signal.suffix)

    @property
    def key(self) -> str:
        return f"PV:{self.name}"

    @property
    def description(self) -> str:
        text = f"{self.device.name} {self.signal.words}, {self.device.kind.noun} in {self.device.place}"
        return f"{text}. {self.note}" if self.note else text


@dataclass(slots=True)
class Document:
    """A document, page, manual or paper: titled sections of paragraphs, and at most one table in each."""

    id: str
    title: str
    author: str
    minute: int
    sections: list[Section]
    form: str = "md"
    revision: str = "01"
    status: str = "Released"
    access: tuple[str, ...] = PUBLIC
    folder: str = ""
    old_revisions: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its citation key, where it is a controlled document."""
        return f"ICMS:documents/{self.id}"


@dataclass(slots=True)
class Section:
    heading: str
    paragraphs: list[str]
    table: list[list[str]] = field(default_factory=list)
    code: str = ""
