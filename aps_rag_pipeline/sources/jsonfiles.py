"""Feeds whose files hold JSON: whole documents or one value a line, judged and read with care for what is cut off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from aps_rag_pipeline.content.text import clean, decode
from aps_rag_pipeline.sources.base import Change, Complete, Failure, UnreadableError
from aps_rag_pipeline.sources.files import FileSource, Unit

JsonObject = dict[str, object]

#: Bad lines of one file that are named; the others are only counted.
_NAMED_LINES = 5


@dataclass(frozen=True)
class Value:
    """A JSON value and where it stands."""

    value: object
    place: str


@dataclass
class JsonText:
    """What a file holds: its values, and the lines that are none."""

    values: list[Value] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def problem(self) -> str:
        """What is wrong with the broken lines, in words; empty when none is."""
        if not self.broken:
            return ""
        more = len(self.broken) - _NAMED_LINES
        return "; ".join(self.broken[:_NAMED_LINES]) + (f"; and {more} more lines" if more > 0 else "")


class JsonFileSource(FileSource):
    """Files of JSON. When a part of a unit cannot be read, what was read counts and nothing of the unit is removed."""

    def _read_whole(self, unit: Unit) -> Iterator[Change]:
        changes = list(super()._read_whole(unit))
        wholes = {unit.name, *(entry.name for entry in unit.files)}
        in_part = any(isinstance(change, Failure) and change.item in wholes for change in changes)
        yield from (change for change in changes if not (in_part and isinstance(change, Complete)))


def read_json(text: str, name: str) -> JsonText:
    """The values of a JSON document, or of a file with one JSON value a line.

    Raises:
        UnreadableError: it is neither, or an error page or error reply was saved in place of the data.
    """
    if text.lstrip("\ufeff \n\t").startswith("<"):
        raise UnreadableError(
            "HTML or XML where JSON was due, perhaps a sign-in or error page", remedy="export the file again"
        )
    try:
        found = JsonText([Value(json.loads(text), name)])
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise _not_json(error) from error
        found = _lines(text, name)
    for item in found.values:
        _refuse_error_reply(item.value)
    return found


def load_json(data: bytes, name: str, encoding: str | None) -> JsonText:
    """Like :func:`read_json`, from bytes."""
    return read_json(decode(data, encoding), name)


def mapping(value: object) -> JsonObject:
    """A JSON object as it is, anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[object]:
    """A JSON array as it is, anything else as an empty one."""
    return value if isinstance(value, list) else []


def string(value: object) -> str:
    """A scalar as clean text; null, truth values, arrays and objects as nothing."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return clean(str(value)).strip()


def at(value: object, path: str) -> object:
    """What stands at a dotted path of keys, or None."""
    for key in path.split("."):
        value = mapping(value).get(key)
    return value


def labels(value: object) -> tuple[str, ...]:
    """Access labels of an item that carries its own: a list, or text parted by commas.

    A value that cannot be read as labels gives none, so that the record is served to nobody.
    """
    if isinstance(value, str):
        value = value.split(",")
    named = [string(label) for label in sequence(value)]
    return tuple(sorted(set(named))) if named and all(named) else ()


def _lines(text: str, name: str) -> JsonText:
    found = JsonText()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.values.append(Value(json.loads(line), f"{name}: line {number}"))
        except ValueError as error:
            found.broken.append(f"line {number} is not JSON ({error})")
    if len(found.broken) > len(found.values):
        raise UnreadableError(f"neither one JSON document nor one JSON value a line: {found.problem}", remedy=_REMEDY)
    return found


_REMEDY = "export the file again, or mend it at the place named"


def _not_json(error: json.JSONDecodeError) -> UnreadableError:
    ended = error.msg.startswith("Unterminated string") or error.pos >= len(error.doc.rstrip()) - 1
    cut = "; the file seems to be cut off" if ended else ""
    return UnreadableError(
        f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}{cut}", remedy=_REMEDY, permanent=not cut
    )


def _refuse_error_reply(value: object) -> None:
    """A server's error reply that was saved as if it were data."""
    reply = mapping(value)
    error = mapping(reply.get("error"))
    if string(error.get("message")) or string(error.get("code")):
        message = string(error.get("message")) or string(error.get("code"))
    elif {"simpleName", "message", "exception"} <= reply.keys():
        message = f"{string(reply['simpleName'])} {string(reply['message'])}"
    else:
        return
    raise UnreadableError(f"an error reply was saved in place of the data: {message}", remedy="export the file again")
