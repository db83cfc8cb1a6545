"""What a content server holds: content ids, their revisions, and a search index that may lag behind."""

from __future__ import annotations

import csv
import hashlib
import mimetypes
import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

_FIRST_MOMENT = datetime(2024, 1, 8, 15, 0, tzinfo=UTC)
_OFFICE_KINDS = {
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "md": "text/markdown",
}


@dataclass(frozen=True)
class Revision:
    """One revision of a content id. `data` is its native file, `web` a converted one with its extension."""

    id: int
    name: str
    label: str
    title: str
    file: str
    data: bytes | Path
    in_date: datetime
    status: str = "RELEASED"
    author: str = ""
    group: str = "Public"
    account: str = ""
    released: bool = True
    modified: datetime = _FIRST_MOMENT
    web: tuple[str, bytes] | None = None
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def extension(self) -> str:
        return self.file.rpartition(".")[2].lower()

    @property
    def media_type(self) -> str:
        return _OFFICE_KINDS.get(self.extension) or mimetypes.guess_type(self.file)[0] or "application/octet-stream"

    def bytes(self) -> bytes:
        return self.data.read_bytes() if isinstance(self.data, Path) else self.data

    def size(self) -> int:
        return self.data.stat().st_size if isinstance(self.data, Path) else len(self.data)


class Store:
    """Content that tests change. With `indexed=False` the search does not see a change until `index` is called."""

    def __init__(self) -> None:
        self.contents: dict[str, list[Revision]] = {}
        #: What the search sees: content id → revision as it was when it was indexed.
        self.searchable: dict[str, Revision] = {}
        self.clock = _FIRST_MOMENT
        self._last_id = 4200
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Called before each request."""
        return

    def check_in(self, name: str, data: bytes | Path, *, indexed: bool = True, **described: Any) -> Revision:
        """A new content id, or a new revision of one; what is not said stays as in the revision before."""
        with self._lock:
            self.clock += timedelta(minutes=7)
            self._last_id += 1
            earlier = self.contents.setdefault(name, [])
            label = described.pop("label", f"01{len(earlier) + 1}")
            told = {"in_date": self.clock, "modified": self.clock, "status": "RELEASED", "released": True, **described}
            if earlier:
                made = replace(earlier[-1], id=self._last_id, data=data, label=label, **told)
            else:
                told = {"title": name, "file": f"{name}.txt", **told}
                made = Revision(id=self._last_id, name=name, data=data, label=label, **told)
            earlier.append(made)
        if indexed:
            self.index(name)
        return made

    def update(self, name: str, *, indexed: bool = True, **changes: Any) -> None:
        """Other metadata of the released revision, which stays the same revision."""
        with self._lock:
            self.clock += timedelta(minutes=1)
            current = self.released(name)
            assert current is not None
            metadata = {**current.metadata, **changes.pop("metadata", {})}
            made = replace(current, metadata=metadata, modified=self.clock, **changes)
            self.contents[name] = [made if revision is current else revision for revision in self.contents[name]]
        if indexed:
            self.index(name)

    def delete(self, name: str, *, indexed: bool = True) -> None:
        """All revisions of a content id."""
        del self.contents[name]
        if indexed:
            self.index(name)

    def expire(self, name: str, *, indexed: bool = True) -> None:
        """No revision is released any more; the item itself stays."""
        self.contents[name] = [replace(r, released=False, status="EXPIRED") for r in self.contents[name]]
        if indexed:
            self.index(name)

    def index(self, name: str) -> None:
        """The indexer comes to this content id."""
        released = self.released(name)
        if released is None:
            self.searchable.pop(name, None)
        else:
            self.searchable[name] = released

    def released(self, name: str) -> Revision | None:
        """The latest released revision."""
        return next((revision for revision in reversed(self.contents.get(name, [])) if revision.released), None)

    def revision(self, number: int) -> Revision | None:
        """The revision with this dID."""
        found = (revision for revisions in self.contents.values() for revision in revisions)
        return next((revision for revision in found if revision.id == number), None)


class FolderStore(Store):
    """Documents in a folder with their sidecar table beside it (`<folder>.csv`), read anew when one of them moves."""

    def __init__(self, folder: Path, zone: ZoneInfo) -> None:
        super().__init__()
        self.folder = folder
        self.sidecar = folder.with_suffix(".csv")
        self.zone = zone
        self._state: object = None

    def refresh(self) -> None:
        with self._lock:
            files = sorted(path for path in self.folder.rglob("*") if path.is_file())
            state = [(path, path.stat().st_size, path.stat().st_mtime_ns) for path in (*files, self.sidecar)]
            if state != self._state:
                self._load()
                self._state = state

    def _load(self) -> None:
        contents: dict[str, list[Revision]] = {}
        with self.sidecar.open(encoding="utf-8-sig", newline="") as table:
            for row in csv.DictReader(table):
                path = self.folder / row["file"]
                if row["content_id"] and path.is_file():
                    contents.setdefault(row["content_id"], []).append(self._revision(row, path))
        for revisions in contents.values():
            revisions.sort(key=lambda revision: (revision.released, revision.in_date, revision.label))
        self.contents = contents
        self.searchable = {name: found for name in contents if (found := self.released(name)) is not None}

    def _revision(self, row: dict[str, str], path: Path) -> Revision:
        stat = path.stat()
        # A file that is written anew is a check-in. The number must be the same in the next run of the server.
        checked_in = f"{row['content_id']} {row['revision']} {stat.st_size} {stat.st_mtime_ns}"
        number = int.from_bytes(hashlib.blake2b(checked_in.encode(), digest_size=4).digest(), "big")
        in_date = datetime.fromisoformat(row["in_date"])
        return Revision(
            id=number,
            name=row["content_id"],
            label=row["revision"],
            title=row["title"],
            file=path.name,
            data=path,
            in_date=in_date.replace(tzinfo=in_date.tzinfo or self.zone),
            status=row["status"],
            author=row["author"],
            group="Public" if row["access"] == "public" else "Controlled",
            released=row["status"].casefold() in ("released", "under revision"),
            modified=datetime.fromtimestamp(stat.st_mtime, UTC),
            metadata={"xAccessLabels": row["access"]},
        )
