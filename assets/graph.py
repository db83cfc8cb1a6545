"""The knowledge graph, and its projection for people and tools that speak Cypher."""

import dagster as dg

from assets.reporting import stage_result
from assets.resources import Facility
from assets.text import passages


@dg.asset(
    group_name="graph",
    deps=[passages],
    kinds={"lancedb", "graph"},
    owners=["team:data-engineering"],
    code_version="structure:1",
)
def knowledge_graph(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """Nodes and edges that the records state, each edge with its evidence; the graph's truth."""
    from aps_rag_pipeline.sync.graph import build_graph

    return stage_result(context, build_graph(facility.writing(f"run {context.run_id}")))


@dg.asset_check(asset=knowledge_graph, blocking=True, description="Every edge stands between nodes that exist.")
def edges_have_nodes(facility: Facility) -> dg.AssetCheckResult:
    catalog = facility.workspace.catalog
    dangling = int(
        catalog.value(
            "select count(*) from edges e where e.removed = 0 and (not exists "
            "(select 1 from nodes n where n.node_id = e.src and n.removed = 0) or not exists "
            "(select 1 from nodes n where n.node_id = e.dst and n.removed = 0))"
        )
    )
    return dg.AssetCheckResult(passed=dangling == 0, metadata={"dangling_edges": dangling})


@dg.asset(
    group_name="graph",
    deps=[knowledge_graph],
    kinds={"neo4j"},
    owners=["team:data-engineering"],
    code_version="projection:1",
)
def neo4j_projection(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """The graph in a server that speaks Bolt; skipped with a notice when none is configured."""
    from aps_rag_pipeline.sync.projection import project

    return stage_result(context, project(facility.writing(f"run {context.run_id}")))
