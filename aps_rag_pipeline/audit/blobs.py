"""Attachments: their bytes are there and, looked at closely, are those of their name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.scope import Scope
from aps_rag_pipeline.stores.blobs import BlobStore
from aps_rag_pipeline.stores.catalog import unpack_json
from aps_rag_pipeline.sync.workspace import Workspace

STORE = "blobs"


def check_blobs(workspace: Workspace, scope: Scope, findings: Findings, *, deep: bool) -> None:
    """Blobs that a live record shows, or that a live feed need not fetch again, against the blob store."""
    blobs, last, problem = workspace.home.blobs, "", ""
    for sha256, key, feed, unit in _wanted(workspace, scope):
        if sha256 != last:
            findings.checked["blobs"] += 1
            problem = _problem(blobs, sha256, deep)
            last = sha256
        if problem:
            kind = "missing_blob" if problem == "is missing" else "damaged_blob"
            findings.add(kind, STORE, sha256, f"{problem}; it is an attachment in {unit} of feed {feed}", key)
            findings.damage.units.add((feed, unit))
            if kind == "damaged_blob":
                findings.damage.blobs.add(sha256)


def _wanted(workspace: Workspace, scope: Scope) -> Iterator[tuple[str, str, str, str]]:
    """(sha256, citation key, feed, unit) of every attachment in scope."""
    catalog = workspace.catalog
    for row in catalog.connection.execute(
        "select a.sha256, r.key, r.feed, r.unit from attachments a join records r on r.rid = a.rid "
        f"where r.removed = 0 and a.{scope.of_these} order by a.sha256, r.key"
    ):
        yield tuple(row)
    if not scope.whole:
        return
    for row in catalog.rows("select feed, cursor from feeds"):
        for unit, files in kept_files(unpack_json(row["cursor"])).items():
            known = {r[0] for r in _attached(workspace, row["feed"], unit)}
            yield from ((sha256, "", row["feed"], unit) for sha256 in files.values() if sha256 not in known)


def kept_files(cursor: Any) -> dict[str, dict[str, str]]:
    """Unit → attachment → sha256 in the cursor of a live feed; nothing in any other cursor."""
    return cursor.get("files", {}) if isinstance(cursor, dict) else {}


def _attached(workspace: Workspace, feed: str, unit: str) -> list[Any]:
    """What has been looked at with the records of a unit."""
    return workspace.catalog.rows(
        "select a.sha256 from records r join attachments a on a.rid = r.rid "
        "where r.feed = ? and r.unit = ? and r.removed = 0",
        (feed, unit),
    )


def _problem(blobs: BlobStore, sha256: str, deep: bool) -> str:
    if sha256 not in blobs:
        return "is missing"
    if deep:
        with blobs.path(sha256).open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != sha256:
            return f"has other bytes (sha256 {found[:12]}…)"
    return ""
