"""How long changes take to readers is measured per feed, carried on, and shown to whom it may be."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aps_rag_pipeline import clock
from aps_rag_pipeline.cli import app
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.releases import FeedFreshness, Lag
from aps_rag_pipeline.sync.freshness import note_projected, read_projected
from query import Corpus
from tests.small_facility import Facility, bundle, tree, write_if_changed

START = datetime(2026, 3, 10, 12, tzinfo=UTC)
SHIFT = "shift-1"


class Ring:
    """A facility with a clock; entries of its logbook say when they were modified."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.facility = Facility(root)
        self.log = root / "notes"
        self.log.mkdir()
        feeds = self.facility.config["feeds"]
        feeds[0]["location"] = self.log.name
        self.facility.extra["feeds"] = feeds
        self.facility.requests = {str(n): {"title": f"Pump {n}", "description": "Replace it"} for n in range(1, 4)}
        self.entries = {n: (f"Entry {n}", START - timedelta(days=n)) for n in range(1, 6)}
        self.access: list[str] | None = None
        self.now = START
        monkeypatch.setattr(clock, "now", lambda: self.now)

    def sync_at(self, now: datetime) -> dict[str, FeedFreshness]:
        self.now = now
        self.facility.write()
        made = bundle(SHIFT, {n: text for n, (text, _) in self.entries.items()})
        for entry in made["entries"]:
            entry["lastModifiedOnDateTime"] = self.entries[entry["logId"]][1].isoformat()
        if self.access is not None:
            made["access"] = self.access
        write_if_changed(self.log / f"{SHIFT}.json", json.dumps(made))
        write_if_changed(self.log / "open.json", json.dumps(bundle("open", {900: "Entry 900"})))
        self.facility.sync()
        manifest = releases.latest(self.facility.home)
        assert manifest is not None
        return {feed.feed: feed for feed in manifest.feeds}


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ring:
    return Ring(tmp_path, monkeypatch)


def test_the_first_load_is_measured_from_first_sight_and_says_so(ring: Ring) -> None:
    feeds = ring.sync_at(START)
    assert feeds["logbook"].lag == Lag(START, 6, 6, 0, 0, 0)
    assert feeds["requests"].lag == Lag(START, 3, 3, 0, 0, 0)
    assert {feed.read_at for feed in feeds.values()} == {START}
    assert {feed.unserved_since for feed in feeds.values()} == {None}


def test_changes_count_from_the_modified_time_that_the_source_tells(ring: Ring) -> None:
    ring.sync_at(START)
    day = START + timedelta(days=1)
    ring.entries[1] = ("Edited a while ago", day - timedelta(seconds=90))
    ring.entries[2] = ("Edited just now", day - timedelta(seconds=10))
    ring.entries[3] = ("Edited by a clock that is wrong", day + timedelta(hours=1))
    ring.entries[6] = ("New", day - timedelta(seconds=30))
    del ring.entries[5]
    ring.facility.requests["1"]["title"] = "No modified time is told here"
    feeds = ring.sync_at(day)
    assert feeds["logbook"].lag == Lag(day, changed=4, first_sight=1, median_s=10, p95_s=90, worst_s=90)
    assert feeds["requests"].lag == Lag(day, changed=1, first_sight=1, median_s=0, p95_s=0, worst_s=0)


def test_a_feed_without_changes_keeps_its_figures_and_their_time(ring: Ring) -> None:
    ring.sync_at(START)
    ring.facility.requests["2"]["title"] = "Changed"
    second = START + timedelta(hours=1)
    feeds = ring.sync_at(second)
    assert feeds["logbook"].lag == Lag(START, 6, 6, 0, 0, 0)
    assert feeds["requests"].lag == Lag(second, 1, 1, 0, 0, 0)
    assert feeds["logbook"].read_at == second
    before = tree(ring.facility.home.root)
    ring.sync_at(START + timedelta(hours=2))
    assert tree(ring.facility.home.root) == before


def test_a_change_that_waited_for_its_release_has_waited_since_it_was_made(ring: Ring) -> None:
    """A killed run's changeset is served by the next one, later."""
    from aps_rag_pipeline.sync.apply import apply_spool
    from aps_rag_pipeline.sync.fetch import fetch

    ring.sync_at(START)
    ring.facility.requests["2"]["title"] = "Changed"
    ring.facility.write()
    ring.now = START + timedelta(hours=1)
    with ring.facility.workspace() as workspace:
        fetch(workspace, workspace.settings.feeds)
        apply_spool(workspace)
    feeds = ring.sync_at(START + timedelta(hours=3))
    assert feeds["requests"].lag == Lag(START + timedelta(hours=3), 1, 1, 7200, 7200, 7200)


