"""One asset per source: its feeds, read incrementally into the spool. Nothing is locked or changed here."""

from datetime import timedelta
from typing import Any

import dagster as dg

from aps_rag_pipeline.records import SOURCES
from assets.reporting import table
from assets.resources import Facility

RECONCILE_TAG = "aps_rag/reconcile"
FAILED_FEEDS_CHECK = "feeds_are_readable"
FAILED_ITEMS_CHECK = "items_are_readable"

_DESCRIPTIONS = {
    "bely": "Electronic logbook: a record is a top-level entry with its replies.",
    "icms": "Controlled documents and papers: a record is a content id, its revisions are versions of it.",
    "work_requests": "Work requests: a record is a row.",
    "teams": "Chat channels with screenshots: a record is a thread.",
    "downtime": "Downtime records of the main control room: a record is an event.",
    "sdds_docs": "Manuals, and SDDS files by their headers: a record is a manual or a file.",
    "code": "Operators' code: a record is a tracked file, cut by function.",
    "wiki": "Wiki pages: a record is a page.",
    "epics": "Process variables: a record is a PV.",
}
_KINDS = {
    "bely": {"json"}, "icms": {"pdf"}, "work_requests": {"csv"}, "teams": {"json"}, "downtime": {"excel"},
    "sdds_docs": {"latex"}, "code": {"git"}, "wiki": {"markdown"}, "epics": {"csv"},
}  # fmt: skip

#: The weekly reconciliation looks at every source, so anything older was not looked at at all.
LOOKED_AT = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=8), warn_window=timedelta(days=7, hours=12))


def _source_asset(source: str) -> dg.AssetsDefinition:
    key = dg.AssetKey(["sources", source])

    @dg.asset(
        key=key,
        group_name="sources",
        description=_DESCRIPTIONS[source],
        kinds=_KINDS[source],
        owners=["team:data-engineering"],
        code_version="fetch:1",
        pool=f"fetch_{source}",
        freshness_policy=LOOKED_AT,
        check_specs=[
            dg.AssetCheckSpec(FAILED_FEEDS_CHECK, asset=key, description="Every feed could be read as a whole."),
            dg.AssetCheckSpec(
                FAILED_ITEMS_CHECK, asset=key, description="Every item that was looked at could be read."
            ),
        ],
    )
    def fetch_source(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
        from aps_rag_pipeline.sync.fetch import fetch

        workspace = facility.workspace
        feeds = workspace.settings.feeds_of(source)
        again = context.run.tags.get(RECONCILE_TAG) == "true"
        reports = fetch(workspace, feeds, again=again)
        for report in reports:
            if report.ok:
                counts = (
                    ", ".join(f"{name} {count}" for name, count in sorted(report.counts.items())) or "nothing moved"
                )
                context.log.info(f"feed {report.feed}: {counts} in {report.seconds:.1f} s")
            else:
                context.log.error(f"feed {report.feed}: {report.error}")
        return _result(source, feeds, reports, _last_good(workspace.home, reports))

    return fetch_source


def _last_good(home: Any, reports: Any) -> dict[str, str]:
    """When each feed that failed was last read, for people."""
    from aps_rag_pipeline.sync import state

    known = (state.read_feed(home, report.source, report.feed) for report in reports if not report.ok)
    return {
        feed.feed: feed.succeeded_at.isoformat(timespec="minutes") if feed.succeeded_at else "never" for feed in known
    }


def _result(source: str, feeds: Any, reports: Any, last_good: dict[str, str]) -> dg.MaterializeResult:
    failed = [report for report in reports if not report.ok]
    failures = [(report.feed, failure) for report in reports for failure in report.failures]
    locations = {feed.name: feed.place for feed in feeds}
    totals = {
        name: sum(report.counts[name] for report in reports)
        for name in ("read", "failures", "ignored", "masked_credentials", "units")
    }
    return dg.MaterializeResult(
        metadata={
            **totals,
            "changed": sum(report.spooled for report in reports),
            "seconds": round(sum(report.seconds for report in reports), 3),
            "feeds": table(
                {
                    "feed": report.feed,
                    "location": locations[report.feed],
                    "read": report.counts["read"],
                    "failures": report.counts["failures"],
                    "ignored": report.counts["ignored"],
                    "error": report.error,
                }
                for report in reports
            ),
        },
        data_version=dg.DataVersion("+".join(report.fingerprint or "unknown" for report in reports) or "no-feed"),
        check_results=[
            dg.AssetCheckResult(
                check_name=FAILED_FEEDS_CHECK,
                passed=not failed,
                severity=dg.AssetCheckSeverity.ERROR,
                metadata={
                    "failed_feeds": table(
                        {"feed": r.feed, "reason": r.error, "last good sync": last_good[r.feed]} for r in failed
                    )
                },
            ),
            dg.AssetCheckResult(
                check_name=FAILED_ITEMS_CHECK,
                passed=not failures,
                severity=dg.AssetCheckSeverity.WARN,
                metadata={
                    "failed_items": table(
                        {"feed": feed, "place": f.place, "reason": f.reason, "remedy": f.remedy}
                        for feed, f in failures[:100]
                    )
                },
            ),
        ],
    )


source_assets = [_source_asset(source) for source in SOURCES]
SOURCE_KEYS = [dg.AssetKey(["sources", source]) for source in SOURCES]
