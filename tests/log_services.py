"""A feed of a log book service with the service behind it, for tests of each."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from aps_rag_pipeline.records import Record
from aps_rag_pipeline.settings import Feed, Limits, Network
from aps_rag_pipeline.sources.base import Failure, SourceContext, Upsert
from aps_rag_pipeline.sources.bely import FORMS
from tests.serving import FaultyServer, serving

QUICK = Network(timeout_s=0.3, deadline_s=2, attempts=3, backoff_s=0.001)


CHICAGO = ZoneInfo("America/Chicago")


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Blobs(dict[str, bytes]):
    def put(self, data: bytes) -> str:
        import hashlib

        sha256 = hashlib.sha256(data).hexdigest()
        self[sha256] = data
        return sha256

    def get(self, sha256: str) -> bytes:
        return self[sha256]


@dataclass
class Book:
    """A feed and the service behind it; `sync` goes on from its last cursor."""

    server: FaultyServer
    form: str
    path: str
    options: dict[str, Any] = field(default_factory=dict)
    zone: ZoneInfo = CHICAGO
    more: dict[str, Any] = field(default_factory=dict)
    blobs: Blobs = field(default_factory=Blobs)
    cursor: Any = None

    def source(self) -> Any:
        feed = Feed(
            name="live",
            source="bely",
            form=self.form,
            url=self.server.url + self.path,
            options=self.options,
            **self.more,
        )
        return FORMS[self.form](feed, SourceContext(self.zone, self.blobs, Limits(), QUICK))

    def sync(self, retry: frozenset[str] = frozenset()) -> list[Any]:
        self.server.forget()
        changes = list(self.source().changes(json.loads(json.dumps(self.cursor)), retry))
        self.cursor = changes[-1].value
        return changes[:-1]

    def records(self) -> dict[str, Record]:
        return {c.record.id: c.record for c in self.sync() if isinstance(c, Upsert)}


def of(kind: type, changes: list[Any]) -> list[Any]:
    return [change for change in changes if isinstance(change, kind)]


def words(record: Record) -> str:
    return "\n".join(part.text for part in record.parts)


@contextmanager
def book(app: Any, form: str, path: str, **more: Any) -> Iterator[Book]:
    with serving(app) as server:
        yield Book(server, form, path, **more)


def read_files(folder: Path, **options: Any) -> dict[str, Record]:
    feed = Feed(name="live", source="bely", location=folder, options=options)
    source = FORMS["files"](feed, SourceContext(CHICAGO, Blobs(), Limits()))
    changes = list(source.changes(None))
    assert of(Failure, changes) == []
    return {c.record.id: c.record for c in changes if isinstance(c, Upsert)}
