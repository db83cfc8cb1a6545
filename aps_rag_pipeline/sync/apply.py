"""Spool → changeset. Decides by hash what changed, holds suspicious removals, and moves the cursor in the same
transaction as the changes it stands for."""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from aps_rag_pipeline import clock
from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.records import Record, access_hash, citation_key, content_hash, encode_record, former_ids
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.sources.base import Complete, Cursor, Failure, Ignored, Relabel, Removal, Upsert
from aps_rag_pipeline.stores.catalog import Catalog, from_iso, iso, pack, pack_json
from aps_rag_pipeline.sync import spool, state
from aps_rag_pipeline.sync.ignored import note_ignored, units_above
from aps_rag_pipeline.sync.letters import note_failures
from aps_rag_pipeline.sync.removals import (
    ChangesetNumber,
    FeedChanges,
    drop_unconfigured,
    hold,
    note_held,
    relabel_defaults,
    removal_digest,
    remove_records,
)
from aps_rag_pipeline.sync.workspace import Workspace

log = logging.getLogger(__name__)

_COLUMNS = (
    *("source", "feed", "id", "key", "unit", "title", "access", "created_at", "modified_at", "seen_at"),
    *("content_hash", "access_hash", "masked", "body", "changeset"),
)


@dataclass
class ApplyReport:
    changeset: int
    feeds: list[FeedChanges]

    @property
    def counts(self) -> Counter[str]:
        total: Counter[str] = Counter(added=0, changed=0, relabelled=0, removed=0)
        for feed in self.feeds:
            total.update(feed.counts)
        return total

    @property
    def moved(self) -> int:
        return sum(self.counts[name] for name in ("added", "changed", "relabelled", "removed"))


def apply_spool(workspace: Workspace) -> ApplyReport:
    """Apply everything that waits, oldest fetch first. Needs the writer lock."""
    catalog = workspace.catalog
    numbers = ChangesetNumber(catalog)
    changes = relabel_defaults(workspace, numbers)
    for path in spool.waiting(workspace.home.spool):
        try:
            changes.append(_apply_file(workspace, path, numbers))
        except spool.DamagedError as error:
            log.error("%s; what it held is fetched again", error)
        passing("apply.unlink.before")
        path.unlink()
        passing("apply.unlink.after")
    changes.extend(drop_unconfigured(workspace, numbers))
    if numbers.number:
        applied = state.read_pipeline(workspace.home)
        applied.applied = numbers.number
        state.write_pipeline(workspace.home, applied)
    return ApplyReport(catalog.changeset(), changes)


class _LookOnly(Exception):
    """Ends a transaction that was only opened to look."""


def would_change(workspace: Workspace, path: Path) -> FeedChanges:
    """What applying a spool file would change; the catalog is as before."""
    header, entries = spool.read(path)
    changes = FeedChanges(header.source, header.feed)
    with contextlib.suppress(_LookOnly), workspace.catalog.transaction():
        numbers = ChangesetNumber(workspace.catalog)
        batch = _Batch(workspace.catalog, workspace.settings, header, changes, numbers)
        for entry in entries:
            batch.take(entry)
        batch.finish()
        raise _LookOnly
    return changes


def _apply_file(workspace: Workspace, path: Path, numbers: ChangesetNumber) -> FeedChanges:
    header, entries = spool.read(path)
    changes = FeedChanges(header.source, header.feed)
    catalog, settings = workspace.catalog, workspace.settings
    if header.feed not in {feed.name for feed in settings.feeds}:
        return changes  # taken out of the configuration since it was fetched
    before = catalog.value("select sequence from feeds where feed = ?", (header.feed,)) or 0
    if before == header.sequence:  # a run died between this file's commit and its end
        _remember(workspace, header, header.fingerprint)
        return changes
    if before != header.base:
        # Another fetch has been applied since: this cursor knows nothing of it. The next sync fetches from there.
        return changes
    with numbers.kept_on_success(), catalog.transaction() as connection:
        batch = _Batch(catalog, settings, header, changes, numbers)
        for entry in entries:
            batch.take(entry)
        batch.finish()
        connection.execute(
            "insert or replace into feeds values (?, ?, ?, ?, ?, ?)",
            (
                header.feed, header.source, pack_json(batch.cursor), header.config, header.sequence,
                json.dumps(list(settings.feed(header.feed).access)),
            ),
        )  # fmt: skip
        passing("apply.commit.before")
    passing("apply.commit.after")
    _remember(workspace, header, batch.fingerprint)
    return changes


