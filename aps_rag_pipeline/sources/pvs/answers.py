"""What a PV answers when it is asked over the network, whichever protocol it speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

Value: TypeAlias = float | int | str | bool | list[float] | list[str] | None
ProtocolName = Literal["channel_access", "pvaccess"]

SEVERITIES = ("NO_ALARM", "MINOR", "MAJOR", "INVALID")
#: Elements of an array that are given as its value.
MAX_ELEMENTS = 1_000


@dataclass(frozen=True)
class Answer:
    """One PV. `fields` are those of its record, as the protocol's metadata tells them; with a `problem` nothing else
    is known. An enumeration has the name of its state as its value."""

    name: str
    problem: str = ""
    record_type: str = ""
    data_type: str = ""
    elements: int = 0
    fields: dict[str, str | float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    value: Value = None
    severity: str = ""
    time: datetime | None = None

    @property
    def units(self) -> str:
        return str(self.fields.get("EGU", ""))


class Patience:
    """How long a block of PVs is waited for: the time-out, and half as long after each block with silent ones, so that
    thousands of them cost a few time-outs and not thousands."""

    _LEAST_S = 0.5

    def __init__(self, timeout_s: float) -> None:
        self.seconds = timeout_s

    def lose(self) -> None:
        self.seconds = max(self.seconds / 2, min(self.seconds, self._LEAST_S))


class Client(Protocol):
    """A client of one protocol. `ask` goes block by block; those that do not answer cost a few time-outs in all."""

    def ask(self, names: Sequence[str], *, fields: bool) -> dict[str, Answer]:
        """An answer for each name; with `fields` the record's type and description are asked for too, and a PV that
        does not tell them counts as one that does not answer."""
        ...

    def close(self) -> None: ...


def open_client(protocol: ProtocolName, addresses: Sequence[str], port: int | None, timeout_s: float) -> Client:
    """A client that searches at `addresses` (`host` or `host:port`), or as the environment says where there are none.
    `port` is where servers are searched for when an address names none (5064, PVAccess: 5076)."""
    if protocol == "channel_access":
        from aps_rag_pipeline.sources.pvs.channel_access import ChannelAccess

        return ChannelAccess(addresses, port, timeout_s)
    from aps_rag_pipeline.sources.pvs.pvaccess import PvAccess

    return PvAccess(addresses, port, timeout_s)


def silent(name: str, timeout_s: float) -> Answer:
    return Answer(name, f"no answer within {timeout_s:g} s")


def without_fields(name: str, timeout_s: float) -> Answer:
    return Answer(
        name,
        f"it answers, but not the fields of its record (.RTYP, .DESC) within {timeout_s:g} s; "
        "for servers that are no IOC set `options.fields: false`",
    )
