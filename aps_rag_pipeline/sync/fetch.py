"""Feed → spool. Runs without any lock; what it writes is applied later, in one transaction with its cursor."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.content import masking
from aps_rag_pipeline.records import Link, Part, Record
from aps_rag_pipeline.settings import Feed, Limits, Settings, SettingsError
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import (
    Change,
    Complete,
    Cursor,
    Failure,
    FeedError,
    Ignored,
    Relabel,
    Removal,
    Source,
    SourceContext,
    Upsert,
)
from aps_rag_pipeline.stores.catalog import from_iso, unpack_json
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.spool import Entry, Header, SpoolWriter
from aps_rag_pipeline.sync.workspace import Workspace

log = logging.getLogger(__name__)
_PARALLEL_FEEDS = 4
#: Raise it when masking would now leave other texts: every feed is then read again.
_MASKING_VERSION = 1


@dataclass
class FetchReport:
    """What one fetch of a feed found. `error` is the reason when the feed as a whole could not be read."""

    source: str
    feed: str
    counts: Counter[str] = field(default_factory=Counter)
    error: str = ""
    spooled: bool = False
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    fingerprint: str | None = None
    config: str = ""

    @property
    def ok(self) -> bool:
        return not self.error


@dataclass(frozen=True)
class _Known:
    """What the catalog remembers of a feed at the start of a fetch."""

    cursor: Any
    whole: bool  # every unit is read, whatever was known
    retry: frozenset[str]
    resting: frozenset[tuple[str, str]]  # failures that are not due yet: (unit, item)
    base: int  # sequence of the last fetch that was applied
    live: int  # records


def fetch(
    workspace: Workspace, feeds: tuple[Feed, ...], *, again: bool = False, aside: Path | None = None
) -> list[FetchReport]:
    """Read what moved in these feeds, or everything `again` to reconcile. A feed that fails leaves the others alone and
    the catalog as it was. With `aside`, what was read goes into that folder and the attempt is not noted."""
    started = clock.now()
    known = {feed.name: _known_or_why(workspace, feed, again) for feed in feeds}
    with ThreadPoolExecutor(max_workers=_PARALLEL_FEEDS, thread_name_prefix="fetch") as pool:
        jobs = [pool.submit(_fetch_feed, workspace, feed, known[feed.name], aside) for feed in feeds]
        reports = [job.result() for job in jobs]
    if aside is None:
        for report in reports:
            _remember(workspace, report, started)
    return reports


def reader(settings: Settings, feed: Feed, workspace_blobs: Any) -> Source:
    """The source module that reads a feed."""
    scratch = Home(settings.home).checkouts / feed.name
    network = feed.network or settings.network
    return open_source(feed, SourceContext(settings.zone_of(feed), workspace_blobs, settings.limits, network, scratch))


def config_digest(settings: Settings, feed: Feed, version: int) -> str:
    """Digest of everything that decides how a feed's bytes become records: when it moves, all is read again."""
    limits = settings.limits
    said = [
        feed.model_dump_json(exclude={"name", "network", "credentials"}),
        settings.zone_of(feed).key,
        str(settings.several(feed.source)),
        str(version),
        str(_MASKING_VERSION),
        f"{limits.max_file_mb} {limits.max_text_mb} {limits.max_unpacked_mb} {limits.max_pages} {limits.max_pixels}",
    ]
    return hashlib.blake2b("\n".join(said).encode(), digest_size=12).hexdigest()


def _known(workspace: Workspace, feed: Feed, again: bool) -> _Known:
    catalog = workspace.catalog
    now = clock.now().isoformat()
    row = next(iter(catalog.rows("select cursor, config, sequence from feeds where feed = ?", (feed.name,))), None)
    source = reader(workspace.settings, feed, workspace.home.blobs)
    cursor = None if row is None else unpack_json(row["cursor"])
    whole = bool(row is None or again or row["config"] != config_digest(workspace.settings, feed, source.version))
    letters = catalog.rows("select unit, item, retry_at from dead_letters where feed = ?", (feed.name,))
    return _Known(
        cursor=source.again(cursor) if whole else cursor,
        whole=whole,
        retry=frozenset(r["unit"] for r in letters if r["retry_at"] is not None and r["retry_at"] <= now),
        resting=frozenset((r["unit"], r["item"]) for r in letters if r["retry_at"] is None or r["retry_at"] > now),
        base=0 if row is None else row["sequence"],
        live=int(
            catalog.value(
                "select count(*) from records where feed = ? and removed = 0 and access <> '[]'", (feed.name,)
            )
        ),
    )


def _known_or_why(workspace: Workspace, feed: Feed, again: bool) -> _Known | Exception:
    """A feed that cannot even be opened fails alone."""
    try:
        return _known(workspace, feed, again)
    except (SettingsError, FeedError, ImportError) as error:
        return error


