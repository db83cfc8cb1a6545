"""PVs over Channel Access, through caproto."""

from __future__ import annotations

import functools
import logging
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import caproto
from caproto import ChannelType, ReadNotifyResponse
from caproto.threading.client import PV, Batch, Context, SharedBroadcaster

from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.pvs.answers import (
    MAX_ELEMENTS,
    SEVERITIES,
    Answer,
    Patience,
    Value,
    silent,
    without_fields,
)
from aps_rag_pipeline.sources.pvs.model import record_name, states

#: Metadata of a control structure → the field of the record that says it.
_CONTROL = {
    "units": "EGU",
    "precision": "PREC",
    "upper_disp_limit": "HOPR",
    "lower_disp_limit": "LOPR",
    "upper_ctrl_limit": "DRVH",
    "lower_ctrl_limit": "DRVL",
    "upper_alarm_limit": "HIHI",
    "upper_warning_limit": "HIGH",
    "lower_warning_limit": "LOW",
    "lower_alarm_limit": "LOLO",
}
_PORT = 5064
#: PVs that are searched for and read together: what an IOC and this client bear well.
_AT_ONCE = 500

# A circuit that breaks tells of each of its channels; here these are PVs without an answer.
logging.getLogger("caproto").setLevel(logging.CRITICAL)


