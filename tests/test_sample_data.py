"""The public sample data as a facility of its own: every file of nine sources ends as records, or says why not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aps_rag_pipeline.records import SOURCES
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores.releases import open_release
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import fetch

EXCAVATOR = {
    "id": "id", "title": "OriginalShorttext", "description": "Comments", "component": "Part", "system": "MajorSystem",
    "location": "FuncLocation", "created": "BscStartDate",
}  # fmt: skip
EVENT_REPORTS = {
    "id": "LER Number", "title": "Plant Name", "start": "Event Date", "created": "Report Date", "description": "Title",
}  # fmt: skip

#: name: (source, location below the sample data, more settings, records, remembered failures)
FEEDS: dict[str, tuple[str, str, dict[str, Any], int, int]] = {
    "bely-tables": ("bely", "bely/sql", {"include": ["*.sql"]}, 10, 0),
    "bely-events": ("bely", "bely/mqtt", {"include": ["*"]}, 1, 0),
    "other-logbooks": ("bely", "logbook/osprey", {}, 74, 9),
    "voice-log": ("bely", "logbook/spacelog", {"include": ["TEC", "MEDIA", "_meta"]}, 756, 0),
    "documents": ("icms", "documents", {}, 112, 2),
    "screens": ("icms", "screenshots", {}, 151, 0),
    "excavators": ("work_requests", "work_requests/maintkg", {"include": ["*.csv"], "columns": EXCAVATOR}, 5485, 0),
    "annotated": ("work_requests", "work_requests/maintie", {"include": ["*.json"]}, 0, 2),
    "chats": ("teams", "teams", {}, 23, 27),
    "event-reports": ("downtime", "downtime/nrc", {"include": ["LER*.xlsx"], "columns": EVENT_REPORTS}, 1742, 3),
    "other-sheets": ("downtime", "downtime/nrc", {"exclude": ["LER*"]}, 0, 3),
    "manuals": ("sdds_docs", "sdds/docs", {}, 139, 1),
    "epics-manuals": ("sdds_docs", "sdds/docs_epics", {}, 48, 0),
    "sdds-files": ("sdds_docs", "sdds/files", {}, 19, 0),
    "displays": ("code", "displays", {}, 101, 0),
    "beamline": ("wiki", "wiki/aps_2bm_docs", {}, 137, 0),
    "makerspace": ("wiki", "wiki/dokuwiki/data/pages", {}, 147, 0),
    "pvs": ("epics", "epics/aps_pv_list.csv", {"columns": {"name": "ControlName", "group": "GroupName"}}, 62490, 0),
    "databases": ("epics", "epics/archiver_samples", {}, 10018, 0),
    "channels": ("epics", "epics/osprey_channels", {"include": ["in_context.json", "*.csv"]}, 2966, 0),
}


def settings(shared: Path, home: Path, names: set[str]) -> Settings:
    feeds = [
        {"name": name, "source": source, "location": str(shared / location), **more}
        for name, (source, location, more, _, _) in FEEDS.items()
        if name in names
    ]
    values = {
        "facility": "Sample data",
        "time_zone": "America/Chicago",
        "home": "home",
        "models": {"embedding": "test:hash-16"},
        "feeds": feeds,
    }
    return Settings.build(values, home / "facility.yaml")


def test_every_feed_gives_its_records_or_remembers_why_not(shared: Path, tmp_path: Path) -> None:
    made = settings(shared, tmp_path, set(FEEDS))
    assert set(made.sources()) == set(SOURCES)
    with pipeline.open_workspace(made) as workspace:
        reports = fetch(workspace, made.feeds)
        assert {report.feed: report.error for report in reports if report.error} == {}
        apply_spool(workspace)
        catalog = workspace.catalog
        records = {r["feed"]: r["n"] for r in catalog.rows("select feed, count(*) as n from records group by feed")}
        failures = Counter(r["feed"] for r in catalog.rows("select feed from dead_letters"))
        assert all(r["reason"] and r["place"] for r in catalog.rows("select reason, place from dead_letters"))
        expected = {name: (count, failed) for name, (_, _, _, count, failed) in FEEDS.items()}
        assert {name: (records.get(name, 0), failures[name]) for name in FEEDS} == expected
        again = fetch(workspace, made.feeds)
        assert [report.feed for report in again if report.spooled] == []


def test_real_files_of_every_source_come_out_as_a_release(shared: Path, tmp_path: Path) -> None:
    logs_and_tables = {"bely-tables", "bely-events", "chats", "channels", "event-reports", "annotated"}
    few = logs_and_tables | {"epics-manuals", "displays", "makerspace"}
    made = settings(shared, tmp_path, few)
    with pipeline.open_workspace(made) as workspace:
        _, applied, reports = pipeline.sync(workspace)
        assert applied.moved == sum(FEEDS[name][3] for name in few)
        # Records without a single word (pictures that nobody has read) have no passage; all others can be found.
        empty = workspace.catalog.value(
            "select count(*) from records r where not exists (select 1 from passages p where p.rid = r.rid)"
        )
        assert empty == 0
    assert reports[-1].counts["changed"] == 1
    with open_release(workspace.home) as release:
        assert release.manifest.counts["records"] == applied.moved


@pytest.mark.slow
def test_all_of_it_comes_out_as_a_release(shared: Path, tmp_path: Path) -> None:
    made = settings(shared, tmp_path, set(FEEDS))
    with pipeline.open_workspace(made) as workspace:
        _, applied, _ = pipeline.sync(workspace)
        _, again, reports = pipeline.sync(workspace)
    assert applied.moved == sum(count for _, _, _, count, _ in FEEDS.values())
    assert again.moved == 0
    assert not any(report.counts["changed"] for report in reports)
