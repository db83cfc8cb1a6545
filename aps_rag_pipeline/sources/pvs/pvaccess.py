"""PVs over PVAccess, through p4p."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from p4p.client.thread import Context
from p4p.wrapper import Value as Structure

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

#: Part and member of a structure → the field of the record that says it.
_MEMBERS = {
    ("display", "description"): "DESC",
    ("display", "units"): "EGU",
    ("display", "precision"): "PREC",
    ("display", "limitHigh"): "HOPR",
    ("display", "limitLow"): "LOPR",
    ("control", "limitHigh"): "DRVH",
    ("control", "limitLow"): "DRVL",
    ("valueAlarm", "highAlarmLimit"): "HIHI",
    ("valueAlarm", "highWarningLimit"): "HIGH",
    ("valueAlarm", "lowWarningLimit"): "LOW",
    ("valueAlarm", "lowAlarmLimit"): "LOLO",
}
_TYPES = {
    "?": "boolean",
    "s": "string",
    "b": "byte",
    "h": "short",
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
}
_PORT = 5076
#: PVs that are searched for and read together.
_AT_ONCE = 1_000


class PvAccess:
    """A client with channels of its own."""

    def __init__(self, addresses: Sequence[str], port: int | None, timeout_s: float) -> None:
        searched = str(port or _PORT)
        conf = {
            "EPICS_PVA_ADDR_LIST": " ".join(a if ":" in a else f"{a}:{searched}" for a in addresses),
            "EPICS_PVA_AUTO_ADDR_LIST": "NO",
            "EPICS_PVA_BROADCAST_PORT": searched,
        }
        self.timeout_s = timeout_s
        self._context = Context("pva", conf=conf if addresses else None, useenv=not addresses, nt=False)

    def close(self) -> None:
        self._context.close()

    def ask(self, names: Sequence[str], *, fields: bool) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        patience = Patience(self.timeout_s)
        for start in range(0, len(names), _AT_ONCE):
            found = self._ask(names[start : start + _AT_ONCE], fields, patience.seconds)
            if any(answer.problem for answer in found.values()):
                patience.lose()
            answers |= found
            self._context.disconnect()  # channels that have been read are closed
        return answers

    def _ask(self, names: Sequence[str], fields: bool, patience_s: float) -> dict[str, Answer]:
        replies = dict(zip(names, self._get(list(names), patience_s), strict=True))
        answered = [name for name, reply in replies.items() if isinstance(reply, Structure)] if fields else []
        channels = [f"{record_name(name)}.RTYP" for name in answered]
        types = dict(zip(answered, self._get(channels, self.timeout_s), strict=True))
        answers = {}
        for name, reply in replies.items():
            kind = types.get(name)
            if kind is not None and not isinstance(kind, Structure):
                answers[name] = without_fields(name, self.timeout_s)
            elif isinstance(reply, TimeoutError):
                answers[name] = silent(name, patience_s)
            else:
                answers[name] = _answer(name, reply, str(kind.get("value", "")) if kind is not None else "")
        return answers

    def _get(self, names: list[str], patience_s: float) -> list[Any]:
        return list(self._context.get(names, timeout=patience_s, throw=False)) if names else []


def _answer(name: str, reply: Any, record_type: str) -> Answer:
    if not isinstance(reply, Structure):
        return Answer(name, f"an error: {reply}")
    said = reply.todict()
    members = {field: _member(said, part, key) for (part, key), field in _MEMBERS.items()}
    fields = {field: value for field, value in members.items() if value is not None and value != ""}
    value = said.get("value")
    labels: tuple[str, ...] = ()
    if isinstance(value, Mapping) and "choices" in value:
        labels = tuple(str(label) for label in value["choices"])
    seconds = _member(said, "timeStamp", "secondsPastEpoch")
    return Answer(
        name,
        record_type=record_type,
        data_type=_data_type(reply),
        fields={**fields, **states(record_type, labels)},
        labels=labels,
        value=_value(value, labels),
        severity=SEVERITIES[min(int(_member(said, "alarm", "severity") or 0), len(SEVERITIES) - 1)],
        time=datetime.fromtimestamp(seconds + _member(said, "timeStamp", "nanoseconds") / 1e9, UTC)
        if seconds
        else None,
    )


def _member(said: Mapping[str, Any], part: str, key: str) -> Any:
    held = said.get(part)
    return held.get(key) if isinstance(held, Mapping) else None


def _data_type(reply: Structure) -> str:
    """The type of the value in words; that of the whole structure where it is no value of one type."""
    types = dict(reply.type().items())
    found = types.get("value")
    if isinstance(found, str):
        array, code = found.startswith("a"), found[-1]
        name = _TYPES.get(code) or (f"u{_TYPES[code.lower()]}" if code.lower() in _TYPES else code)
        return f"array of {name}" if array else name
    kind = str(reply.getID())
    return "enum" if kind.startswith("epics:nt/NTEnum") else kind


def _value(value: Any, labels: Sequence[str]) -> Value:
    if isinstance(value, Mapping):
        index = value.get("index")
        return labels[index] if isinstance(index, int) and 0 <= index < len(labels) else None
    if hasattr(value, "tolist"):
        return list(value[:MAX_ELEMENTS].tolist())
    if isinstance(value, list):
        return [str(item) for item in value[:MAX_ELEMENTS]]
    return value if isinstance(value, str | int | float | bool) else None
