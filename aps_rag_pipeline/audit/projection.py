"""The projection on a Bolt server against the graph of the catalog."""

from __future__ import annotations

from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.stores.bolt import GraphError
from aps_rag_pipeline.stores.bolt_server import address_for
from aps_rag_pipeline.stores.graph import FORMAT, Projection, State, home_id
from aps_rag_pipeline.stores.graph_rows import Compared
from aps_rag_pipeline.sync.graph import all_edges, all_nodes
from aps_rag_pipeline.sync.workspace import Workspace

STORE = "projection"


def check_projection(workspace: Workspace, findings: Findings) -> None:
    """Ids, types, ends and properties in both directions, when the server can be reached and is up to date."""
    address = address_for(workspace.settings, workspace.home)
    if address is None:
        findings.notices.append("no Bolt server is configured or running: the projection was not looked at")
        return
    catalog = workspace.catalog
    target = catalog.changeset()
    try:
        with Projection(address) as projection:
            state = projection.state()
            if state != State(home_id(workspace.home), target, target, FORMAT):
                said = "it is empty" if state is None else f"it is of changeset {state.changeset} of home {state.home}"
                findings.add("projection_behind", STORE, address.uri, f"{said}; the newest changeset is {target}")
                return
            found = projection.verify(all_nodes(catalog), all_edges(catalog))
    except GraphError as error:
        findings.notices.append(f"the projection was not looked at: {error}")
        return
    _note(findings, "node", found.nodes)
    _note(findings, "edge", found.edges)
    findings.damage.projection = bool(found)


def _note(findings: Findings, noun: str, found: Compared) -> None:
    for kind, ids, said in (
        ("missing_in_projection", found.missing, "is missing on the server"),
        ("surplus_in_projection", found.extra, "is on the server and should not be"),
        ("duplicate_in_projection", found.twice, "is on the server more than once"),
        ("different_in_projection", found.changed, "differs on the server"),
    ):
        for each in ids:
            findings.add(kind, STORE, each, f"the {noun} {said}")
