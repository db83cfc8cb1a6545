"""What a review found in live feeds: each was a record lost, kept, shown or leaked."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.sources import live
from aps_rag_pipeline.stores.catalog import SCHEMA_VERSION, Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import due, pipeline, state
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import fetch, shown_safely
from aps_rag_pipeline.sync.purge import purge
from tests.live_feed import live_feed
from tests.small_facility import bundle


@pytest.mark.parametrize("name", ["wiki_mediawiki", "bely_rest", "icms_webcenter"])
def test_what_is_put_off_while_everything_is_read_again_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_feed(name) as feed:
        for number in range(1, 5):
            feed.case.put(number, f"klystron {number} tripped")
        feed.sync()
        monkeypatch.setattr(live, "_PATIENCE", -1)
        assert feed.sync(again=True).moved == 0
        assert feed.differences() == []
        assert feed.failures() == 1
        monkeypatch.undo()
        assert feed.sync().moved == 0
        assert feed.failures() == 0


@pytest.mark.parametrize("name", ["bely_rest", "bely_elog", "bely_json"])
def test_a_feed_that_was_read_from_files_goes_live(name: str) -> None:
    with live_feed(name) as feed:
        (feed.root / "log").mkdir()
        entries = bundle("2024", {1: "an entry of the export", 999: "an entry that the service lacks"})
        (feed.root / "log" / "a.json").write_text(json.dumps(entries))
        feed.extra = {"form": "files", "location": "log", "options": {}}
        assert feed.sync().moved == 2
        feed.extra = {}
        feed.case.put(1, "the entry as the service has it")
        feed.case.put(2, "another entry")
        assert feed.sync().report.error == ""
        assert feed.differences() == []
        assert feed.failures() == 0
        assert feed.sync().moved == 0


def test_a_purged_page_stays_out_under_another_title() -> None:
    with live_feed("wiki_mediawiki") as feed:
        feed.case.put(1, "the password of the gauge")
        feed.case.put(2, "harmless")
        feed.sync()
        with pipeline.open_workspace(feed.settings) as workspace:
            pipeline.complete(workspace)
            purge(workspace, "WIKI:RF_item_1")
        feed.case.app.store.move("RF item 1", "Moved away")
        feed.case.put(1, "a new page at the old title")
        feed.sync()
        assert set(feed.records()) == {"RF_item_2"}


def test_one_feed_that_cannot_be_opened_leaves_the_others_alone() -> None:
    with live_feed("bely_rest") as feed:
        feed.case.put(1, "klystron tripped")
        (feed.root / "beside" / "a.csv").write_text("id,title\nD1,Trip\n")
        feed.extra = {"credentials": {"user": "reader", "password": {"env": "APS_RAG_TEST_UNSET"}}}
        synced = feed.sync()
        assert "APS_RAG_TEST_UNSET" in synced.report.error
        assert synced.moved == 1, "the feed beside"
        decision = due.decide(feed.settings, "bely", datetime.now(UTC))
        assert decision.launch


def test_a_sensor_outlives_a_reader_that_breaks_and_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    with live_feed("bely_rest") as feed:
        feed.case.put(1, "klystron tripped")
        settings = feed.settings
        with pipeline.open_workspace(settings) as workspace:
            fetch(workspace, settings.feeds)
            apply_spool(workspace)
            pipeline.complete(workspace)
        tomorrow = datetime.now(UTC) + timedelta(days=2)
        kind = type(live_source(settings))
        monkeypatch.setattr(kind, "fingerprint", lambda self: int("odd"))
        assert "cannot be looked at" in due.decide(settings, "bely", tomorrow).reason
        monkeypatch.setattr(due, "LOOK_S", 0.05)
        monkeypatch.setattr(kind, "fingerprint", lambda self: time.sleep(1))
        assert "longer than a sensor may" in due.decide(settings, "bely", tomorrow).reason


def live_source(settings: Settings) -> Any:
    from aps_rag_pipeline.sync.fetch import reader

    return reader(settings, settings.feed("live"), Home(settings.home).blobs)


def test_secrets_that_a_server_echoes_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APS_RAG_TEST_TOKEN", "tok-123-secret")
    with live_feed("bely_json") as feed:
        assert feed.server is not None
        feed.case.put(1, "klystron tripped")
        feed.extra = {"credentials": {"token": {"env": "APS_RAG_TEST_TOKEN"}}}
        feed.server.fail("status", status=403, body=b"tok-123-secret may not read \xed\xa0\xbd", times=-1)
        error = feed.sync().report.error
        assert "may not read" in error
        assert "tok-123" not in error
        found = state.read_feed(Home(feed.settings.home), "bely", "live")
        assert "tok-123" not in found.error


def test_messages_are_whole_text() -> None:
    assert shown_safely("half \ud83d of tok", ("tok",)) == "half \\ud83d of ***"


def test_secrets_among_options_are_known(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("APS_RAG_TEST_MQTT", "mqtt-secret")
    options = {"mqtt": {"broker": "h", "password": {"env": "APS_RAG_TEST_MQTT"}}}
    feed = {"name": "live", "source": "bely", "form": "rest", "url": "http://h", "options": options}
    assert "mqtt-secret" in Settings.build({"feeds": [feed]}, tmp_path / "facility.yaml").secrets()


def test_a_catalog_of_the_first_schema_is_brought_up_to_date(tmp_path) -> None:
    home = Home(tmp_path / "home").create()
    with Catalog(home) as catalog:
        catalog.connection.execute("insert into purged (source, feed, id, at) values ('bely', 'log', '7', '2026')")
        catalog.connection.execute("alter table purged drop column unit")
        catalog.connection.execute("pragma user_version = 1")
    with Catalog(home) as catalog:
        assert [tuple(row) for row in catalog.rows("select id, unit from purged")] == [("7", "")]
        assert catalog.value("pragma user_version") == SCHEMA_VERSION