class _Batch:
    """One feed's stream, applied inside a transaction."""

    def __init__(
        self, catalog: Catalog, settings: Settings, header: spool.Header, changes: FeedChanges, numbers: ChangesetNumber
    ) -> None:
        self.catalog, self.settings, self.header = catalog, settings, header
        self.changes, self.numbers = changes, numbers
        self.cursor: object = None
        self.fingerprint = header.fingerprint
        self.now = iso(clock.now())
        self.several = settings.several(header.source)
        self.complete: set[str] = set()
        self.removals: set[str] = set()
        self.labels: dict[str, tuple[str, ...]] = {}
        self.renamed: set[str] = set()  # ids that records of this stream had before
        self.failures: list[Failure] = []
        self.ignored: list[Ignored] = []
        connection = catalog.connection
        connection.execute("drop table if exists temp.incoming")
        connection.execute(
            "create temp table incoming (id text primary key, unit text, place text, key text, title text, "
            "access text, created_at text, modified_at text, content_hash text, access_hash text, masked int, "
            "body blob) without rowid"
        )
        self.copies: list[tuple[str, str]] = []
        configured = {feed.name for feed in settings.feeds}
        purged = [  # also under the name of a feed that has been renamed
            r
            for r in catalog.rows("select feed, id, unit from purged where source = ?", (header.source,))
            if r["feed"] == header.feed or r["feed"] not in configured
        ]
        self.purged = {r["id"] for r in purged}
        self.purged_units = {r["unit"] for r in purged if r["unit"]}

    def take(self, entry: spool.Entry) -> None:
        match entry.change:
            case Upsert(record, unit, place):
                self._take_record(record, unit, place, entry.masked)
            case Complete(unit):
                self.complete.add(unit)
            case Removal(record_id):
                self.removals.add(record_id)
            case Relabel(record_id, access):
                self.labels[record_id] = tuple(sorted(set(access)))
            case Failure():
                self.failures.append(entry.change)
            case Ignored():
                self.ignored.append(entry.change)
            case Cursor(value, fingerprint):
                self.cursor, self.fingerprint = value, fingerprint or self.header.fingerprint

    def _take_record(self, record: Record, unit: str, place: str, masked: int) -> None:
        former = former_ids(record.fields)
        if unit in self.purged_units or not self.purged.isdisjoint((record.id, *former)):
            self.changes.counts["kept_out_by_purge"] += 1
            return
        self.renamed.update(former)
        made = content_hash(record)
        first = next(
            iter(self.catalog.rows("select place, content_hash from incoming where id = ?", (record.id,))), None
        )
        if first is not None:
            if first["content_hash"] == made:
                self.ignored.append(Ignored(place, f"the same record as {first['place']}"))
                self.copies.append((record.id, unit))
            else:
                self._duplicate(record.id, unit, place, first["place"])
            return
        self.catalog.connection.execute(
            "insert into incoming values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.id, unit, place, citation_key(self.header.source, self.header.feed, record.id, self.several),
                record.title, json.dumps(sorted(set(record.access))), iso(record.created_at), iso(record.modified_at),
                made, access_hash(record.access), masked, pack(encode_record(record)),
            ),
        )  # fmt: skip

    def _duplicate(self, record_id: str, unit: str, place: str, first: str) -> None:
        self.failures.append(
            Failure(
                unit, f"duplicate:{record_id}", place,
                f"the id {record_id} stands at {first} already, with other content",
                "give one of them another id", False, record_id,
            )
        )  # fmt: skip

    def finish(self) -> None:
        if self.header.whole:
            self.complete |= self._vanished()
        self._note_copies()
        self._refuse_foreign_duplicates()
        gone = self._gone()
        self._upsert()
        self._relabel()
        self._remove(gone)
        pause = timedelta(hours=self.settings.limits.retry_hours)
        note_failures(self.catalog, self.header.feed, self.failures, self.complete, self.cursor, pause)
        note_ignored(self.catalog, self.header.feed, self.ignored, self.complete)
        self.numbers.add(self.changes.counts)
        self.catalog.connection.execute("drop table temp.incoming")

    def _vanished(self) -> set[str]:
        """Units that the catalog knows and a stream from the very beginning neither completed nor failed on."""
        feed = self.header.feed
        known = {r["unit"] for r in self.catalog.rows("select distinct unit from records where feed = ?", (feed,))}
        known |= {r["unit"] for r in self.catalog.rows("select unit from dead_letters where feed = ?", (feed,))}
        failed = {failure.unit for failure in self.failures}
        listed = set(self.cursor.get("units", ())) if isinstance(self.cursor, dict) else set()
        return {
            unit
            for unit in known - self.complete - failed - listed
            if not any(folder in failed for folder in units_above(unit))
        }

    def _note_copies(self) -> None:
        """Which other units hold the same record: it lives as long as one of them does."""
        feed, connection = self.header.feed, self.catalog.connection
        for row in self.catalog.rows("select distinct unit from copies where feed = ?", (feed,)):
            if row["unit"] in self.complete:
                connection.execute("delete from copies where feed = ? and unit = ?", (feed, row["unit"]))
        connection.executemany(
            "insert or ignore into copies values (?, ?, ?)",
            ((feed, record_id, unit) for record_id, unit in self.copies),
        )

    def _refuse_foreign_duplicates(self) -> None:
        """An id that a unit which was not read again still holds cannot come from elsewhere: the older one stays."""
        for row in self.catalog.rows(
            "select i.id, i.unit, i.place, r.unit as held, i.content_hash = r.content_hash as same from incoming i "
            "join records r on r.feed = ? and r.id = i.id where r.removed = 0 and r.unit <> i.unit",
            (self.header.feed,),
        ):
            if row["held"] not in self.complete:
                if row["same"]:
                    self.ignored.append(Ignored(row["place"], f"the same record as in {row['held']}"))
                    self.catalog.connection.execute(
                        "insert or ignore into copies values (?, ?, ?)", (self.header.feed, row["id"], row["unit"])
                    )
                else:
                    self._duplicate(row["id"], row["unit"], row["place"], row["held"])
                self.catalog.connection.execute("delete from incoming where id = ?", (row["id"],))

    def _gone(self) -> list[int]:
        """Records that the stream says are gone: no longer in a unit that was read whole, or removed by name."""
        feed = self.header.feed
        kept = {failure.record_id for failure in self.failures if failure.record_id}
        self.catalog.connection.execute("create temp table if not exists units (unit text primary key) without rowid")
        self.catalog.connection.execute("delete from temp.units")
        self.catalog.connection.executemany("insert or ignore into units values (?)", ((u,) for u in self.complete))
        rows = self.catalog.rows(
            "select rid, id from records r where feed = ? and removed = 0 and unit in (select unit from units) "
            "and not exists (select 1 from incoming i where i.id = r.id)",
            (feed,),
        )
        found = {r["rid"] for r in rows if r["id"] not in kept and not self._moved_to_a_copy(r["rid"], r["id"])}
        for record_id in self.removals:
            rid = self.catalog.value(
                "select rid from records where feed = ? and id = ? and removed = 0", (feed, record_id)
            )
            back = self.catalog.value("select 1 from incoming where id = ?", (record_id,))
            if rid is not None and not back:
                found.add(rid)
        return sorted(found)

    def _moved_to_a_copy(self, rid: int, record_id: str) -> bool:
        unit = self.catalog.value("select unit from copies where feed = ? and id = ?", (self.header.feed, record_id))
        if unit is not None:
            self.catalog.connection.execute("update records set unit = ? where rid = ?", (unit, rid))
            self.catalog.connection.execute(
                "delete from copies where feed = ? and id = ? and unit = ?", (self.header.feed, record_id, unit)
            )
        return unit is not None

    def _upsert(self) -> None:
        known = {
            row["id"]: row
            for row in self.catalog.rows(
                "select r.rid, r.id, r.key, r.unit, r.removed, r.content_hash, r.access_hash from records r "
                "join incoming i on i.id = r.id where r.feed = ?",
                (self.header.feed,),
            )
        }
        # The cursor over `incoming` must not see its own changes: only `records` is written here.
        for row in self.catalog.connection.execute("select * from incoming order by id"):
            old = known.get(row["id"])
            if old is None or old["removed"]:
                self._write(row, None if old is None else old["rid"], "added")
            elif old["content_hash"] != row["content_hash"] or old["key"] != row["key"]:
                self._write(row, old["rid"], "changed")
            elif old["access_hash"] != row["access_hash"]:
                self._write(row, old["rid"], "relabelled")
            elif old["unit"] != row["unit"]:
                self.catalog.connection.execute("update records set unit = ? where rid = ?", (row["unit"], old["rid"]))
        self.catalog.connection.execute(
            "delete from held_removals where feed = ? and rid in "
            "(select r.rid from records r join incoming i on i.id = r.id where r.feed = ?)",
            (self.header.feed, self.header.feed),
        )

    def _relabel(self) -> None:
        """Labels that are known of records whose text is not: a restriction must not wait for it."""
        for record_id, access in self.labels.items():
            moved = self.catalog.rows(
                "select rid from records where feed = ? and id = ? and removed = 0 and access_hash <> ? "
                "and not exists (select 1 from incoming i where i.id = records.id)",
                (self.header.feed, record_id, access_hash(access)),
            )
            for row in moved:
                self.catalog.connection.execute(
                    "update records set access = ?, access_hash = ?, changeset = ? where rid = ?",
                    (json.dumps(list(access)), access_hash(access), self.numbers.open(), row["rid"]),
                )
                self.changes.counts["relabelled"] += 1

    def _write(self, row: sqlite3.Row, rid: int | None, kind: str) -> None:
        values: dict[str, Any] = dict(row)
        # First sight belongs to the content: a new label does not make a record new.
        values.update(
            source=self.header.source, feed=self.header.feed, seen_at=self.now, changeset=self.numbers.open(), rid=rid
        )
        columns = [name for name in _COLUMNS if kind != "relabelled" or name != "seen_at"]
        connection = self.catalog.connection
        if rid is None:
            marks = ", ".join(f":{name}" for name in columns)
            rid = connection.execute(f"insert into records ({', '.join(columns)}) values ({marks})", values).lastrowid
        else:
            pairs = ", ".join(f"{name} = :{name}" for name in columns)
            connection.execute(f"update records set {pairs}, removed = 0 where rid = :rid", values)
        if kind != "relabelled":
            connection.execute(
                "insert or replace into versions values (?, ?, ?)", (rid, values["changeset"], values["content_hash"])
            )
        self.changes.counts[kind] += 1

    def _remove(self, gone: list[int]) -> None:
        feed = self.header.feed
        moved = self._under_another_id(gone)
        held = [r["rid"] for r in self.catalog.rows("select rid from held_removals where feed = ?", (feed,))]
        gone = sorted({*gone, *held} - moved)
        live = int(self.catalog.value("select count(*) from records where feed = ? and removed = 0", (feed,)))
        limits = self.settings.limits
        if len(gone) > max(limits.removal_floor, limits.removal_ratio * live):
            hold(self.catalog, feed, gone)
            self.changes.held, self.changes.held_digest = len(gone), removal_digest(gone)
            gone = []
        else:
            self.catalog.connection.execute("delete from held_removals where feed = ?", (feed,))
        gone = sorted({*gone, *moved})
        if gone:
            remove_records(self.catalog, gone, self.numbers.open())
            self.changes.counts["removed"] += len(gone)

    def _under_another_id(self, gone: list[int]) -> set[int]:
        """Records that were given under another id: a folder that was renamed is not lost, however large it is."""
        if not self.renamed:
            return set()
        rows = self.catalog.rows("select rid, id from records where feed = ? and removed = 0", (self.header.feed,))
        return {row["rid"] for row in rows if row["id"] in self.renamed}.intersection(gone)


def _remember(workspace: Workspace, header: spool.Header, fingerprint: str | None) -> None:
    note_held(workspace, header.source, header.feed)
    catalog = workspace.catalog
    found = state.read_feed(workspace.home, header.source, header.feed)
    found.succeeded_at, found.fingerprint, found.config = header.started_at, fingerprint, header.config
    found.failures = int(catalog.value("select count(*) from dead_letters where feed = ?", (header.feed,)) or 0)
    found.retry_at = from_iso(catalog.value("select min(retry_at) from dead_letters where feed = ?", (header.feed,)))
    state.write_feed(workspace.home, found)
