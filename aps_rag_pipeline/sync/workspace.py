"""What every step of a sync works with, and what it reports."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync.names import SWEEPS, downstream

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Records are worked on in batches of this size, so that memory does not grow with the corpus.
BATCH = 1000


class Progress(Protocol):
    """Shown while long work runs; the terminal draws a bar, a scheduled run counts silently."""

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]: ...


class NoProgress:
    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        return iter(items)


@dataclass(frozen=True)
class Workspace:
    settings: Settings
    home: Home
    catalog: Catalog
    progress: Progress = field(default_factory=NoProgress)


@dataclass
class StageReport:
    """What a stage did. `counts` always has `changed`: 0 means that nothing was written."""

    stage: str
    version: str
    changeset: int
    counts: Counter[str] = field(default_factory=Counter)
    notices: list[str] = field(default_factory=list)

    @property
    def data_version(self) -> str:
        return f"{self.stage}@{self.version}#{self.changeset}"


@dataclass(frozen=True)
class ChangedRecord:
    """A record that a stage has to look at: as it is now, or gone."""

    rid: int
    key: str
    source: str
    feed: str
    removed: bool


def changed_records(catalog: Catalog, after: int, batch: int = BATCH) -> Iterator[list[ChangedRecord]]:
    """Records that moved after a changeset, in batches by record number."""
    last = 0
    while True:
        rows = catalog.rows(
            "select rid, key, source, feed, removed from records where changeset > ? and rid > ? order by rid limit ?",
            (after, last, batch),
        )
        if not rows:
            return
        yield [ChangedRecord(r["rid"], r["key"], r["source"], r["feed"], bool(r["removed"])) for r in rows]
        last = rows[-1]["rid"]


def run_stage(
    workspace: Workspace,
    stage: str,
    version: str,
    work: Callable[[list[ChangedRecord]], Counter[str]],
    *,
    batch: int = BATCH,
    carry: Callable[[], None] | None = None,
) -> StageReport:
    """Give a stage every record that moved since it last finished, and note how far it came.

    A stage in another version, or one that was made to `start_over`, looks at every record again. Batches commit on
    their own; they must be idempotent, since a run that died repeats them.

    Args:
        carry: carries to the disk what the work wrote outside the catalog, where that is not done by then: the note
            outlives a power failure, and nobody would look at these records again.
    """
    catalog = workspace.catalog
    before = catalog.value("select version from stages where stage = ?", (stage,))
    if before is not None and before != version:
        with catalog.transaction():
            _open_changeset(catalog, stage, version)
    target = catalog.changeset()
    after = catalog.applied(stage, version)
    report = StageReport(stage, version, target)
    report.counts["changed"] = 0
    if after >= target:
        return report
    total = int(catalog.value("select count(*) from records where changeset > ?", (after,)))
    batches = changed_records(catalog, after, batch)
    for some in workspace.progress.track(batches, stage, -(-total // batch)):
        report.counts.update(work(some))
    if carry is not None:
        carry()
    passing("stage.applied.before")
    with catalog.transaction():
        catalog.set_applied(stage, version, target)
    passing("stage.applied.after")
    return report


def start_over(catalog: Catalog, stage: str, version: str) -> None:
    """Make a stage look at every record in its next run. To be called before what it made is put up anew and empty: a
    run that dies behind that would otherwise leave a result that seems complete. A stage that never ran does so anyway.
    """
    known = catalog.value("select applied from stages where stage = ?", (stage,))
    if not known:
        return
    with catalog.transaction() as connection:
        _open_changeset(catalog, stage, version)
        connection.execute("update stages set version = ?, applied = 0 where stage = ?", (version, stage))
        passing("stage.redo.before")
    passing("stage.redo.after")


def _open_changeset(catalog: Catalog, stage: str, version: str) -> None:
    """A changeset for what a stage derives anew: seen by the stages that read it, already applied by all others."""
    affected = {stage} | downstream(stage)
    old = catalog.changeset()
    new = catalog.new_changeset(f"{stage} {version}")
    for row in catalog.rows("select stage from stages where applied = ?", (old,)):
        if row["stage"].partition(":")[0] not in affected and row["stage"] not in SWEEPS:
            catalog.connection.execute("update stages set applied = ? where stage = ?", (new, row["stage"]))


def touch(catalog: Catalog, rids: Iterable[int], reason: str, target: int) -> None:
    """Make the later stages look at records whose derived content moved although their source did not."""
    catalog.connection.executemany(
        "update records set changeset = ? where rid = ? and changeset < ?", ((target, rid, target) for rid in rids)
    )
    log.debug("touched records: %s", reason)
