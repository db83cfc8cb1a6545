"""A small facility on disk, synced with a deterministic encoder: the real pipeline without waiting for weights."""

from __future__ import annotations

import csv
import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores import sparse
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.tables import PASSAGES, RECORDS, chunks_table
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.model import configured_model


@dataclass
class Facility:
    """`log` holds entries by document and id, `requests` rows by id; `write` puts both on disk."""

    root: Path
    log: dict[str, dict[int, str]] = field(default_factory=dict)
    requests: dict[str, dict[str, str]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def write(self) -> Facility:
        for folder in ("log", "requests"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        for path in (self.root / "log").glob("*.json"):
            if path.stem not in self.log:
                path.unlink()
        for document, entries in self.log.items():
            write_if_changed(self.root / "log" / f"{document}.json", json.dumps(bundle(document, entries)))
        lines = [["id", "title", "description", "status"]]
        lines += [[key, row["title"], row["description"], "open"] for key, row in self.requests.items()]
        text = "".join(",".join(f'"{cell}"' for cell in line) + "\r\n" for line in lines)
        write_if_changed(self.root / "requests" / "requests.csv", text)
        return self

    @property
    def config(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "facility": "Test ring",
            "time_zone": "America/Chicago",
            "home": "home",
            "models": {"embedding": "test:hash-32"},
            "limits": {"lock_timeout_s": 0.2, "retention_hours": 0},
            "feeds": [
                {"name": "logbook", "source": "bely", "location": "log"},
                {"name": "requests", "source": "work_requests", "location": "requests"},
            ],
        }
        return {**values, **self.extra}

    @property
    def config_path(self) -> Path:
        path = self.root / "facility.yaml"
        path.write_text(yaml.safe_dump(self.config))
        return path

    @property
    def settings(self) -> Settings:
        return Settings.build(self.config, self.root / "facility.yaml")

    @property
    def home(self) -> Home:
        return Home(self.root / "home")

    @contextmanager
    def workspace(self):
        with pipeline.open_workspace(self.settings) as workspace:
            yield workspace

    def sync(self):
        with self.workspace() as workspace:
            return pipeline.sync(workspace)

    def live(self) -> dict[str, str]:
        """Key → title of the live records in the catalog."""
        with self.workspace() as workspace:
            rows = workspace.catalog.rows("select key, title from records where removed = 0")
            return {row["key"]: row["title"] for row in rows}

    def everywhere(self) -> dict[str, set[str]]:
        """Record keys in every index of the home, working state."""
        settings = self.settings
        tables = LanceTables(self.home)
        chunks = chunks_table(configured_model(settings, self.home).description.fingerprint)
        found = {
            name: set(tables.table(table).to_arrow()["key"].to_pylist())
            for name, table in (("records", RECORDS), ("passages", PASSAGES), ("chunks", chunks))
        }
        index = sparse.open_index(self.home.tantivy)
        searcher = index.searcher()
        import tantivy

        hits = searcher.search(tantivy.Query.all_query(), limit=100_000).hits
        ids = [searcher.doc(address)["chunk"][0] for _, address in hits]
        found["bm25"] = {chunk_id.rsplit("#", 1)[0] for chunk_id in ids}
        return found


def kicker_facility(root: Path) -> Facility:
    """Five log entries and a work request, written."""
    made = Facility(root)
    made.log = {"shift-1": {n: f"Entry {n}: the kicker HVPS tripped" for n in range(1, 6)}}
    made.requests = {"20417": {"title": "Replace thyratron", "description": "Kicker thyratron is at end of life"}}
    return made.write()


def bundle(document: str, entries: dict[int, str]) -> dict[str, Any]:
    return {
        "document": {"id": int(hashlib.sha1(document.encode()).hexdigest()[:6], 16), "name": document},
        "entries": [
            {
                "logId": log_id,
                "logEntry": text,
                "enteredOnDateTime": "2026-03-01T12:00:00.000+00:00",
                "enteredByUsername": "operator",
                "lastModifiedOnDateTime": "2026-03-01T12:00:00.000+00:00",
                "lastModifiedByUsername": "operator",
                "logReplies": [],
                "logReactions": [],
            }
            for log_id, text in entries.items()
        ],
        "sections": [],
    }


def write_if_changed(path: Path, text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    if not path.exists() or path.read_bytes() != data:
        path.write_bytes(data)


def tree(root: Path, without: tuple[str, ...] = ("state", "dagster")) -> dict[str, str]:
    """Digest of every file below a folder, to compare before and after."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] not in without
    }


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))
