"""A small facility whose every state is known: texts carry the number of the state in which they were last edited."""

from __future__ import annotations

import hashlib
import io
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import tantivy

from aps_rag_pipeline.audit.run import audit
from aps_rag_pipeline.stores import releases, sparse
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.model import configured_model
from aps_rag_pipeline.sync.names import SWEEPS
from tests.small_facility import Facility

ENTRIES, REQUESTS, PAGES = 18, 9, 4
_VERSION = re.compile(r"as of state (\d+)")

#: Key → (number of the state it was last edited in, its labels).
State = dict[str, tuple[int, tuple[str, ...]]]


def labels_of_requests(number: int) -> list[str]:
    """The requests' default labels move with every other state."""
    return ["public", "vacuum"] if number % 2 else ["vacuum"]


@lru_cache
def state(number: int) -> State:
    """What a release of state `number` serves. Each is the last one with an edit, a deletion, an addition in each feed,
    and other labels of one feed."""
    if number == 0:
        return {}
    requests = tuple(labels_of_requests(number))
    if number == 1:
        made: State = {f"BELY:{n}": (1, ("public",)) for n in range(100, 100 + ENTRIES)}
        made |= {f"WRQ:{n}": (1, requests) for n in range(20000, 20000 + REQUESTS)}
        return made | {f"WIKI:page-{n}": (1, ("public",)) for n in range(PAGES)}
    made = dict(state(number - 1))
    for prefix, step in (("BELY", 5), ("WRQ", 3)):
        keys = sorted(key for key in made if key.startswith(prefix))
        made[keys[number * step % len(keys)]] = (number, ("public",))
        del made[keys[(number * step + 1) % len(keys)]]
        last = int(keys[-1].partition(":")[2])
        made[f"{prefix}:{last + 1}"] = (number, ("public",))
    made[f"WIKI:page-{number % PAGES}"] = (number, ("public",))
    return {key: (n, requests if key.startswith("WRQ") else labels) for key, (n, labels) in made.items()}


def text_of(key: str, number: int) -> str:
    """Each record names a device of its own and one that wanders, so that nodes come and go."""
    own = key.partition(":")[2]
    return (
        f"Klystron K{own} tripped on reflected power, as of state {number}. The supply S{number}A:H{number}:CurrentAO "
        f"was looked at, see BELY:{100 + number}. " + "Cooling water was warm. " * 12
    )


@dataclass
class Ring:
    """The facility on disk, at one state after another; `began` is the time of its first sync."""

    root: Path
    began: datetime
    pictures: bool = False

    def at(self, number: int) -> Facility:
        """The facility, with state `number` in its sources."""
        made, facility = state(number), Facility(self.root)
        facility.log = {"shift": {}}
        for key, (version, _) in made.items():
            source, _, own = key.partition(":")
            if source == "BELY":
                facility.log["shift"][int(own)] = text_of(key, version) + self._picture(int(own), version)
            elif source == "WRQ":
                facility.requests[own] = {"title": f"Replace pump P{own}", "description": text_of(key, version)}
        facility.extra = {
            "limits": {"lock_timeout_s": 60, "retention_hours": 0, "removal_floor": 5},
            "feeds": [
                {"name": "logbook", "source": "bely", "location": "log"},
                {"name": "requests", "source": "work_requests", "location": "requests",
                 "access": labels_of_requests(number)},
                {"name": "wiki", "source": "wiki", "location": "wiki"},
            ],
        }  # fmt: skip
        facility.write()
        assert facility.config_path.exists()  # asking for it writes it
        (self.root / "wiki").mkdir(exist_ok=True)
        for key, (version, _) in made.items():
            if key.startswith("WIKI"):
                page = self.root / "wiki" / f"{key.partition(':')[2]}.md"
                text = f"# {key}\n\n{text_of(key, version)}\n"
                if not page.exists() or page.read_text() != text:
                    page.write_text(text)
                    edited = self.now(version).timestamp()
                    os.utime(page, (edited, edited))  # a page's time is its file's
        return facility

    def now(self, number: int) -> datetime:
        return self.began + timedelta(seconds=number)

    def _picture(self, own: int, version: int) -> str:
        if not self.pictures or own % 9:
            return ""
        name = f"{own}-{version}.png"
        path = self.root / "log" / "attachments" / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(f"STATE {version}"))
        return f"\n\n![screen](/log/attachments/{name})"


