"""The audit in its order: catalog, indexes, marts, releases, projection."""

from __future__ import annotations

import sqlite3

from aps_rag_pipeline.audit.blobs import check_blobs
from aps_rag_pipeline.audit.catalog import STORE, check_content, check_relations
from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.marts import STORE as MARTS
from aps_rag_pipeline.audit.marts import check_marts
from aps_rag_pipeline.audit.nodes import check_nodes
from aps_rag_pipeline.audit.projection import check_projection
from aps_rag_pipeline.audit.recut import check_cut
from aps_rag_pipeline.audit.releases import (
    check_counts,
    check_manifest,
    check_pins,
    kept_releases,
    released_sides,
    store_of,
)
from aps_rag_pipeline.audit.rows import RowAudit, Sides, check_sizes, working_sides
from aps_rag_pipeline.audit.scope import Scope
from aps_rag_pipeline.audit.spans import SPAN
from aps_rag_pipeline.audit.stages import check_released, check_stages
from aps_rag_pipeline.audit.unreadable import check_tables
from aps_rag_pipeline.audit.within import ReleaseAudit
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.releases import Manifest
from aps_rag_pipeline.stores.tables import EDGES, RECORDS
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync.marts import read_working
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.workspace import Workspace


def audit(
    workspace: Workspace,
    model: ConfiguredModel,
    *,
    deep: bool = False,
    projection: bool = True,
    since: int | None = None,
) -> Findings:
    """Compare everything a home holds with everything else it holds. Needs the writer lock; changes nothing.

    Args:
        deep: cut every record anew, read every attachment, and find the identifiers of every chunk again.
        projection: look at the projection on the Bolt server, where there is one.
        since: a changeset whose release was proved under the same program and settings. Of rows that have not moved
            since only the numbers are compared, and marts are not computed anew. Where anything is wrong, everything is
            looked at after all.
    """
    findings = Findings(whole=since is None)
    try:
        current = _look(workspace, model, findings, deep, Scope(workspace.catalog, since))
        if since is not None and findings.counts:
            return audit(workspace, model, deep=deep, projection=projection)
        if current and projection:
            check_projection(workspace, findings)
    except sqlite3.OperationalError:
        raise  # locked, or no disk: nothing is known of what the file holds
    except sqlite3.DatabaseError as error:
        findings.add("damaged_catalog", STORE, workspace.home.catalog.name, f"cannot be read to its end: {error}")
        findings.damage.lost = True
    return findings


def _look(workspace: Workspace, model: ConfiguredModel, findings: Findings, deep: bool, scope: Scope) -> bool:
    """Everything but the projection; gives whether every stage stands at the newest changeset."""
    catalog, home = workspace.catalog, workspace.home
    tables = LanceTables(home)
    manifests = kept_releases(home, findings)
    numbers = releases.numbers(home)
    newest = manifests[-1] if manifests and manifests[-1].number == numbers[-1] else None
    if not catalog.changeset():
        findings.notices.append("nothing has been synced yet")
        return False
    if deep:
        _check_file(workspace, findings)
    current = check_stages(workspace, model, findings)
    check_tables(home, tables, findings, close=not current)
    whole = {manifest.number: check_pins(home, tables, manifest, findings) for manifest in manifests}
    released = check_released(workspace, newest, findings) if current else False
    serves = newest if newest is not None and whole[newest.number] else None
    if current:
        same = serves if released else None
        _compare_working(workspace, model, tables, same, findings, deep, scope)
    if serves is not None:
        check_counts(home, serves, findings)
        if released:
            check_manifest(serves, model.description, findings)
        else:
            ReleaseAudit(home, serves, findings).run()
    return current


def _compare_working(
    workspace: Workspace,
    model: ConfiguredModel,
    tables: LanceTables,
    newest: Manifest | None,
    findings: Findings,
    deep: bool,
    scope: Scope,
) -> None:
    """The working state, and a release of the same changeset, against the catalog."""
    catalog, home = workspace.catalog, workspace.home
    check_relations(catalog, model.description, scope, findings)
    check_blobs(workspace, scope, findings, deep=deep)
    sides: Sides = working_sides(tables, home.tantivy, model.description, findings)
    if newest is not None:
        released_sides(home, tables, newest, sides)
    total = -(-scope.size() // SPAN)
    for _ in workspace.progress.track(check_content(catalog, scope, findings), "reading the catalog", total):
        pass
    if deep:
        check_cut(workspace, model, findings)
    walk = RowAudit(catalog, model.description, sides, findings, deep=deep).run(scope)
    for _ in workspace.progress.track(walk, "comparing the indexes", total):
        pass
    check_nodes(catalog, sides, scope, findings)
    if not scope.whole:
        check_sizes(catalog, sides, findings)
        return
    if findings.damage.records or findings.damage.strangers or not {RECORDS, EDGES} <= sides.tables.keys():
        findings.notices.append("the marts were not looked at, since what they are made of is wrong")
    else:
        folders = [(MARTS, home.marts, False)]
        if newest is not None:
            folders.append((store_of(newest.number, MARTS), releases.folder_of(home, newest.number) / "marts", True))
        check_marts(read_working(workspace), folders, findings)


def _check_file(workspace: Workspace, findings: Findings) -> None:
    """Whether the catalog's file is sound."""
    for row in workspace.catalog.rows("pragma quick_check(1)"):
        if row[0] != "ok":
            findings.add("damaged_catalog", STORE, workspace.home.catalog.name, str(row[0]))
            findings.damage.lost = True
