"""Removing records: the hold on suspiciously large removals, its confirmation, and the tombstones that stay."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from aps_rag_pipeline.records import access_hash
from aps_rag_pipeline.stores.catalog import Catalog, pack_json, unpack_json
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

    @contextlib.contextmanager
    def kept_on_success(self) -> Iterator[None]:
        """Around a transaction: a number that it opened goes when it is rolled back."""
        before = self.number
        try:
            yield
        except BaseException:
            self.number = before
            raise

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
            source = catalog.value("select source from feeds where feed = ?", (row["feed"],))
        note_held(workspace, source, row["feed"])
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


def erase_records(catalog: Catalog, rids: list[int]) -> None:
    """Purge records in a changeset of their own, within a transaction: not even their hashes and times stay, nor the
    files that a live feed keeps by unit."""
    number, connection = catalog.new_changeset("purge"), catalog.connection
    of_these, wanted = "rid in (select value from json_each(?))", (json.dumps(rids),)
    for row in catalog.rows(f"select distinct feed, unit from records where {of_these}", wanted):
        packed = catalog.value("select cursor from feeds where feed = ?", (row["feed"],))
        cursor = None if packed is None else unpack_json(packed)
        if isinstance(cursor, dict) and cursor.get("files", {}).pop(row["unit"], None) is not None:
            connection.execute("update feeds set cursor = ? where feed = ?", (pack_json(cursor), row["feed"]))
    remove_records(catalog, rids, number)
    connection.execute("update changesets set removed = ? where number = ?", (len(rids), number))
    connection.execute(f"delete from versions where {of_these}", wanted)
    connection.execute(f"update records set content_hash = '', created_at = null where {of_these}", wanted)


def relabel_defaults(workspace: Workspace, numbers: ChangesetNumber) -> list[FeedChanges]:
    """A feed's new default labels hold at once, also for records that cannot be read again just now."""
    catalog, relabelled = workspace.catalog, []
    for feed in workspace.settings.feeds:
        old = catalog.value("select access from feeds where feed = ?", (feed.name,))
        new = json.dumps(list(feed.access))
        if old is None or old == new:
            continue
        with catalog.transaction() as connection:
            moved = connection.execute(
                "update records set access = ?, access_hash = ?, changeset = ? "
                "where feed = ? and access = ? and removed = 0",
                (new, access_hash(feed.access), numbers.open(), feed.name, old),
            ).rowcount
            connection.execute("update feeds set access = ? where feed = ?", (new, feed.name))
            changes = FeedChanges(feed.source, feed.name, Counter(relabelled=moved))
            numbers.add(changes.counts)
            relabelled.append(changes)
    return relabelled


def drop_unconfigured(workspace: Workspace, numbers: ChangesetNumber) -> list[FeedChanges]:
    """Records of a feed that was taken out of facility.yaml are served no more at once; they are removed after the same
    hold as any large removal, and come back unharmed when the feed does."""
    catalog = workspace.catalog
    configured = {feed.name for feed in workspace.settings.feeds}
    dropped = []
    for row in catalog.rows("select feed, source from feeds"):
        if row["feed"] not in configured:
            dropped.append(_drop_feed(workspace, row["source"], row["feed"], numbers))
    return dropped


def _drop_feed(workspace: Workspace, source: str, feed: str, numbers: ChangesetNumber) -> FeedChanges:
    catalog, changes = workspace.catalog, FeedChanges(source, feed)
    rids = [r["rid"] for r in catalog.rows("select rid from records where feed = ? and removed = 0", (feed,))]
    with catalog.transaction() as connection:
        if len(rids) > workspace.settings.limits.removal_floor:
            changes.held, changes.held_digest = len(rids), removal_digest(rids)
            served = catalog.value("select count(*) from records where feed = ? and access <> '[]'", (feed,))
            if served:
                hold(catalog, feed, rids)
                connection.execute(
                    "update records set access = '[]', access_hash = '', changeset = ? where feed = ? and removed = 0",
                    (numbers.open(), feed),
                )
                # Without a cursor all is read again, and so comes back, when the feed does.
                connection.execute("update feeds set cursor = null, config = '' where feed = ?", (feed,))
                changes.counts["relabelled"] += served
                numbers.add(changes.counts)
                note_held(workspace, source, feed)
        else:
            if rids:
                remove_records(catalog, rids, numbers.open())
                changes.counts["removed"] += len(rids)
                numbers.add(changes.counts)
            for table in ("feeds", "dead_letters", "ignored", "held_removals", "copies"):
                connection.execute(f"delete from {table} where feed = ?", (feed,))
            state.forget_feed(workspace.home, feed)
            shutil.rmtree(workspace.home.checkouts / feed, ignore_errors=True)
    return changes


def note_held(workspace: Workspace, source: str, feed: str) -> None:
    """Bring the held removals and counts that `status` shows in line with the catalog."""
    catalog = workspace.catalog
    held = [r["rid"] for r in catalog.rows("select rid from held_removals where feed = ?", (feed,))]
    found = state.read_feed(workspace.home, source, feed)
    found.held_removals, found.held_digest = len(held), removal_digest(held) if held else ""
    found.records = int(catalog.value("select count(*) from records where feed = ? and removed = 0", (feed,)) or 0)
    state.write_feed(workspace.home, found)
