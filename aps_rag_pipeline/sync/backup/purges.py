"""Purges that the home knows and a backup does not, carried into what is restored before anybody can read it."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sqlite3
from typing import NamedTuple

from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.trouble import told
from aps_rag_pipeline.sync import scrub, state
from aps_rag_pipeline.sync.backup.contents import BackupError
from aps_rag_pipeline.sync.removals import erase_records
from aps_rag_pipeline.sync.rows import former_ids_in

log = logging.getLogger(__name__)


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
            gone = _still_there(catalog, purges, feeds)
            connection.executemany(
                "insert or ignore into purged (source, feed, id, at, unit) values (?, ?, ?, ?, ?)", purges
            )
            if gone:
                erase_records(catalog, sorted(gone))
                scrub.want(catalog)
        if gone:
            shutil.rmtree(staged.releases, ignore_errors=True)
            found = state.read_pipeline(staged)
            found.applied, found.released = catalog.changeset(), 0
            state.write_pipeline(staged, found)
        catalog.connection.execute("pragma journal_mode = delete")
    return sorted(set(gone.values()))


def _known(home: Home) -> tuple[list[Purge], set[str]]:
    """What was purged from a home, and the feeds it has. Of a damaged catalog, which a restore is the remedy for,
    nothing can be told.

    Raises:
        BackupError: the catalog is whole and cannot be read, or tells its purges in a way that is not known here.
    """
    if not home.catalog.exists():
        return [], set()
    place = f"{home.catalog.absolute().as_uri()}?mode=rw"  # what a writer that died has left may have to be undone
    try:
        with contextlib.closing(sqlite3.connect(place, uri=True)) as old:
            return _read(home, old)
    except sqlite3.DatabaseError as error:
        if not damaged(error):
            raise BackupError(
                f"{home.catalog}: what was purged from this home cannot be read ({told(error) or error}), and would "
                "come back; the home is as it was"
            ) from error
        log.warning("%s: is damaged, so what was purged since the backup cannot be kept out of it", home.catalog)
    return [], set()


def damaged(error: sqlite3.DatabaseError) -> bool:
    """Whether a file is no catalog any more, and not merely locked or out of reach."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _read(home: Home, old: sqlite3.Connection) -> tuple[list[Purge], set[str]]:
    columns = {row[1] for row in old.execute("pragma table_info(purged)")}
    schema = int(old.execute("pragma user_version").fetchone()[0])
    if schema == 0 and not columns:  # made, and never written
        return [], set()
    if not columns >= {"source", "feed", "id", "at"}:
        raise BackupError(
            f"{home.catalog}: has schema {schema}, in which this version finds no purges, so they would come back; "
            "restore with the version that wrote it, or into another home"
        )
    unit = "unit" if "unit" in columns else "''"
    purges = [Purge(*row) for row in old.execute(f"select source, feed, id, at, {unit} from purged")]
    return purges, {row[0] for row in old.execute("select feed from feeds")}


def _still_there(catalog: Catalog, purges: list[Purge], feeds: set[str]) -> dict[int, str]:
    """Number → key of the records that were purged since: by id, by a former id, or as the item of a unit; also in a
    feed that was called otherwise when the backup was made, and such as the source had removed, which the release may
    still hold. `feeds` are those of the present home."""
    found: dict[int, str] = {}
    then = catalog.rows("select distinct source, feed from records")
    names = {row["feed"] for row in then}
    for source, feed in then:
        of_source = (purge for purge in purges if purge.source == source)
        meant = [p for p in of_source if p.feed == feed or (p.feed not in names and feed not in feeds)]
        if not meant:
            continue
        ids, units = {purge.id for purge in meant}, {purge.unit for purge in meant if purge.unit}
        for row in catalog.connection.execute(
            "select rid, key, id, unit, body from records r where feed = ? and not (removed = 1 and exists "
            "(select 1 from purged p where p.feed = r.feed and p.id = r.id))",
            (feed,),
        ):
            former = () if row["body"] is None else former_ids_in(row["body"])
            if row["unit"] in units or not ids.isdisjoint((row["id"], *former)):
                found[row["rid"]] = row["key"]
    return found
