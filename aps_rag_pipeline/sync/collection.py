"""The collection of releases that nobody needs any more, and of what only they needed.

A release is renamed first: from then on no reader finds it. Its folder goes last: while it lies there, the collection
is unfinished, and the next run goes on with it.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
import time
from collections import Counter
from datetime import timedelta

from aps_rag_pipeline import clock
from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.catalog import Catalog, unpack_json
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.releases import GONE, Manifest
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import spool, state
from aps_rag_pipeline.sync.names import COLLECTED
from aps_rag_pipeline.sync.preparation import drop_vectors
from aps_rag_pipeline.sync.projection import drop_long_dead
from aps_rag_pipeline.sync.workspace import Workspace

#: A reader that opens a table looks at its newest version for a moment: one that was the newest just now stays.
_MARGIN = timedelta(seconds=5)
#: How far the time that a file bears may be behind the clock.
_CLOCK_S = 0.05
#: The catalog is written anew when more than one page in so many is free.
_FREE_ONE_IN = 6
_TAG = "release-"
_COLLECTED_VERSION = "1"


def tag_of(number: int) -> str:
    """Name of the tag that pins a release's table versions."""
    return f"{_TAG}{number:08d}"


def collect(workspace: Workspace, *, at_once: bool = False) -> Counter[str]:
    """Drop releases that a newer one has replaced for long enough and that no reader holds, then what only they needed.

    `at_once` ignores the grace period and the leases: a purge must not wait.
    """
    home, catalog = workspace.home, workspace.catalog
    counts: Counter[str] = Counter(releases_collected=0)
    grace = timedelta(hours=workspace.settings.limits.retention_hours)
    for number in releases.numbers(home)[:-1] if at_once else list(releases.replaced(home, clock.now() - grace)):
        counts["releases_collected"] += releases.retire(home, number, whoever_reads=at_once)
    gone = releases.gone(home)
    if gone or at_once:
        _drop_drafts(home)
        _forget_tables(home, timedelta(0) if at_once else _MARGIN)
        passing("collect.rows.before")
        with catalog.transaction() as connection:
            counts["vectors_collected"] = drop_vectors(workspace, everything=at_once)
            connection.execute("delete from attachments where rid in (select rid from records where removed = 1)")
            connection.execute("delete from ocr where sha256 not in (select sha256 from attachments)")
            _drop_versions(catalog)
            drop_long_dead(catalog)
        passing("collect.rows.after")
        counts["blobs_collected"] = _collect_blobs(workspace, None if at_once else grace)
        _vacuum(catalog)
    passing("collect.rmtree.before")
    for folder in gone:
        shutil.rmtree(folder, ignore_errors=True)
    passing("collect.rmtree.after")
    return counts


def _drop_versions(catalog: Catalog) -> None:
    """Drop, within a transaction, the notes of versions that a newer one has replaced. After a collection each record
    has one: only what moved since the last can have more."""
    target = catalog.changeset()
    catalog.connection.execute(
        "delete from versions where rid in (select rid from records where changeset > ?) and exists (select 1 from "
        "versions newer where newer.rid = versions.rid and newer.changeset > versions.changeset)",
        (catalog.applied(COLLECTED, _COLLECTED_VERSION),),
    )
    catalog.set_applied(COLLECTED, _COLLECTED_VERSION, target)


def _drop_drafts(home: Home) -> None:
    """What writers that died have left behind."""
    passing("collect.drafts.before")
    shutil.rmtree(home.restore_draft, ignore_errors=True)
    for path in home.releases.glob(".*"):
        if not path.name.startswith(GONE):
            shutil.rmtree(path, ignore_errors=True)
    spool.drop_drafts(home.spool, time.time() - _MARGIN.total_seconds())
    home.blobs.drop_drafts()
    state.drop_drafts(home)


def _forget_tables(home: Home, older_than: timedelta) -> None:
    """Tags of releases that are no more, then the versions that no tag holds, and chunk tables of models that no
    release uses."""
    kept = [releases.read_manifest(home, number) for number in releases.numbers(home)]
    if not kept:
        return
    tables = LanceTables(home)
    tables.drop_remains()
    passing("collect.tags.before")
    for name in tables.names():
        if not any(name in manifest.tables for manifest in kept):
            tables.drop(name)
        else:
            _drop_tags(tables, name, kept)
    passing("collect.versions.before")
    for name in tables.names():
        tables.forget_versions(name, older_than)
        passing("collect.version.after")


def _drop_tags(tables: LanceTables, name: str, kept: list[Manifest]) -> None:
    wanted = {tag_of(manifest.number) for manifest in kept}
    for tag in tables.tags(name):
        if tag.startswith(_TAG) and tag not in wanted:
            tables.untag(name, tag)
            passing("collect.tag.after")


def _collect_blobs(workspace: Workspace, grace: timedelta | None) -> int:
    """Blobs that nothing refers to and that no fetch can have seen since `grace` ago.

    Without `grace` nothing but what a fetch may still apply is spared: those that are under way fail, of those that
    wait the blobs are kept, and so is what a fetch that begins now sees again.
    """
    catalog, home, blobs = workspace.catalog, workspace.home, workspace.home.blobs
    now = time.time()
    if grace is None:
        spool.drop_drafts(home.spool, math.inf, living=True)
    wanted = spool.blobs(home.spool) if grace is None else set()
    wanted |= {row["sha256"] for row in catalog.rows("select distinct sha256 from attachments")}
    for row in catalog.rows("select cursor from feeds"):
        wanted |= spool.kept_files(unpack_json(row["cursor"]))
    if grace is None:
        upto = now - _CLOCK_S
    else:
        upto = clock.now().timestamp() - grace.total_seconds()
        upto = min(upto, spool.oldest(home.spool) or upto)  # what a fetch has put is in no table yet
    count = 0
    for sha256 in [sha for sha in blobs if sha not in wanted]:
        passing("collect.blob.before")
        count += blobs.remove(sha256, upto)
        passing("collect.blob.after")
    return count


def _vacuum(catalog: Catalog) -> None:
    """Give back the catalog's free pages when they are many."""
    passing("collect.vacuum.before")
    free, pages = catalog.value("pragma freelist_count"), catalog.value("pragma page_count")
    if free * _FREE_ONE_IN > pages:
        with contextlib.suppress(sqlite3.OperationalError):  # another is reading it: the next collection will do
            catalog.connection.execute("vacuum")
            catalog.connection.execute("pragma wal_checkpoint(truncate)")
    passing("collect.vacuum.after")
