"""Removing records: the hold on suspiciously large removals, its confirmation, and the tombstones that stay."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.workspace import Workspace


@dataclass
class FeedChanges:
    """What one feed's spool changed in the catalog."""

    source: str
    feed: str
    counts: Counter[str] = field(default_factory=Counter)
    held: int = 0
    held_digest: str = ""


class ChangesetNumber:
    """The number of this sync's changeset, opened with its first change."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.number = 0

    def open(self) -> int:
        if not self.number:
            self.number = self._catalog.new_changeset("sync")
        return self.number

    def add(self, counts: Counter[str]) -> None:
        names = ("added", "changed", "relabelled", "removed")
        if any(counts[name] for name in names):
            self._catalog.connection.execute(
                "update changesets set added = added + ?, changed = changed + ?, relabelled = relabelled + ?, "
                "removed = removed + ? where number = ?",
                (*(counts[name] for name in names), self.open()),
            )


def hold(catalog: Catalog, feed: str, rids: list[int]) -> None:
    catalog.connection.execute("delete from held_removals where feed = ?", (feed,))
    catalog.connection.executemany("insert into held_removals values (?, ?)", ((feed, rid) for rid in rids))


def removal_digest(rids: list[int]) -> str:
    """Names a set of held removals, so that a confirmation cannot hit another set."""
    return hashlib.blake2b(",".join(map(str, sorted(rids))).encode(), digest_size=5).hexdigest()


def confirm_removals(workspace: Workspace, digest: str) -> int:
    """Remove exactly the held set of this digest; gives how many records went.

    Raises:
        ValueError: no held set has this digest (any more).
    """
    catalog = workspace.catalog
    for row in catalog.rows("select distinct feed from held_removals"):
        rids = [r["rid"] for r in catalog.rows("select rid from held_removals where feed = ?", (row["feed"],))]
        if removal_digest(rids) != digest:
            continue
        with catalog.transaction() as connection:
            numbers = ChangesetNumber(catalog)
            remove_records(catalog, rids, numbers.open())
            numbers.add(Counter(removed=len(rids)))
            connection.execute("delete from held_removals where feed = ?", (row["feed"],))
        applied = state.read_pipeline(workspace.home)
        applied.applied = numbers.number
        state.write_pipeline(workspace.home, applied)
        return len(rids)
    raise ValueError(f"no held removals have the digest {digest}; `aps-rag status` shows those there are")


def remove_records(catalog: Catalog, rids: list[int], changeset: int) -> None:
    """Turn records into tombstones: nothing of their content stays but the key, which later stages need to delete."""
    catalog.connection.executemany(
        "update records set removed = 1, body = null, title = '', access = '[]', changeset = ? where rid = ?",
        ((changeset, rid) for rid in rids),
    )


def drop_unconfigured(workspace: Workspace, numbers: ChangesetNumber) -> list[FeedChanges]:
    """A feed that was taken out of facility.yaml loses its records, after the same hold as any large removal."""
    catalog = workspace.catalog
    configured = {feed.name for feed in workspace.settings.feeds}
    dropped = []
    for row in catalog.rows("select feed, source from feeds"):
        if row["feed"] in configured:
            continue
        changes = FeedChanges(row["source"], row["feed"])
        rids = [
            r["rid"] for r in catalog.rows("select rid from records where feed = ? and removed = 0", (row["feed"],))
        ]
        with catalog.transaction() as connection:
            if len(rids) > workspace.settings.limits.removal_floor:
                changes.held, changes.held_digest = len(rids), removal_digest(rids)
                if rids != [
                    r["rid"] for r in catalog.rows("select rid from held_removals where feed = ?", (row["feed"],))
                ]:
                    hold(catalog, row["feed"], rids)
            else:
                if rids:
                    remove_records(catalog, rids, numbers.open())
                    changes.counts["removed"] += len(rids)
                    numbers.add(changes.counts)
                for table in ("feeds", "dead_letters", "ignored", "held_removals"):
                    connection.execute(f"delete from {table} where feed = ?", (row["feed"],))
        dropped.append(changes)
    return dropped
