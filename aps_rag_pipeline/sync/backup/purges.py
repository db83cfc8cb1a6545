"""Purges that the home knows and a backup does not, carried into what is restored before anybody can read it."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from typing import NamedTuple

from aps_rag_pipeline.stores.catalog import Catalog, pack_json, unpack_json
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import scrub, state
from aps_rag_pipeline.sync.removals import remove_records
from aps_rag_pipeline.sync.rows import former_ids_in


class Purge(NamedTuple):
    """A row of the catalog's `purged`; `unit` is empty where a unit holds several records."""

    source: str
    feed: str
    id: str
    at: str
    unit: str


def carry(home: Home, staged: Home) -> list[str]:
    """Purge from a staged home what was purged from the present one; gives the keys of the records that went.

    Indexes, tables and the release still hold the text of those: the release is dropped, so that nothing serves it, and
    the next run that completes the home builds them anew, removes the traces and releases.
    """
    purges, feeds = _known(home)
    with Catalog(staged) as catalog:
        with catalog.transaction() as connection:
            gone = _still_live(catalog, purges, feeds)
            connection.executemany(
                "insert or ignore into purged (source, feed, id, at, unit) values (?, ?, ?, ?, ?)", purges
            )
            if gone:
                _erase(catalog, sorted(gone))
                scrub.want(catalog)
        if gone:
            shutil.rmtree(staged.releases, ignore_errors=True)
            found = state.read_pipeline(staged)
            found.applied, found.released = catalog.changeset(), 0
            state.write_pipeline(staged, found)
        catalog.connection.execute("pragma journal_mode = delete")
    return sorted(set(gone.values()))


def _known(home: Home) -> tuple[list[Purge], set[str]]:
    """What was purged from a home, and the feeds it has."""
    with (
        contextlib.suppress(sqlite3.DatabaseError),
        contextlib.closing(sqlite3.connect(f"{home.catalog.absolute().as_uri()}?mode=ro", uri=True)) as old,
    ):
        purges = [Purge(*row) for row in old.execute("select source, feed, id, at, unit from purged")]
        return purges, {row[0] for row in old.execute("select feed from feeds")}
    return [], set()


def _still_live(catalog: Catalog, purges: list[Purge], feeds: set[str]) -> dict[int, str]:
    """Number → key of the live records that were purged: by id, by a former id, or as the item of a unit; also in a
    feed that was called otherwise when the backup was made. `feeds` are those of the present home."""
    found: dict[int, str] = {}
    then = catalog.rows("select distinct source, feed from records where removed = 0")
    names = {row["feed"] for row in then}
    for source, feed in then:
        of_source = (purge for purge in purges if purge.source == source)
        meant = [p for p in of_source if p.feed == feed or (p.feed not in names and feed not in feeds)]
        if not meant:
            continue
        ids, units = {purge.id for purge in meant}, {purge.unit for purge in meant if purge.unit}
        for row in catalog.connection.execute(
            "select rid, key, id, unit, body from records where feed = ? and removed = 0", (feed,)
        ):
            if row["unit"] in units or not ids.isdisjoint((row["id"], *former_ids_in(row["body"]))):
                found[row["rid"]] = row["key"]
    return found


def _erase(catalog: Catalog, rids: list[int]) -> None:
    """Tombstones without content, within a transaction, as a purge leaves them."""
    connection, wanted = catalog.connection, json.dumps(rids)
    number = catalog.new_changeset("purge")
    _forget_files(catalog, wanted)
    remove_records(catalog, rids, number)
    connection.execute("update changesets set removed = ? where number = ?", (len(rids), number))
    connection.execute("delete from versions where rid in (select value from json_each(?))", (wanted,))
    connection.execute(
        "update records set content_hash = '', created_at = null where rid in (select value from json_each(?))",
        (wanted,),
    )


def _forget_files(catalog: Catalog, wanted: str) -> None:
    """Live feeds keep fetched files by unit."""
    for row in catalog.rows("select feed, unit from records where rid in (select value from json_each(?))", (wanted,)):
        cursor = unpack_json(catalog.value("select cursor from feeds where feed = ?", (row["feed"],)))
        if isinstance(cursor, dict) and cursor.get("files", {}).pop(row["unit"], None) is not None:
            catalog.connection.execute("update feeds set cursor = ? where feed = ?", (pack_json(cursor), row["feed"]))
