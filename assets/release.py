"""The release: what readers open."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from aps_rag_pipeline import clock
from aps_rag_pipeline.stores.sql_models import load_models
from assets.graph import knowledge_graph
from assets.indexes import dense_index, sparse_index
from assets.reporting import bar_chart, stage_result, table
from assets.resources import Facility
from assets.sources import LOOKED_AT, RECONCILE_TAG

if TYPE_CHECKING:
    from aps_rag_pipeline.audit.findings import Finding


@dg.asset(
    group_name="release",
    deps=[
        dense_index,
        sparse_index,
        knowledge_graph,
        *(dg.AssetKey(model.name) for model in load_models().values() if model.layer == "marts"),
    ],
    kinds={"lancedb", "tantivy", "parquet"},
    owners=["team:data-engineering"],
    code_version="release:1",
    freshness_policy=LOOKED_AT,
)
def release(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """A published, consistent view of one changeset. Readers open a release, never a live index."""
    from aps_rag_pipeline.stores.releases import latest
    from aps_rag_pipeline.sync.publish import publish

    workspace = facility.writing(f"run {context.run_id}")
    report = publish(workspace, facility.model())
    manifest = latest(workspace.home)
    assert manifest is not None
    by_source: dict[str, int] = {}
    for feed in manifest.feeds:
        by_source[feed.source] = by_source.get(feed.source, 0) + feed.records
    return stage_result(
        context,
        report,
        release_number=manifest.number,
        published_at=dg.MetadataValue.timestamp(manifest.published_at),
        records_by_source=bar_chart("Released records by source", sorted(by_source.items())),
        feeds=table(
            {
                "source": feed.source,
                "feed": feed.feed,
                "records": feed.records,
                "newest": clock.minute(feed.newest_at),
                **_freshness(feed),
            }
            for feed in manifest.feeds
        ),
        **{f"released_{name}": count for name, count in manifest.counts.items()},
    )


def _freshness(feed: Any) -> dict[str, Any]:
    """Of a feed's last changes: how many, of these from first sight, and how long until they were served."""
    lag = feed.lag
    return {
        "changed": lag.changed if lag else 0,
        "from first sight": lag.first_sight if lag else 0,
        "median": clock.span(lag.median_s) if lag else "",
        "p95": clock.span(lag.p95_s) if lag else "",
        "worst": clock.span(lag.worst_s) if lag else "",
        "served": clock.minute(lag.at if lag else None),
        "read": clock.minute(feed.read_at),
        "waiting since": clock.minute(feed.unserved_since),
    }


@dg.asset_check(asset=release, description="A reader can open the release, and its counts are those of its manifest.")
def release_can_be_read(facility: Facility) -> dg.AssetCheckResult:
    from aps_rag_pipeline.audit.remembered import is_audited, read_last
    from aps_rag_pipeline.stores import sparse
    from aps_rag_pipeline.stores.releases import open_release

    home = facility.workspace.home
    with open_release(home) as opened:
        counts = opened.manifest.counts
        if is_audited(home, read_last(home)):
            found = dict(counts)  # proved row by row; LanceDB need not be opened to count again
        else:
            found = {name: opened.table(name).count_rows() for name in ("records", "passages", "nodes", "edges")}
            found["chunks"] = opened.chunks().count_rows()
        found["bm25_documents"] = int(sparse.open_index(opened.tantivy).searcher().num_docs)
    expected = {**counts, "bm25_documents": counts["chunks"]}
    wrong = {name: f"{found[name]} instead of {expected[name]}" for name in found if found[name] != expected[name]}
    return dg.AssetCheckResult(passed=not wrong, metadata={**found, "wrong": dg.MetadataValue.json(wrong)})


@dg.asset_check(
    asset=release,
    description="Catalog, indexes, marts and release say the same, by ids and content. A release is audited once; "
    "of one with 2,000 chunks and more, what has not moved since the last is counted, until everything is reconciled.",
)
def audit_is_clean(context: dg.AssetCheckExecutionContext, facility: Facility) -> dg.AssetCheckResult:
    from aps_rag_pipeline.audit.remembered import is_audited, proved_until, read_last, remember
    from aps_rag_pipeline.audit.run import audit

    workspace = facility.writing(f"audit of run {context.run.run_id}")
    last = read_last(workspace.home)
    again = context.run.tags.get(RECONCILE_TAG) == "true"  # a reconciliation believes nothing that it can look at
    if last is not None and is_audited(workspace.home, last) and not again:
        return dg.AssetCheckResult(
            passed=True, metadata={"release": last.release, "audited_at": dg.MetadataValue.timestamp(last.at)}
        )
    since = None if again else proved_until(workspace.home, workspace.catalog, last)
    # The projection is carried on by a step of its own, which this one does not wait for.
    found = audit(workspace, facility.model(), projection=False, since=since)
    remember(workspace.home, found)
    return dg.AssetCheckResult(
        passed=not found.counts,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={
            "scope": "everything" if found.whole else f"what moved since changeset {since}",
            "findings": table(_row(finding) for finding in found.listed),
            **{f"count_{kind}": count for kind, count in sorted(found.counts.items())},
            **{f"looked_at_{name.replace(' ', '_')}": count for name, count in sorted(found.checked.items())},
        },
    )


def _row(finding: "Finding") -> dict[str, str]:
    return {
        "kind": finding.kind,
        "store": finding.store,
        "id": finding.id,
        "problem": finding.problem,
        "remedy": finding.remedy,
    }
