"""What only the sources can give again: attachments and records are read anew by the next sync."""

from __future__ import annotations

from aps_rag_pipeline import clock
from aps_rag_pipeline.audit.blobs import kept_files
from aps_rag_pipeline.audit.findings import Damage
from aps_rag_pipeline.stores.catalog import pack_json, unpack_json
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.workspace import Workspace


def read_again(workspace: Workspace, damage: Damage) -> list[str]:
    """Forget, in the cursors, what was read of the units concerned, and tell the sensors that there is something to do.
    Gives what was done, and what cannot be mended so."""
    catalog, home = workspace.catalog, workspace.home
    for sha256 in damage.blobs:
        home.blobs.remove(sha256)  # what has the right name would not be written again
    units = set(damage.units)
    with catalog.transaction() as connection:
        for rid in damage.unread:
            units |= {tuple(row) for row in catalog.rows("select feed, unit from records where rid = ?", (rid,))}
            hashed = "access_hash" if rid in damage.unlabelled else "content_hash"
            connection.execute(f"update records set {hashed} = '' where rid = ?", (rid,))
        by_feed: dict[str, set[str]] = {}
        for feed, unit in units:
            by_feed.setdefault(feed, set()).add(unit)
        for feed, names in by_feed.items():
            _forget(workspace, feed, names)
    configured = {feed.name for feed in workspace.settings.feeds}
    done = []
    for feed, names in sorted(by_feed.items()):
        if feed in configured:
            state.write_nudge(home, feed, clock.now())
            done.append(f"{len(names)} items of feed {feed} will be read again by the next sync: aps-rag sync")
        else:
            done.append(f"{len(names)} items of feed {feed} cannot be read again, since it is not configured any more")
    return done


def _forget(workspace: Workspace, feed: str, units: set[str]) -> None:
    """Empty the tokens of units, so that they count as moved; a cursor without these makes the whole feed be read."""
    catalog = workspace.catalog
    cursor = unpack_json(catalog.value("select cursor from feeds where feed = ?", (feed,)))
    known = cursor.get("units") if isinstance(cursor, dict) else None
    if not isinstance(known, dict) or not units <= known.keys():
        catalog.connection.execute("update feeds set config = '' where feed = ?", (feed,))
        return
    known.update(dict.fromkeys(units, ""))
    files = kept_files(cursor)
    for unit in units:
        files[unit] = {key: sha256 for key, sha256 in files.get(unit, {}).items() if sha256 in workspace.home.blobs}
    catalog.connection.execute("update feeds set cursor = ? where feed = ?", (pack_json(cursor), feed))
