"""A captured stream of the log book's change events, replayed to the entries that they leave behind."""

from __future__ import annotations

import json
import re

from aps_rag_pipeline.sources.base import Failure, Ignored
from aps_rag_pipeline.sources.jsonfiles import JsonObject, at, mapping, sequence, string
from aps_rag_pipeline.sources.logbooks.model import Document, Entry, Reading

_EVENT = re.compile(r"^bely/([\w/]+) (\{.*)$")
_ENTRY_TOPIC = re.compile(r"(logEntry(?:Reply)?)/(Add|Update|Delete)")


def is_event_capture(text: str) -> bool:
    """Whether a text holds lines of `topic {json}`."""
    return any(_EVENT.match(line) for line in text[:20_000].split("\n"))


def read_events(text: str, unit: str, name: str) -> Reading:
    """Entries and replies as the last of their events left them.

    An event that tells a change but not the whole text, of an entry that the capture did not see being added, is a
    failure that names the entry.
    """
    entries: dict[str, Entry] = {}
    for number, line in enumerate(text.split("\n"), 1):
        place = f"{name}: line {number}"
        match = _EVENT.match(line)
        if not match:
            continue  # what the terminal showed around the events
        topic, body = match.groups()
        try:
            event = mapping(json.loads(body))
        except ValueError as error:
            yield Failure(unit, unit, place, f"an event that is not JSON ({error})", "capture the events again", True)
            continue
        kind = _ENTRY_TOPIC.fullmatch(topic)
        if not kind:
            yield Ignored(place, f"an event of topic {topic}, which carries no text")
            continue
        problem = _apply(entries, kind.group(1) == "logEntryReply", kind.group(2), event, place)
        if isinstance(problem, Ignored):
            yield problem
        elif problem:
            entry_id = string(at(event, "logInfo.id"))
            remedy = "export the entry itself, or capture from before it was added"
            yield Failure(unit, place, place, problem, remedy, True, entry_id)
    yield from entries.values()


def _apply(entries: dict[str, Entry], reply: bool, action: str, event: JsonObject, place: str) -> Ignored | str:
    """Replay one event; returns what is wrong with it, or nothing."""
    entry_id = string(at(event, "logInfo.id"))
    if not entry_id:
        return "an event without the id of its entry"
    if action == "Delete":
        entries.pop(entry_id, None)
        return Ignored(place, f"entry {entry_id} was deleted")
    stated = str(event.get("textDiff") or "")
    known = entries.get(entry_id)
    text = stated if action == "Add" else patched(known.text if known else None, stated)
    if text is None:
        return f"the change of entry {entry_id} does not tell its whole text"
    entries[entry_id] = _entry(event, entry_id, text, reply, place)
    return ""


def patched(text: str | None, diff: str) -> str | None:
    """A text after a change told as lines that begin with `- ` and `+ `; None when it is unknown or does not fit."""
    if text is None:
        return None
    removed: list[str] = []
    added: list[str] = []
    for line in diff.replace("\r\n", "\n").rstrip("\n").split("\n"):
        if line[:1] not in "+-" or not line:
            return None
        (added if line[0] == "+" else removed).append(line[2:])
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    for start in range(len(lines) - len(removed) + 1):
        if lines[start : start + len(removed)] == removed:
            return "\n".join([*lines[:start], *added, *lines[start + len(removed) :]])
    return None


def _entry(event: JsonObject, entry_id: str, text: str, reply: bool, place: str) -> Entry:
    info = mapping(event.get("logInfo"))
    stated = mapping(event.get("parentLogDocumentInfo"))
    logbooks = [
        string(at(book, "displayName")) or string(at(book, "name")) for book in sequence(event.get("logbookList"))
    ]
    parent = at(event, "parentLogInfo.id") or at(event, "parentlogInfo.id")  # both spellings occur
    return Entry(
        id=entry_id,
        text=text.replace("\r\n", "\n"),
        place=place,
        author=string(info.get("enteredByUsername")),
        created=info.get("enteredOnDateTime"),
        modified=info.get("lastModifiedOnDateTime"),
        modified_by=string(info.get("lastModifiedByUsername")),
        parent=string(parent) if reply else "",
        document=Document(
            string(stated.get("id")),
            string(stated.get("name")),
            {"logbook": [book for book in logbooks if book]} if any(logbooks) else {},
        ),
    )