def test_new_labels_are_no_change_of_the_source(ring: Ring) -> None:
    ring.sync_at(START)
    ring.access = ["vacuum"]
    feeds = ring.sync_at(START + timedelta(hours=1))
    assert releases.numbers(ring.facility.home)[-1] == 2
    assert feeds["logbook"].lag == Lag(START, 6, 6, 0, 0, 0)


def test_a_feed_that_fails_tells_since_when_its_changes_wait(ring: Ring, capsys: pytest.CaptureFixture[str]) -> None:
    ring.sync_at(START)
    ring.log.rename(ring.facility.root / "gone")
    failed = START + timedelta(hours=1)
    ring.now = failed
    ring.facility.sync()
    ring.facility.requests["2"]["title"] = "Changed"
    ring.now = failed + timedelta(hours=1)
    (ring.facility.root / "requests" / "requests.csv").write_text("id,title\r\n1,Pump 1\r\n2,Changed\r\n3,Pump 3\r\n")
    ring.facility.sync()
    manifest = releases.latest(ring.facility.home)
    assert manifest is not None
    logbook = next(feed for feed in manifest.feeds if feed.feed == "logbook")
    assert (logbook.read_at, logbook.unserved_since) == (START, failed)
    found = _status(ring, capsys)["feeds"]["logbook"]
    assert found["stale_s"] == 7200
    assert found["unserved_since"] == failed.isoformat()


def test_a_manifest_of_before_is_read_and_followed(ring: Ring) -> None:
    ring.sync_at(START)
    path = releases.folder_of(ring.facility.home, 1) / releases.MANIFEST
    older = json.loads(path.read_bytes())
    for feed in older["feeds"]:
        for name in ("lag", "read_at", "unserved_since"):
            del feed[name]
    path.write_text(json.dumps(older))
    with Corpus.open(ring.facility.home, None) as corpus:
        assert [feed.freshness for feed in corpus.status().feeds] == [None, None]
    ring.facility.requests["2"]["title"] = "Changed"
    feeds = ring.sync_at(START + timedelta(hours=1))
    assert feeds["logbook"].lag is None
    assert feeds["requests"].lag is not None
    assert feeds["requests"].lag.changed == 1


def test_a_reader_is_told_of_no_feed_and_no_change_that_it_does_not_see(ring: Ring) -> None:
    feeds = ring.facility.config["feeds"]
    feeds[1]["access"] = ["vacuum"]
    ring.facility.extra["feeds"] = feeds
    ring.access = ["ops"]
    ring.sync_at(START)

    def told(groups: set[str] | None) -> dict[str, int | None]:
        with Corpus.open(ring.facility.home, groups) as corpus:
            found = corpus.status().to_dict()["feeds"]
        return {feed["feed"]: feed["freshness"] and feed["freshness"]["changed"] for feed in found}

    assert told(None) == {"logbook": 6, "requests": 3}
    assert told({"ops"}) == {"logbook": 6}
    assert told({"vacuum"}) == {"logbook": None, "requests": 3}
    assert told(set()) == {"logbook": None}


def _status(ring: Ring, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    app(["status", "--json", "-c", str(ring.facility.config_path)], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    return {**found, "feeds": {feed["feed"]: feed for feed in found["feeds"]}}


def test_status_shows_how_fresh_and_how_stale_feeds_and_channels_are(
    ring: Ring, capsys: pytest.CaptureFixture[str]
) -> None:
    ring.sync_at(START)
    ring.entries[1] = ("Edited", START + timedelta(seconds=60))
    ring.sync_at(START + timedelta(minutes=6))
    note_projected(ring.facility.home, 2)
    ring.now = START + timedelta(hours=3, minutes=6)
    note_projected(ring.facility.home, 2)  # nothing new for the projection: its time stays
    projected = read_projected(ring.facility.home)
    assert projected is not None
    assert projected.at == START + timedelta(minutes=6)
    found = _status(ring, capsys)
    assert found["feeds"]["logbook"]["lag"]["median_s"] == 300
    assert found["feeds"]["logbook"]["stale_s"] == 3 * 3600
    at = (START + timedelta(minutes=6)).isoformat()
    assert found["channels"] == {name: {"changeset": 2, "at": at} for name in ("dense", "sparse", "graph", "neo4j")}
    app(["status", "-c", str(ring.facility.config_path)], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    logbook, requests = (next(line for line in lines if f" {name} " in line) for name in ("logbook", "requests"))
    assert logbook.split()[3:7] == ["3", "h", "5", "min"]
    assert requests.split()[3:7] == ["3", "h", "~0", "s"]