@lru_cache
def picture(text: str) -> bytes:
    from PIL import Image, ImageDraw

    image = Image.new("L", (240, 60), 255)
    ImageDraw.Draw(image).text((20, 15), text, fill=0, font_size=24)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def new(root: Path, *, pictures: bool = False) -> Ring:
    root.mkdir(parents=True, exist_ok=True)
    return Ring(root, datetime.now(UTC).replace(microsecond=0), pictures)


# what is in a home


def content(facility: Facility) -> dict[str, Any]:
    """Everything that a home says, in its catalog and its newest release; the audit says that the rest agrees. The
    numbers of records are left out: feeds are read side by side, so that any may be the first."""
    found: dict[str, Any] = {}
    with facility.workspace() as workspace:
        for name, sql in _CATALOG.items():
            found[f"catalog {name}"] = _digest(tuple(row) for row in workspace.catalog.rows(sql))
        stages = workspace.catalog.rows("select stage, applied from stages")
        behind = {row["stage"]: row["applied"] for row in stages if row["stage"] not in SWEEPS}
        assert len(set(behind.values())) == 1, behind
        assert audit(workspace, configured_model(workspace.settings, workspace.home)).listed == []
    with releases.open_release(facility.home) as release:
        found["counts"] = {name.partition("_")[0]: count for name, count in release.manifest.counts.items()}
        for name in release.manifest.tables:
            rows = [{**row, "rid": None} for row in release.table(name).to_arrow().to_pylist()]
            found[f"released {name.partition('_')[0]}"] = _digest(rows)
        found["bm25"] = _digest(documents(release.tantivy))
        for mart in sorted(release.marts.glob("*.parquet")):
            found[mart.name] = hashlib.sha256(mart.read_bytes()).hexdigest()
    return found


_CATALOG = {
    "records": "select key, unit, title, access, content_hash, access_hash, seen_at, removed from records",
    "passages": "select passage_id, ordinal, kind, title, locator, text, hash from passages",
    "chunks": "select chunk_id, passage_id, text, hash from chunks",
    "vectors": "select * from embeddings where hash in (select hash from chunks)",
    "mentions": "select r.key, node_id, type, name, m.key from mentions m join records r on r.rid = m.rid",
    "nodes": "select node_id, type, name, key, access from nodes where removed = 0",
    "edges": "select edge_id, src, relation, dst, passage_id, confidence from edges where removed = 0",
    "pictures": "select sha256, page, text from ocr where sha256 in (select sha256 from attachments)",
    "attachments": "select r.key, sha256 from attachments a join records r on r.rid = a.rid where r.removed = 0",
    "feeds": "select feed, source, access from feeds",
    "failures": "select feed, unit, item from dead_letters",
}


def documents(folder: Path) -> list[str]:
    """The chunk ids in a BM25 index."""
    searcher = sparse.open_index(folder).searcher()
    hits = searcher.search(tantivy.Query.all_query(), limit=10_000).hits
    found = [searcher.doc(address) for _, address in hits]
    return [document["chunk"][0] for document in found]


def version_in(text: str) -> int:
    (found,) = set(_VERSION.findall(text))
    return int(found)


def _digest(rows: Any) -> str:
    return hashlib.blake2b("\n".join(sorted(map(repr, rows))).encode(), digest_size=12).hexdigest()


class Twin:
    """The same facility, never killed: what is to be in a home after each state."""

    def __init__(self, like: Ring, root: Path) -> None:
        self.ring = Ring(root, like.began, like.pictures)
        self.root = root
        self._contents: list[dict[str, Any]] = []

    def content(self, number: int) -> dict[str, Any]:
        from tests.torture.frozen import clock_at

        while len(self._contents) < number:
            reached = len(self._contents) + 1
            facility = self.ring.at(reached)
            with clock_at(self.ring.now(reached)), facility.workspace() as workspace:
                fetched, _, _ = pipeline.sync(workspace)
            assert not any(report.error for report in fetched), [report.error for report in fetched]
            self._contents.append(content(facility))
        return self._contents[number - 1]


def disk(*folders: Path) -> int:
    """Bytes of the files in these folders, hard links counted once."""
    found = (path.lstat() for folder in folders for path in folder.rglob("*") if path.is_file())
    return sum({(each.st_dev, each.st_ino): each.st_size for each in found}.values())
