"""From the spool to chunks: the changeset, text in pictures, passages, chunks."""

import dagster as dg

from assets.reporting import stage_result, table
from assets.resources import Facility
from assets.sources import SOURCE_KEYS

HELD_CHECK = "no_removals_are_held"


@dg.asset(
    group_name="text",
    deps=SOURCE_KEYS,
    kinds={"sqlite"},
    owners=["team:data-engineering"],
    code_version="apply:1",
    check_specs=[
        dg.AssetCheckSpec(
            HELD_CHECK, asset="changeset", description="No sync wanted to remove suspiciously many records of a feed."
        )
    ],
)
def changeset(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """The added, changed, relabelled and removed records of everything fetched, applied with its cursors at once."""
    from aps_rag_pipeline.sync.apply import apply_spool

    report = apply_spool(facility.writing(f"run {context.run_id}"))
    counts = {_shown(name): int(count) for name, count in sorted(report.counts.items())}
    context.log.info(f"changeset {report.changeset}: " + ", ".join(f"{name} {n}" for name, n in counts.items()))
    held = [feed for feed in report.feeds if feed.held]
    return dg.MaterializeResult(
        metadata={
            "changeset": report.changeset,
            "changed": report.moved,
            **counts,
            "feeds": table(
                {
                    "source": feed.source,
                    "feed": feed.feed,
                    **{_shown(name): feed.counts[name] for name in ("added", "changed", "relabelled", "removed")},
                    "held": feed.held,
                }
                for feed in report.feeds
            ),
        },
        data_version=dg.DataVersion(str(report.changeset)),
        check_results=[
            dg.AssetCheckResult(
                check_name=HELD_CHECK,
                passed=not held,
                severity=dg.AssetCheckSeverity.WARN,
                metadata={
                    "held": table(
                        {
                            "feed": feed.feed,
                            "records": feed.held,
                            "confirm_with": f"aps-rag sync --confirm-removals {feed.held_digest}",
                        }
                        for feed in held
                    )
                },
            )
        ],
    )


def _shown(name: str) -> str:
    # `changed` is every step's measure of work; here it counts all that moved.
    return "edited" if name == "changed" else name


@dg.asset(
    group_name="text", deps=[changeset], kinds={"tesseract"}, owners=["team:data-engineering"], code_version="ocr:2"
)
def ocr(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """Text in screenshots, images and scanned pages, read by Tesseract once per picture."""
    from aps_rag_pipeline.sync.text import read_pictures

    return stage_result(context, read_pictures(facility.writing(f"run {context.run_id}")))


@dg.asset(group_name="text", deps=[ocr], kinds={"python"}, owners=["team:data-engineering"], code_version="passages:1")
def passages(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """Parents: self-contained parts of records, what the reader and the generator get."""
    from aps_rag_pipeline.sync.text import cut_passages

    return stage_result(context, cut_passages(facility.writing(f"run {context.run_id}")))


@dg.asset(
    group_name="text", deps=[passages], kinds={"huggingface"}, owners=["team:data-engineering"], code_version="chunks:1"
)
def chunks(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
    """Children: pieces of passages with a header line, never longer than the embedding model reads."""
    from aps_rag_pipeline.sync.text import split_chunks

    return stage_result(context, split_chunks(facility.writing(f"run {context.run_id}"), facility.model()))


@dg.asset_check(asset=chunks, blocking=True, description="Every chunk has its passage and every passage its record.")
def chunks_have_parents(facility: Facility) -> dg.AssetCheckResult:
    catalog = facility.workspace.catalog
    orphans = {
        "chunks_without_passage": "select count(*) from chunks c where not exists "
        "(select 1 from passages p where p.passage_id = c.passage_id)",
        "passages_without_record": "select count(*) from passages p where not exists "
        "(select 1 from records r where r.rid = p.rid and r.removed = 0)",
        "passages_without_chunk": "select count(*) from passages p where not exists "
        "(select 1 from chunks c where c.rid = p.rid and c.passage_id = p.passage_id)",
    }
    found = {name: int(catalog.value(sql)) for name, sql in orphans.items()}
    return dg.AssetCheckResult(passed=not any(found.values()), metadata=found)