class _Broadcaster(SharedBroadcaster):  # type: ignore[misc]
    """Searches at given addresses, where caproto's own searches at those of the environment, and leaves the repeater
    alone, which only tells of beacons."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self._addresses = addresses
        super().__init__(registration_retry_time=None)

    def _register(self) -> None:
        self._searching_enabled.set()

    def disconnect(self, *, wait: bool = True) -> None:
        super().disconnect(wait=False)  # its threads see it within half a second; there is nothing to wait for

    def send(self, *commands: Any) -> None:
        data = self.broadcaster.send(*commands)
        for address in self._addresses or caproto.get_client_address_list():
            udp = self.udp_sock
            if udp is not None:
                udp.sendto(data, address)


class ChannelAccess:
    """A client with circuits of its own."""

    def __init__(self, addresses: Sequence[str], port: int | None, timeout_s: float) -> None:
        found = [_resolved(address, port or _PORT) for address in addresses]
        self.timeout_s = timeout_s
        self._addresses = found
        self._context = self._opened()

    def close(self) -> None:
        self._context.disconnect()

    def ask(self, names: Sequence[str], *, fields: bool) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        patience = Patience(self.timeout_s)
        for start in range(0, len(names), _AT_ONCE):
            if start:  # channels that have been read are closed, so that a server never holds more than a block
                self._context.disconnect()
                self._context = self._opened()
            found = self._ask(names[start : start + _AT_ONCE], fields, patience.seconds)
            if any(answer.problem for answer in found.values()):
                patience.lose()
            answers |= found
        return answers

    def _opened(self) -> Context:
        return Context(_Broadcaster(self._addresses), timeout=self.timeout_s)

    def _ask(self, names: Sequence[str], fields: bool, patience_s: float) -> dict[str, Answer]:
        pvs = self._connected(names, patience_s)
        control = self._read((pv for pv in pvs.values()), "control", 1)
        timed = self._read((pvs[name] for name in control), "time", MAX_ELEMENTS) if not fields else {}
        said = self._said(list(control)) if fields else {}
        answers = {}
        for name in names:
            if name not in control:
                answers[name] = silent(name, patience_s)
            elif fields and name not in said:
                answers[name] = without_fields(name, self.timeout_s)
            else:
                answers[name] = _answer(name, pvs[name], control[name], timed.get(name), *said.get(name, ("", "")))
        return answers

    def _said(self, names: list[str]) -> dict[str, tuple[str, str]]:
        """Record types and descriptions: channels of their own, which servers that are no IOC lack."""
        asked = {name: (f"{record_name(name)}.RTYP", f"{record_name(name)}.DESC") for name in names}
        pvs = self._connected([channel for pair in asked.values() for channel in pair], self.timeout_s)
        found = {name: _text(reply.data) for name, reply in self._read(pvs.values(), "native", 1).items()}
        return {n: (found[kind], found[text]) for n, (kind, text) in asked.items() if kind in found and text in found}

    def _connected(self, names: Sequence[str], patience_s: float) -> dict[str, PV]:
        deadline = time.monotonic() + patience_s
        found = {}
        for pv in self._context.get_pvs(*dict.fromkeys(names), timeout=self.timeout_s):
            try:
                pv.wait_for_connection(timeout=max(deadline - time.monotonic(), 0.001))
                found[pv.name] = pv
            except caproto.CaprotoTimeoutError:
                continue
        return found

    def _read(self, pvs: Iterable[PV], kind: str, elements: int) -> dict[str, ReadNotifyResponse]:
        """All at once; those that do not answer in time are missing."""
        replies: dict[str, ReadNotifyResponse] = {}
        asked: list[str] = []
        complete = threading.Event()

        def keep(name: str, reply: ReadNotifyResponse) -> None:
            replies[name] = reply
            if len(replies) == len(asked):
                complete.set()

        try:
            with Batch(timeout=self.timeout_s) as batch:
                for pv in list(pvs):
                    if pv.connected:
                        count = min(pv.channel.native_data_count, elements)
                        batch.read(pv, functools.partial(keep, pv.name), data_type=kind, data_count=count)
                        asked.append(pv.name)
        except (caproto.CaprotoError, OSError):
            return replies  # a circuit that broke; what it left unanswered is silent
        if asked and len(replies) < len(asked):
            complete.wait(self.timeout_s)
        return dict(replies)


def _resolved(address: str, port: int) -> tuple[str, int]:
    host, _, own_port = address.partition(":")
    try:
        return socket.gethostbyname(host), int(own_port or port)
    except (OSError, ValueError) as error:
        raise OutageError(f"{address}: no address to search at ({error}); mend `options.addresses`") from error


def _answer(
    name: str, pv: PV, control: ReadNotifyResponse, timed: ReadNotifyResponse | None, record_type: str, description: str
) -> Answer:
    metadata = control.metadata
    fields: dict[str, str | float] = {"DESC": description} if description else {}
    for key, field in _CONTROL.items():
        value = getattr(metadata, key, None)
        if value is not None:
            fields[field] = _decoded(value) if isinstance(value, bytes) else float(value)
    labels = tuple(_decoded(label) for label in getattr(metadata, "enum_strings", ()) or ())
    kind = ChannelType(pv.channel.native_data_type).name.lower()
    count = int(pv.channel.native_data_count)
    moment = timed.metadata.timestamp if timed is not None else None
    return Answer(
        name,
        record_type=record_type,
        data_type=f"array of {kind}" if count > 1 else kind,
        elements=count,
        fields={**fields, **states(record_type, labels)},
        labels=labels,
        value=_value(timed.data, kind, count, labels) if timed is not None else None,
        severity=SEVERITIES[int((timed or control).metadata.severity)],
        time=datetime.fromtimestamp(float(getattr(moment, "timestamp", moment)), UTC) if moment is not None else None,
    )


def _value(data: Any, kind: str, count: int, labels: Sequence[str]) -> Value:
    values = list(data)
    if kind == "char" and count > 1:  # a text longer than a string can be
        return bytes(int(value) & 0xFF for value in values).split(b"\0")[0].decode("utf-8", "replace")
    plain = [
        _decoded(value) if isinstance(value, bytes) else getattr(value, "item", lambda v=value: v)() for value in values
    ]
    if count > 1:
        return plain
    first = plain[0] if plain else None
    return labels[first] if kind == "enum" and isinstance(first, int) and first < len(labels) else first


def _text(data: Any) -> str:
    values = list(data)
    return _decoded(values[0]) if values and isinstance(values[0], bytes) else str(values[0]) if values else ""


def _decoded(text: bytes) -> str:
    return text.split(b"\0")[0].decode("utf-8", "replace").strip()