def _fetch_feed(workspace: Workspace, feed: Feed, known: _Known | Exception, aside: Path | None) -> FetchReport:
    report = FetchReport(feed.source, feed.name)
    started = time.monotonic()
    now = clock.now()
    try:
        if isinstance(known, Exception):
            raise known
        source = reader(workspace.settings, feed, workspace.home.blobs)
        report.config = config = config_digest(workspace.settings, feed, source.version)
        if not source.tells_fingerprint:
            report.fingerprint = source.fingerprint()
        header = Header(
            feed.name, feed.source, config, report.fingerprint, time.time_ns(), now, known.base, known.whole
        )
        _spool(SpoolWriter(aside or workspace.home.spool, header), source, known, report, workspace.settings)
    except (FeedError, SettingsError) as error:
        report.error = str(error)
    except Exception as error:
        # A reader's bug is this feed's failure, not the run's: the other feeds go on.
        log.exception("feed %s", feed.name)
        report.error = f"{type(error).__name__}: {error}"
    report.error = shown_safely(report.error, workspace.settings.secrets())
    report.seconds = time.monotonic() - started
    return report


def _spool(writer: SpoolWriter, source: Source, known: _Known, report: FetchReport, settings: Settings) -> None:
    secrets = settings.secrets()
    finished, news = False, bool(known.retry)  # a retry is news whatever comes of it
    untold = set(known.resting)
    try:
        for change in source.changes(known.cursor, known.retry):
            entry = _entry(change, settings.limits, secrets)
            writer.write(entry)
            _count(report, entry)
            match change:
                case Cursor(value, fingerprint):
                    finished = True
                    report.fingerprint = fingerprint or report.fingerprint
                    news = news or value != known.cursor or any(unit not in _units(value) for unit, _ in untold)
                case Failure(unit, item):
                    news = news or (unit, item) not in known.resting
                    untold.discard((unit, item))
                case Upsert() | Removal() | Complete() | Relabel():
                    news = True
        if not finished:
            raise FeedError(f"{report.feed}: the listing broke off before its end")
        if known.whole and known.live and not (report.counts["units"] or report.counts["failures"]):
            raise FeedError(
                f"{report.feed}: nothing is there, but {known.live} records were read from it before; nothing is "
                "removed. If they are really gone, remove the feed from facility.yaml"
            )
        if news:
            writer.keep()
            report.spooled = True
    finally:
        writer.discard()


def _units(cursor: Any) -> Container[str]:
    units: Container[str] = cursor.get("units", ()) if isinstance(cursor, dict) else ()
    return units


def _count(report: FetchReport, entry: Entry) -> None:
    match entry.change:
        case Upsert():
            report.counts["read"] += 1
            report.counts["masked_credentials"] += entry.masked
        case Failure():
            report.counts["failures"] += 1
            report.failures.append(entry.change)
        case Ignored():
            report.counts["ignored"] += 1
        case Complete():
            report.counts["units"] += 1


def _remember(workspace: Workspace, report: FetchReport, now: datetime) -> None:
    """Note the attempt. A feed without news is in sync at once; the others are when their spool has been applied."""
    found = state.read_feed(workspace.home, report.source, report.feed)
    found.attempted_at = now
    if report.ok:
        found.error, found.failed_since, found.alerted = "", None, False
        if not report.spooled:
            found.succeeded_at, found.fingerprint, found.config = now, report.fingerprint, report.config
            found.retry_at = from_iso(
                workspace.catalog.value("select min(retry_at) from dead_letters where feed = ?", (report.feed,))
            )
    else:
        found.error = report.error
        found.failed_since = found.failed_since or now
    state.write_feed(workspace.home, found)


def _entry(change: Change, limits: Limits, secrets: tuple[str, ...]) -> Entry:
    if isinstance(change, Failure):
        reason, place = shown_safely(change.reason, secrets), shown_safely(change.place, secrets)
        return Entry(msgspec.structs.replace(change, reason=reason, place=place))
    if isinstance(change, Ignored):
        return Entry(Ignored(shown_safely(change.place, secrets), shown_safely(change.reason, secrets)))
    if not isinstance(change, Upsert):
        return Entry(change)
    size = sum(len(part.text) for part in change.record.parts) / 1e6
    if size > limits.max_text_mb:
        reason = f"{size:.1f} MB of text, more than limits.max_text_mb ({limits.max_text_mb:g})"
        item = f"too-long:{change.record.id}"
        return Entry(
            Failure(change.unit, item, change.place, reason, "split it or raise the limit", True, change.record.id)
        )
    record, masked = mask_record(change.record, secrets)
    return Entry(msgspec.structs.replace(change, record=record) if masked else change, masked)


def shown_safely(text: str, secrets: tuple[str, ...]) -> str:
    """A message without the facility's secrets, which a server may echo, and without halves of characters."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text.encode("utf-8", "backslashreplace").decode()


def mask_record(record: Record, secrets: tuple[str, ...]) -> tuple[Record, int]:
    """The record with credentials masked in everything a reader could see, and how many there were."""
    total = 0

    def mask(text: str) -> str:
        nonlocal total
        masked, count = masking.mask_all(text, secrets)
        total += count
        return masked

    def values() -> Iterator[tuple[str, Any]]:
        for name, value in record.fields.items():
            if isinstance(value, str):
                yield name, mask(value)
            elif isinstance(value, list):
                yield name, [mask(item) for item in value]
            else:
                yield name, value

    masked = msgspec.structs.replace(
        record,
        title=mask(record.title),
        url=mask(record.url),
        parts=tuple(Part(p.kind, mask(p.text), p.locator, mask(p.title)) for p in record.parts),
        links=tuple(Link(link.kind, mask(link.target), mask(link.text)) for link in record.links),
        fields=dict(values()),
    )
    return (masked, total) if total else (record, 0)
