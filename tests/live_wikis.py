"""What the tests of live wikis share: a feed that is read again and again, and a service whose answers are altered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import structs
from werkzeug import Request, Response

from aps_rag_pipeline.records import Record
from aps_rag_pipeline.settings import Feed, Limits, Network
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Change, Complete, Cursor, Failure, Relabel, SourceContext, Upsert
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.serving import App, FaultyServer, serving

QUICK = Network(timeout_s=0.3, deadline_s=2, attempts=3, backoff_s=0.001)


class Live:
    """A feed and what it has given so far: `records` is what a catalog would hold."""

    def __init__(self, root: Path, server: FaultyServer, path: str, **feed: Any) -> None:
        self.server = server
        self.feed = Feed(name="wiki", source="wiki", url=server.url + path, **feed)
        self.context = SourceContext(ZoneInfo("America/Chicago"), BlobStore(root / "blobs"), Limits(), QUICK)
        self.cursor: Any = None
        self.records: dict[str, Record] = {}
        self._units: dict[str, set[str]] = {}

    def again(self, **feed: Any) -> None:
        """Change the feed's configuration."""
        self.feed = self.feed.model_copy(update=feed)

    def source(self) -> Any:
        return open_source(self.feed, self.context)

    def sync(self, retry: frozenset[str] = frozenset()) -> list[Change]:
        """What one sync gives, and apply it."""
        self.server.forget()
        found = list(self.source().changes(self.cursor, retry))
        assert isinstance(found[-1], Cursor)
        self.cursor = found[-1].value
        self._apply(found[:-1])
        return found[:-1]

    def failures(self, retry: frozenset[str] = frozenset()) -> list[Failure]:
        return [change for change in self.sync(retry) if isinstance(change, Failure)]

    def _apply(self, changes: list[Change]) -> None:
        given: dict[str, set[str]] = {}
        for change in changes:
            if isinstance(change, Upsert):
                given.setdefault(change.unit, set()).add(change.record.id)
                self.records[change.record.id] = change.record
            elif isinstance(change, Relabel) and change.id in self.records:
                self.records[change.id] = structs.replace(self.records[change.id], access=change.access)
        elsewhere = {record_id for ids in given.values() for record_id in ids}
        for change in changes:
            if isinstance(change, Complete):
                for record_id in self._units.pop(change.unit, set()) - elsewhere:
                    self.records.pop(record_id, None)
        for unit, ids in given.items():
            self._units.setdefault(unit, set()).update(ids)


@contextmanager
def live(root: Path, app: App, path: str, **feed: Any) -> Iterator[Live]:
    with serving(app) as server:
        yield Live(root, server, path, **feed)


class Altered:
    """An application whose JSON answers go through `change(request, answer)` first."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.change: Callable[[Request, Any], Any] = lambda _, answer: answer

    def __call__(self, environ: Any, start_response: Any) -> Any:
        request = Request(environ)
        reply = Response.from_app(self.app, environ)
        if reply.mimetype == "application/json":
            reply.set_data(json.dumps(self.change(request, json.loads(reply.get_data()))))
        return reply(environ, start_response)


def text_of(record: Record) -> str:
    return "\n".join(part.text for part in record.parts)
