"""The newest nodes and edges → the Bolt server, if there is one."""

from __future__ import annotations

from aps_rag_pipeline.stores.bolt_server import address_for
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.graph import GraphChanges, sync_projection
from aps_rag_pipeline.sync.freshness import note_projected
from aps_rag_pipeline.sync.graph import all_edges, all_nodes, edges_after, nodes_after
from aps_rag_pipeline.sync.names import GRAPH, PROJECTION, PROJECTION_VERSION
from aps_rag_pipeline.sync.workspace import StageReport, Workspace

#: A projection that is behind is given up when more than one row in so many has gone.
_DEAD_ONE_IN = 8
NO_SERVER = "no Bolt server is configured or running: the graph was not projected (`aps-rag graph up` starts one)"


def project(workspace: Workspace) -> StageReport:
    """Carry what moved since the last projection to the server; without one, say so.

    Raises:
        GraphError: the server cannot be used. What is released does not depend on it.
    """
    catalog, target = workspace.catalog, workspace.catalog.changeset()
    report = StageReport(PROJECTION, PROJECTION_VERSION, target)
    report.counts["changed"] = 0
    address = address_for(workspace.settings, workspace.home)
    if address is None:
        report.notices.append(NO_SERVER)
        return report
    applied = catalog.applied(PROJECTION, PROJECTION_VERSION)
    nodes, removed_nodes = nodes_after(catalog, applied)
    edges, removed_edges = edges_after(catalog, applied)
    done = sync_projection(
        address,
        workspace.home,
        applied or None,
        all_nodes(catalog),
        all_edges(catalog),
        GraphChanges(target, nodes, removed_nodes, edges, removed_edges),
    )
    report.counts.update(
        changed=done.changed, nodes=done.nodes, edges=done.edges,
        removed_nodes=done.removed_nodes, removed_edges=done.removed_edges,
    )  # fmt: skip
    if done.rebuilt:
        report.notices.append(f"the projection was built anew: {done.rebuilt}")
    if applied != target:
        with catalog.transaction():
            catalog.set_applied(PROJECTION, PROJECTION_VERSION, target)
            drop_tombstones(catalog)
    note_projected(workspace.home, target)
    return report


def forget(catalog: Catalog) -> None:
    """Make the next projection start over: what it would need to catch up is about to go."""
    catalog.connection.execute("delete from stages where stage = ?", (PROJECTION,))


def drop_long_dead(catalog: Catalog) -> None:
    """Drop tombstones, within a transaction; also those that a projection has not seen while a large part of the graph
    went: it is built anew then."""
    for table in ("nodes", "edges"):
        dead, rows = catalog.rows(f"select coalesce(sum(removed), 0), count(*) from {table}")[0]
        if dead * _DEAD_ONE_IN > rows:
            forget(catalog)
    drop_tombstones(catalog)


def drop_tombstones(catalog: Catalog) -> None:
    """Nodes and edges that went, once the graph's tables and any projection have seen it."""
    seen = catalog.value("select min(applied) from stages where stage in (?, ?)", (GRAPH, PROJECTION)) or 0
    for table in ("nodes", "edges"):
        catalog.connection.execute(f"delete from {table} where removed = 1 and changeset <= ?", (seen,))
