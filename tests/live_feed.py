"""A live feed of one of `tests.live_cases`, fetched and applied: the sync up to the catalog, without indexes."""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aps_rag_pipeline.records import SOURCES, Record, decode_record
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores.catalog import unpack, unpack_json
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import FetchReport, fetch, reader
from tests.serving import FaultyServer, serving

CASES = sorted(
    path.stem for source in SOURCES for path in (Path(__file__).parent / "live_cases").glob(f"{source}_*.py")
)
IMPATIENT = {"timeout_s": 0.5, "deadline_s": 8, "attempts": 3, "backoff_s": 0.0005}


@dataclass
class Synced:
    report: FetchReport
    moved: int


@dataclass
class LiveFeed:
    """One live feed with a folder feed of another source beside it; `server` is None where the protocol is not HTTP."""

    case: Any
    server: FaultyServer | None
    root: Path
    extra: dict[str, Any] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        beside = "downtime" if self.case.source != "downtime" else "bely"
        feed = {**self.case.feed(self.server.url if self.server else ""), **self.extra}
        return {
            "time_zone": "America/Chicago",
            "home": "home",
            "models": {"embedding": "test:hash-32"},
            "network": IMPATIENT,
            "limits": {"removal_floor": 40, "retry_hours": 1e-9},
            "feeds": [feed, {"name": "beside", "source": beside, "location": "beside"}],
        }

    @property
    def settings(self) -> Settings:
        return Settings.build(self.config, self.root / "facility.yaml")

    def sync(self, again: bool = False) -> Synced:
        """One fetch and what applying it moved; `requested` holds what the service was asked."""
        if self.server:
            self.server.forget()
        settings = self.settings
        with pipeline.open_workspace(settings) as workspace:
            reports = fetch(workspace, settings.feeds, again=again)
            applied = apply_spool(workspace)
        assert reports[1].ok, "the feed beside is read whatever happens"
        self.requested = list(self.server.requests) if self.server else []
        return Synced(reports[0], applied.moved)

    def records(self) -> dict[str, Record]:
        with pipeline.open_workspace(self.settings) as workspace:
            rows = workspace.catalog.rows("select id, body from records where feed = 'live' and removed = 0")
            return {row["id"]: decode_record(unpack(row["body"])) for row in rows}

    def access(self) -> set[str]:
        with pipeline.open_workspace(self.settings) as workspace:
            rows = workspace.catalog.rows("select distinct access from records where feed = 'live' and removed = 0")
            return {row["access"] for row in rows}

    def cursor(self) -> Any:
        with pipeline.open_workspace(self.settings) as workspace:
            packed = workspace.catalog.value("select cursor from feeds where feed = 'live'")
            return unpack_json(packed) if packed is not None else None

    def failures(self) -> int:
        with pipeline.open_workspace(self.settings) as workspace:
            return int(workspace.catalog.value("select count(*) from dead_letters where feed = 'live'"))

    def bodies_asked(self) -> list[str]:
        return [request for request in self.requested if self.case.item and re.search(self.case.item, request)]

    def fingerprint(self) -> str | None:
        settings = self.settings
        return reader(settings, settings.feed("live"), Home(settings.home).blobs).fingerprint()

    def differences(self) -> list[str]:
        """What the catalog and the source disagree on."""
        wanted, found = self.case.wanted(), self.records()
        told = [f"{name} is missing" for name in wanted.keys() - found.keys()]
        told += [f"{name} is not there any more" for name in found.keys() - wanted.keys()]
        told += [
            f"{name}: {visible(found[name])!r} has not {text!r}"
            for name, text in wanted.items()
            if name in found and text not in visible(found[name])
        ]
        return sorted(told)


def visible(record: Record) -> str:
    """The words of a record."""
    return " ".join(" ".join([record.title, *(part.text for part in record.parts)]).split())


@contextmanager
def live_feed(name: str) -> Iterator[LiveFeed]:
    with ExitStack() as stack:
        case = importlib.import_module(f"tests.live_cases.{name}").Case()
        stack.callback(case.close)
        server = stack.enter_context(serving(case.app)) if case.app is not None else None
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (root / "beside").mkdir()
        yield LiveFeed(case, server, root)
