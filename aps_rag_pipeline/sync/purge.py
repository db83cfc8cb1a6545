"""Removing a record at once and for good: from every store, old release and file that could still hold it."""

from __future__ import annotations

import contextlib
import json

from aps_rag_pipeline import clock
from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.settings import SettingsError
from aps_rag_pipeline.stores.catalog import Catalog, iso
from aps_rag_pipeline.stores.lock import WriterLock
from aps_rag_pipeline.sync import pipeline, scrub
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import reader
from aps_rag_pipeline.sync.removals import erase_records
from aps_rag_pipeline.sync.rows import former_ids_in
from aps_rag_pipeline.sync.workspace import Workspace


class UnknownKeyError(LookupError):
    """No record has this key."""


def find(catalog: Catalog, key: str) -> list[int]:
    """Record numbers of a citation key, with or without the feed's name; in other letters only when one key is meant.

    Raises:
        UnknownKeyError: several keys could be meant.
    """
    prefix, _, rest = key.partition(":")
    for sql, values in (
        ("select rid, key from records where key = ?", (key,)),
        ("select rid, key from records where id = ? and key like ? || ':%'", (rest, prefix)),
        ("select rid, key from records where key = ? collate nocase", (key,)),
    ):
        rows = catalog.rows(sql, values)
        if len({row["key"] for row in rows}) > 1:
            raise UnknownKeyError(
                f"{key}: could mean {', '.join(sorted(row['key'] for row in rows))}; name one of them"
            )
        if rows:
            return [row["rid"] for row in rows]
    return []


def _heirs(catalog: Catalog, key: str, rids: list[int]) -> set[int]:
    """Live records that were called so before: what is to be purged may have moved there."""
    prefix, _, rest = key.partition(":")
    wanted = set()
    for rid in rids:
        wanted |= {tuple(row) for row in catalog.rows("select feed, id from records where rid = ?", (rid,))}
    found = set()
    for row in catalog.connection.execute(
        "select rid, feed, body from records where removed = 0 and body is not null and key like ? || ':%'", (prefix,)
    ):
        for former in former_ids_in(row["body"]):
            asked = not rids and rest in (former, f"{row['feed']}/{former}")
            if asked or (row["feed"], former) in wanted:
                found.add(row["rid"])
    return found


def _is_purged(catalog: Catalog, rid: int) -> bool:
    sql = "select 1 from purged p join records r on r.feed = p.feed and r.id = p.id where r.rid = ? and r.removed = 1"
    return catalog.value(sql, (rid,)) is not None


def purge(workspace: Workspace, key: str) -> int:
    """Remove a record everywhere and keep it out from now on; gives how many records went (one, but for shared ids).
    A key that the record had before it was renamed means it too.

    Old releases are dropped at once, whoever reads them: the record may be a leaked password.

    Raises:
        UnknownKeyError: no record has this key.
    """
    catalog = workspace.catalog
    with WriterLock(workspace.home, workspace.settings.limits.lock_timeout_s, f"purge {key}"):
        rids = find(catalog, key)
        rids = sorted({*rids, *_heirs(catalog, key, rids)})
        if not rids:
            raise UnknownKeyError(f"{key}: no record has this key; `aps-rag show` finds records by key")
        found, rids = rids, [rid for rid in rids if not _is_purged(catalog, rid)]
        if not rids and scrub.wanted(catalog):  # a run died on the way
            pipeline.complete(workspace)
            return len(found)
        if not rids:
            raise UnknownKeyError(f"{key}: has been purged already")
        apply_spool(workspace)  # what was fetched and waits could hold its text
        rids = sorted({*rids, *_heirs(catalog, key, rids)})
        with catalog.transaction() as connection:
            for rid in rids:
                connection.execute(
                    "insert or replace into purged (source, feed, id, at, unit) "
                    "select source, feed, id, ?, iif(feed in (select value from json_each(?)), unit, '') "
                    "from records where rid = ?",
                    (iso(clock.now()), json.dumps(_by_unit(workspace)), rid),
                )
            erase_records(catalog, rids)
            scrub.want(catalog)
            passing("purge.commit.before")
        passing("purge.commit.after")
        pipeline.complete(workspace)
    return len(rids)


def _by_unit(workspace: Workspace) -> list[str]:
    """Feeds whose units are one item each, whatever id it bears."""
    found = []
    for feed in workspace.settings.feeds:
        with contextlib.suppress(SettingsError):
            if reader(workspace.settings, feed, workspace.home.blobs).unit_is_record:
                found.append(feed.name)
    return found
