"""Log documents for the BELY server: those of a folder of exports, or some in memory that can be changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]
#: A log document with its entries and sections, as an export holds them.
Bundle = dict[str, Any]


class FolderStore:
    """Exports in a folder, read again when they change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[tuple[int, int], list[Bundle]]] = {}

    def bundles(self) -> Iterator[Bundle]:
        paths = sorted([*self._folder.rglob("*.jsonl"), *self._folder.rglob("*.json")])
        for path in paths:
            status = path.stat()
            state = (status.st_mtime_ns, status.st_size)
            if path not in self._read or self._read[path][0] != state:
                lines = path.read_text(encoding="utf-8").split("\n")
                self._read[path] = state, [json.loads(line) for line in lines if line.strip()]
            yield from self._read[path][1]

    def logbook_types(self) -> list[Json]:
        found = {kind["id"]: kind for bundle in self.bundles() for kind in bundle["document"]["entityTypeList"]}
        return [found[number] for number in sorted(found)]

    def attachment(self, name: str) -> bytes | None:
        folder = self._folder / "attachments"
        path = folder / name
        return path.read_bytes() if path.parent == folder and path.is_file() else None


class MemoryStore:
    """A log book that is written to. `now` is the clock of the database; it moves with every change."""

    def __init__(self) -> None:
        self.now = datetime(2025, 6, 2, 7, 0, tzinfo=UTC)
        self.kinds = [kind(4, "ops", "Operations"), kind(7, "studies-sr", "SR")]
        self.documents: dict[int, Bundle] = {}
        self.files: dict[str, bytes] = {}

    def bundles(self) -> Iterable[Bundle]:
        return list(self.documents.values())

    def logbook_types(self) -> list[Json]:
        return self.kinds

    def attachment(self, name: str) -> bytes | None:
        return self.files.get(name)

    def tick(self, **later: float) -> str:
        """The time after a change; a minute later unless told otherwise."""
        self.now += timedelta(**later or {"minutes": 1})
        return stamp(self.now)

    def add_document(self, number: int, name: str = "", kinds: Iterable[int] = (4,)) -> Bundle:
        at = self.tick()
        wanted = set(kinds)
        document = {
            "id": number,
            "name": name or f"[2025/06/02/{number}] Shift",
            "description": "",
            "entityTypeList": [each for each in self.kinds if each["id"] in wanted],
            "itemTypeList": [{"id": 1, "name": "RF"}],
            "moreInfo": {
                "createdOnDateTime": at,
                "lastModifiedOnDateTime": at,
                "createdByUsername": "kim",
                "lastModifiedByUsername": "kim",
            },
        }
        self.documents[number] = {"document": document, "entries": [], "sections": []}
        return self.documents[number]

    def add_section(self, document: int, number: int, name: str) -> None:
        self.documents[document]["sections"].append({"id": number, "name": name, "entries": []})
        self.touch(document)

    def write(
        self, document: int, log: int, text: str, *, section: int = 0, parent: int = 0, quiet: bool = False
    ) -> Json:
        """Add an entry or a reply, or change it; `quiet` leaves the time of the document as it was."""
        at = self.tick()
        found = next((entry for entry in written(self.documents[document]) if entry["logId"] == log), None)
        if found is None:
            found = {"logId": log, "itemId": section or document, "parentLogId": parent or None, "logReplies": []}
            found |= {"enteredOnDateTime": at, "enteredByUsername": "kim"}
            self._home(document, section, parent).append(found)
        found |= {"logEntry": text, "lastModifiedOnDateTime": at, "lastModifiedByUsername": "kim"}
        if not quiet:
            self.touch(document)
        return found

    def delete(self, document: int, log: int, *, quiet: bool = False) -> None:
        """Delete an entry or a reply; nothing remains of it."""
        self.tick()
        bundle = self.documents[document]
        homes = [holder["entries"] for holder in (bundle, *bundle["sections"])]
        for home in [*homes, *(entry["logReplies"] for entry in written(bundle))]:
            home[:] = [entry for entry in home if entry["logId"] != log]
        if not quiet:
            self.touch(document)

    def touch(self, document: int) -> None:
        self.documents[document]["document"]["moreInfo"]["lastModifiedOnDateTime"] = stamp(self.now)

    def _home(self, document: int, section: int, parent: int) -> list[Json]:
        bundle = self.documents[document]
        if parent:
            replies: list[Json] = next(e for e in written(bundle) if e["logId"] == parent)["logReplies"]
            return replies
        holder = next(s for s in bundle["sections"] if s["id"] == section) if section else bundle
        entries: list[Json] = holder["entries"]
        return entries


def kind(number: int, name: str, shown: str) -> Json:
    """A logbook type."""
    return {"id": number, "name": name, "displayName": shown, "isInternal": False, "entityTypeChildren": []}


def written(bundle: Bundle) -> Iterator[Json]:
    """All entries and replies of a document."""
    for holder in (bundle, *bundle.get("sections", ())):
        for entry in holder["entries"]:
            yield entry
            yield from entry.get("logReplies") or ()


def moved_at(item: Json) -> datetime:
    """When a document, an entry or a reply was last changed."""
    text = (item.get("moreInfo") or item)["lastModifiedOnDateTime"]
    return datetime.fromisoformat(text).astimezone(UTC).replace(microsecond=0)


def stamp(moment: datetime) -> str:
    """A time as the server writes it: the fraction of a second is lost."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000+00:00")
