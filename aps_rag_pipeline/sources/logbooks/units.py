"""The entries of one unit as what a feed yields: records, what is no record, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from aps_rag_pipeline.records import Record, content_hash
from aps_rag_pipeline.sources.base import Failure, Ignored, Upsert
from aps_rag_pipeline.sources.logbooks.model import AUDIT_LINE, Entry, Reading, gather
from aps_rag_pipeline.sources.logbooks.threads import ThreadWriter


def unit_records(reading: Reading, writer: ThreadWriter) -> Iterator[Upsert | Failure | Ignored]:
    """One record for each top-level entry of the unit that has something to read."""
    entries: list[Entry] = []
    for read in reading:
        if isinstance(read, Entry):
            entries.append(read)
        else:
            yield read
    seen: dict[str, tuple[str, str]] = {}
    for entry in gather(entries):
        reason = _no_content(entry)
        if reason:
            yield Ignored(entry.place, reason)
            continue
        record, failures = writer.record(entry)
        twin = _repeated(record, entry.place, seen, writer.unit)
        if twin:
            yield twin
        else:
            yield Upsert(record, writer.unit, entry.place)
            yield from failures


def as_far_as_given(reading: Reading, unit: str) -> Reading:
    """What a service gave of a unit, so that nothing goes which it only failed to give: where an entry came without its
    id the unit is not complete, and a thread with such a reply is left as it was."""
    for read in reading:
        if isinstance(read, Failure):
            yield read if read.record_id else msgspec.structs.replace(read, item=unit, permanent=False)
        elif isinstance(read, Entry) and not is_whole(read):
            yield cut_thread(read, unit)
        else:
            yield read


def is_whole(entry: Entry) -> bool:
    """Whether the entry and all its replies could be read."""
    return all(each.whole for each in entry.thread())


def cut_thread(entry: Entry, unit: str) -> Failure:
    """The failure of a unit with a thread that came without one of its replies."""
    reason = f"a reply in the thread of entry {entry.id} cannot be read; the thread is left as it was"
    return Failure(unit, unit, entry.place, reason, "the next sync asks again", False, entry.id)


def _no_content(entry: Entry) -> str:
    """Why an entry is no record; empty when it is one."""
    if AUDIT_LINE.fullmatch(entry.text.strip()):
        return "an audit line of the server"
    if not entry.title and not entry.files and not any(each.text.strip() for each in entry.thread()):
        return "a log entry without text, replies or files"
    return ""


def _repeated(record: Record, place: str, seen: dict[str, tuple[str, str]], unit: str) -> Failure | Ignored | None:
    """What a second entry of the same id is: nothing new, or a contradiction; None for the first."""
    digest = content_hash(record)
    first, first_digest = seen.setdefault(record.id, (place, digest))
    if first == place:
        return None
    if digest == first_digest:
        return Ignored(place, f"the same entry as at {first}")
    reason = f"log id {record.id} stands here and, with other content, at {first}; the first is kept"
    return Failure(unit, place, place, reason, "export again, or remove the one that is wrong", True, record.id)
