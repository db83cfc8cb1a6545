"""Vectors and the two indexes that a release pins."""

import dagster as dg

from assets.reporting import stage_result
from assets.resources import Facility
from assets.text import chunks


@dg.asset(
    group_name="indexes",
    deps=[chunks],
    kinds={"huggingface"},
    owners=["team:data-engineering"],
    code_version="embeddings:1",
)
def embeddings(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """A vector per distinct chunk text and model. A text that has one is never embedded again."""
    from aps_rag_pipeline.sync.indexes import embed

    workspace = facility.writing(f"run {context.run_id}")
    model = facility.model()
    report = embed(workspace, model)
    return stage_result(context, report, model=model.description.name, dimensions=model.description.dimensions)


@dg.asset(
    group_name="indexes", deps=[embeddings], kinds={"lancedb"}, owners=["team:data-engineering"], code_version="lance:1"
)
def dense_index(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """Records, passages and chunks with their vectors in LanceDB."""
    from aps_rag_pipeline.sync.indexes import index_dense

    return stage_result(context, index_dense(facility.writing(f"run {context.run_id}"), facility.model()))


@dg.asset(
    group_name="indexes", deps=[chunks], kinds={"tantivy"}, owners=["team:data-engineering"], code_version="bm25:2"
)
def sparse_index(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """Chunks in Tantivy: stemmed text for BM25, identifiers kept whole."""
    from aps_rag_pipeline.sync.indexes import index_sparse

    return stage_result(context, index_sparse(facility.writing(f"run {context.run_id}")))


@dg.asset_check(
    asset=dense_index, blocking=True, description="LanceDB holds exactly the chunks and passages of the catalog."
)
def dense_index_is_complete(facility: Facility) -> dg.AssetCheckResult:
    from aps_rag_pipeline.stores.releases import latest
    from aps_rag_pipeline.stores.tables import PASSAGES, chunks_table
    from aps_rag_pipeline.stores.vectors import LanceTables

    workspace, newest = facility.workspace, latest(facility.workspace.home)
    if newest is not None and newest.token == workspace.catalog.token():
        rows = newest.counts  # nothing was written since: LanceDB need not be opened to count again
    else:
        tables = LanceTables(workspace.home)
        names = {"chunks": chunks_table(facility.model().description.fingerprint), "passages": PASSAGES}
        rows = {name: tables.table(table).count_rows() for name, table in names.items()}
    counts = {
        "chunks": int(workspace.catalog.value("select count(*) from chunks")),
        "chunk_rows": rows["chunks"],
        "passages": int(workspace.catalog.value("select count(*) from passages")),
        "passage_rows": rows["passages"],
    }
    passed = counts["chunks"] == counts["chunk_rows"] and counts["passages"] == counts["passage_rows"]
    return dg.AssetCheckResult(passed=passed, metadata=counts)


@dg.asset_check(asset=sparse_index, blocking=True, description="Tantivy holds exactly the chunks of the catalog.")
def sparse_index_is_complete(facility: Facility) -> dg.AssetCheckResult:
    from aps_rag_pipeline.stores import sparse

    workspace = facility.workspace
    counts = {
        "chunks": int(workspace.catalog.value("select count(*) from chunks")),
        "documents": int(sparse.open_index(workspace.home.tantivy).searcher().num_docs),
    }
    return dg.AssetCheckResult(passed=counts["chunks"] == counts["documents"], metadata=counts)
