"""The log book: one export bundle a line, one document a shift, one file a month, shaped as in REST."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from aps_rag_pipeline.demo.facility import Facility, Shift, utc_text
from aps_rag_pipeline.demo.items import Entry, LogDocument, Reply
from aps_rag_pipeline.demo.phrases import Bank

FOLDER = "bely"
_SECTION_BASE = 40_000
_encode = msgspec.json.Encoder(order="deterministic").encode


def file_name(shift: Shift) -> str:
    return f"{FOLDER}/{shift.day:%Y-%m}.jsonl"


def write(feeds: Path, facility: Facility, bank: Bank, documents: Iterable[LogDocument]) -> int:
    """Write document after document, in order of time; returns the number of top-level entries."""
    folder = feeds / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    count, name = 0, ""
    file: IO[bytes] | None = None
    try:
        for document in documents:
            if file is None or file_name(document.shift) != name:
                if file:
                    file.close()
                name = file_name(document.shift)
                file = (feeds / name).open("wb")
            file.write(line(bundle(facility, bank, document)))
            count += len(document.entries)
    finally:
        if file:
            file.close()
    return count


def write_attachment(feeds: Path, name: str, data: bytes) -> None:
    path = feeds / FOLDER / "attachments" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def line(value: dict[str, Any]) -> bytes:
    return bytes(_encode(value)) + b"\n"


def bundle(facility: Facility, bank: Bank, document: LogDocument) -> dict[str, Any]:
    """A log document with its entries, some of them in sections."""
    shift = document.shift
    rng = facility.rng("document", document.id, bank.side)
    divided = not document.serial and rng.random() < 0.5
    names: list[str] = rng.sample(bank.phrases("routine", "section"), 2) if divided else []
    sections: list[dict[str, Any]] = [
        {"id": _SECTION_BASE + shift.index * 2 + index, "name": name, "entries": []} for index, name in enumerate(names)
    ]
    loose: list[dict[str, Any]] = []
    for entry in sorted(document.entries, key=lambda e: e.minute):
        home = rng.choice([None, *sections])
        if home is None:
            loose.append(entry_json(entry, document.id))
        else:
            home["entries"].append(entry_json(entry, home["id"]))
    title = bank.say(rng, bank.phrases("routine", "log_title"), {"shift": shift.name})
    last = max((minute for entry in document.entries for minute in _minutes(entry)), default=shift.first_minute)
    number = shift.number + document.serial * 10
    found: dict[str, Any] = {
        "document": document_json(facility, document, f"[{shift.day:%Y/%m/%d}/{number}] {title}", last),
        "entries": loose,
        "sections": sections,
    }
    if document.access != ("public",):
        found["access"] = list(document.access)
    return found


def _minutes(entry: Entry) -> Iterator[int]:
    yield max(entry.minute, entry.edited_minute)
    for reply in entry.replies:
        yield reply.minute


def document_json(facility: Facility, document: LogDocument, name: str, last: int) -> dict[str, Any]:
    shift = document.shift
    author = facility.rng("chief", shift.index).choice(facility.operators).username
    return {
        "id": document.id,
        "name": name,
        "description": "",
        "domain": {"id": 9, "name": "Logbook"},
        "entityTypeList": [{"id": 4, "name": "ops", "displayName": "Operations"}],
        "itemTypeList": [{"id": 11, "name": "Accelerator"}],
        "logLockoutHours": 72.0,
        "moreInfo": {
            "createdOnDateTime": utc_text(shift.first_minute),
            "lastModifiedOnDateTime": utc_text(last),
            "createdByUsername": author,
            "lastModifiedByUsername": author,
            "ownerUsername": author,
            "ownerUserGroupName": "OPERATIONS",
            "isGroupWriteable": True,
        },
    }


def entry_json(entry: Entry, item_id: int) -> dict[str, Any]:
    """A top-level LogEntry with its replies. Lines end as the server stores them."""
    text = entry.text if not entry.image else f"{entry.text}\n\n![screen](/log/attachments/{entry.image})"
    found = _log(entry.id, item_id, None, text, entry.minute, entry.author.username)
    if entry.edited_minute:
        found["lastModifiedOnDateTime"] = utc_text(entry.edited_minute)
    found["logReplies"] = [_reply(reply, entry, item_id) for reply in entry.replies]
    if entry.id % 9 == 0:
        reaction = {"id": 1, "name": "thumbs up", "emojiCode": 128077, "emoji": "\U0001f44d"}
        found["logReactions"] = [{"id": entry.id * 2, "reaction": reaction, "username": entry.author.username}]
    return found


def _reply(reply: Reply, parent: Entry, item_id: int) -> dict[str, Any]:
    return _log(reply.id, item_id, parent.id, reply.text, reply.minute, reply.author.username)


def _log(log_id: int, item_id: int, parent: int | None, text: str, minute: int, username: str) -> dict[str, Any]:
    return {
        "itemId": item_id,
        "logId": log_id,
        "parentLogId": parent,
        "logEntry": text.replace("\n", "\r\n"),
        "enteredOnDateTime": utc_text(minute),
        "enteredByUsername": username,
        "lastModifiedOnDateTime": utc_text(minute),
        "lastModifiedByUsername": username,
        "logReplies": [],
        "logReactions": [],
    }
