"""Looks at a live source, for tests: what one stream of it gives, sorted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from aps_rag_pipeline.records import Record
from aps_rag_pipeline.settings import Feed, Limits, Network
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Change, Complete, Cursor, Failure, Ignored, SourceContext, Upsert

QUICK = Network(timeout_s=0.3, deadline_s=2, attempts=3, backoff_s=0.001)
CHICAGO = ZoneInfo("America/Chicago")


class NoBlobs:
    def put(self, data: bytes) -> str:
        raise AssertionError("a row has no attachments")

    def __contains__(self, sha256: object) -> bool:
        return False

    def get(self, sha256: str) -> bytes:
        raise KeyError(sha256)


def opened(feed: Feed | dict[str, Any], network: Network = QUICK, zone: ZoneInfo = CHICAGO) -> Any:
    feed = feed if isinstance(feed, Feed) else Feed(**feed)
    return open_source(feed, SourceContext(zone, NoBlobs(), Limits(), network))


@dataclass
class Look:
    """One stream of a feed, sorted."""

    changes: list[Change]

    @property
    def records(self) -> dict[str, Record]:
        return {c.record.id: c.record for c in self.changes if isinstance(c, Upsert)}

    @property
    def failures(self) -> list[Failure]:
        return [c for c in self.changes if isinstance(c, Failure)]

    @property
    def complete(self) -> set[str]:
        return {c.unit for c in self.changes if isinstance(c, Complete)}

    @property
    def ignored(self) -> list[Ignored]:
        return [c for c in self.changes if isinstance(c, Ignored)]

    @property
    def cursor(self) -> Any:
        (cursor,) = [c for c in self.changes if isinstance(c, Cursor)]
        return json.loads(json.dumps(cursor.value))  # as the catalog keeps it

    @property
    def news(self) -> set[str]:
        return self.records.keys() | self.complete | {f.unit for f in self.failures}


def look(source: Any, cursor: Any = None, retry: frozenset[str] = frozenset()) -> Look:
    return Look(list(source.changes(cursor, retry)))
