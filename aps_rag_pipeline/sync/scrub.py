"""What a purge leaves to the next release: until that is whole, a note in the catalog says that something lingers.

A record that was purged is a tombstone at once, but old segments, table versions, releases and free pages still hold
its text. A run that dies on the way is completed by the next sync, whoever starts it.
"""

from __future__ import annotations

import logging
import sqlite3
import time

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.stores import bolt_server
from aps_rag_pipeline.stores.bolt import GraphError
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import spool
from aps_rag_pipeline.sync.names import SCRUB
from aps_rag_pipeline.sync.projection import NO_SERVER, forget, project
from aps_rag_pipeline.sync.workspace import Workspace

log = logging.getLogger(__name__)

#: SQLite puts what more it knows of an error into the bits above these.
_PRIMARY_CODE = 0xFF


def want(catalog: Catalog) -> None:
    """Note, within a purge's transaction, that its traces are to be removed."""
    catalog.set_applied(SCRUB, "wanted", 0)


def wanted(catalog: Catalog) -> bool:
    return catalog.value("select 1 from stages where stage = ?", (SCRUB,)) is not None


def rewrite_tables(workspace: Workspace) -> None:
    """Tables as new versions without the files in which deleted rows linger; the old ones go with their releases."""
    tables = LanceTables(workspace.home)
    passing("purge.rewrite.before")
    for name in tables.names():
        tables.rewrite(name)
    passing("purge.rewrite.after")


def finish(workspace: Workspace) -> None:
    """Leave no copy behind in the projection, in drafts, nor in tombstones, free pages and log of the catalog. While a
    reader of the catalog needs its log the note stays, and the next sync goes on."""
    catalog = workspace.catalog
    passing("purge.scrub.before")
    _rebuild_projection(workspace)
    spool.drop_drafts(workspace.home.spool, time.time(), living=True)
    with catalog.transaction() as connection:
        connection.execute("delete from nodes where removed = 1")
        connection.execute("delete from edges where removed = 1")
    if not _rewrite_catalog(catalog):
        log.warning("another process reads the catalog, whose log still holds what was purged: the next sync goes on")
        return
    with catalog.transaction() as connection:
        connection.execute("delete from stages where stage = ?", (SCRUB,))
    passing("purge.scrub.after")


def _rewrite_catalog(catalog: Catalog) -> bool:
    """Leave no free pages and an empty log; gives False when a reader still needs the log after all patience."""
    try:
        catalog.connection.execute("vacuum")
        busy, _, _ = catalog.connection.execute("pragma wal_checkpoint(truncate)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & _PRIMARY_CODE not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        return False
    return not busy


def _rebuild_projection(workspace: Workspace) -> None:
    try:
        # Names of deleted nodes linger in the small server's own files: it starts empty.
        bolt_server.wipe(workspace.home)
        reached = NO_SERVER not in project(workspace).notices
    except GraphError as error:
        log.warning("the projection still holds what was purged, until it is built anew: %s", error)
        reached = False
    if not reached:
        with workspace.catalog.transaction():
            forget(workspace.catalog)
