"""The rules of sync, held by every live form against a local service that misbehaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs

import pytest

from aps_rag_pipeline.records import decode_record
from aps_rag_pipeline.stores.catalog import unpack
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.publish import collect
from aps_rag_pipeline.sync.purge import purge
from tests.live_feed import CASES, LiveFeed, live_feed, visible

#: Faults that one more attempt survives.
PASSING = [
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 429, "headers": {"Retry-After": "0.01"}},
    {"kind": "reset"},
    {"kind": "cut"},
    {"kind": "hang"},
]
#: Faults that mean an outage while they last, never an emptiness.
LASTING = [
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 401},
    {"kind": "status", "status": 404},
    {"kind": "reset"},
    {"kind": "torn"},
    {"kind": "html"},
    {"kind": "empty"},
    {"kind": "body", "body": b'{"error": {"code": "internal", "message": "database is away"}}'},
    {"kind": "body", "body": b"[]"},
    {"kind": "body", "body": b"{}"},
    {"kind": "body", "body": b"null"},
]


def said(fault: dict) -> str:
    return "-".join(str(value) for value in fault.values() if not isinstance(value, dict))


@pytest.fixture(params=CASES)
def feed(request: pytest.FixtureRequest) -> Iterator[LiveFeed]:
    with live_feed(request.param) as made:
        for number in range(1, 6):
            made.case.put(number, f"klystron {number} tripped on overcurrent")
        yield made


@pytest.fixture
def served(feed: LiveFeed) -> LiveFeed:
    """With faults to inject, and read once."""
    if feed.server is None:
        pytest.skip("no HTTP")
    assert feed.sync().report.error == ""
    assert feed.differences() == []
    return feed


def test_a_second_sync_changes_nothing_and_asks_for_no_body(feed: LiveFeed) -> None:
    first = feed.sync()
    assert (first.report.error, first.moved) == ("", 5)
    assert feed.differences() == []
    assert feed.failures() == 0
    before = feed.cursor()
    second = feed.sync()
    assert (second.report.error, second.moved, second.report.spooled) == ("", 0, False)
    assert feed.bodies_asked() == []
    assert feed.cursor() == before
    assert first.report.fingerprint is None or second.report.fingerprint == first.report.fingerprint
    assert feed.fingerprint() == second.report.fingerprint, "what a sensor sees is what the sync saw"


def test_edits_late_entries_deletions_and_reverts_are_seen(feed: LiveFeed) -> None:
    prints = [feed.sync().report.fingerprint]
    steps = [
        lambda: feed.case.put(1, "an old entry that was corrected"),
        lambda: feed.case.put(7, "a late entry about the kicker"),
        lambda: feed.case.delete(2),
        lambda: feed.case.put(1, "klystron 1 tripped on overcurrent"),
        lambda: feed.case.put(2, "an id that is used once more"),
    ]
    for step in steps:
        step()
        synced = feed.sync()
        assert synced.report.error == ""
        assert synced.moved == 1
        assert feed.differences() == []
        prints.append(synced.report.fingerprint)
    if None not in prints:
        assert all(one != other for one, other in pairwise(prints))


def test_a_reconciliation_changes_nothing_by_itself(feed: LiveFeed) -> None:
    feed.sync()
    again = feed.sync(again=True)
    assert (again.report.error, again.moved) == ("", 0)
    feed.case.delete(3)
    assert feed.sync(again=True).moved == 1
    assert feed.differences() == []


def test_a_new_label_reaches_every_record_without_moving_another(feed: LiveFeed) -> None:
    feed.sync()
    feed.extra["access"] = ["ops"]
    feed.sync()
    assert feed.access() == {'["ops"]'}


@pytest.mark.parametrize("fault", PASSING, ids=said)
def test_one_fault_while_listing_is_survived(served: LiveFeed, fault: dict) -> None:
    assert served.server is not None
    served.case.put(1, "edited behind a fault")
    served.server.fail(path=served.case.listing, **fault)
    synced = served.sync()
    assert synced.report.error == ""
    assert synced.moved == 1
    assert served.differences() == []


@pytest.mark.parametrize("fault", LASTING, ids=said)
def test_an_outage_is_no_emptiness(served: LiveFeed, fault: dict) -> None:
    assert served.server is not None
    before, cursor = served.records(), served.cursor()
    served.case.put(1, "edited during the outage")
    served.server.fail(path=".", times=-1, **fault)
    synced = served.sync()
    assert synced.report.error, "the feed fails"
    assert served.server.url.split("//")[1] in synced.report.error, "and says where"
    assert synced.moved == 0
    assert served.records() == before
    assert served.cursor() == cursor
    served.server.faults.clear()
    assert served.sync().report.error == ""
    assert served.differences() == []


@pytest.mark.parametrize("fault", [*PASSING[:2], *PASSING[3:]], ids=said)
def test_one_fault_while_reading_is_survived(served: LiveFeed, fault: dict) -> None:
    if not served.case.item:
        pytest.skip("the listing carries the bodies")
    assert served.server is not None
    served.case.put(1, "edited behind a fault")
    served.server.fail(path=served.case.item, **fault)
    assert served.sync().report.error == ""
    served.sync()
    assert served.differences() == []
    assert served.failures() == 0


@pytest.mark.parametrize("fault", [LASTING[0], LASTING[4], LASTING[5], LASTING[7]], ids=said)
def test_bodies_that_cannot_be_read_are_remembered_and_lose_nothing(served: LiveFeed, fault: dict) -> None:
    if not served.case.item:
        pytest.skip("the listing carries the bodies")
    assert served.server is not None
    before = served.records()
    served.case.put(1, "edited, but not to be had")
    served.server.fail(path=served.case.item, times=-1, **fault)
    synced = served.sync()
    assert synced.report.error or served.failures() == 1
    assert served.records() == before
    served.server.faults.clear()
    served.sync()
    assert served.differences() == []
    assert served.failures() == 0
    assert served.sync().moved == 0


def test_a_service_that_hangs_ends_with_its_deadline(served: LiveFeed) -> None:
    assert served.server is not None
    served.server.fail("hang", times=-1, path=".")
    synced = served.sync()
    assert "no answer" in synced.report.error or "deadline" in synced.report.error
    assert len(served.requested) <= 3 * 4
    served.server.faults.clear()


def test_fetched_files_outlive_a_collection_and_go_with_a_purge() -> None:
    with live_feed("icms_webcenter") as feed:
        feed.case.put(1, "the password of the vacuum gauge")
        feed.case.put(2, "a harmless procedure")
        feed.sync()
        settings = feed.settings
        with pipeline.open_workspace(settings) as workspace:
            pipeline.complete(workspace)
            blobs = workspace.home.blobs
            before = set(blobs)
            assert len(before) == 2
            collect(workspace, at_once=True)
            assert set(blobs) == before
            (key,) = (row["key"] for row in workspace.catalog.rows("select key, body from records") if _says(row))
            purge(workspace, key)
            assert len(set(blobs)) == 1
            assert not any(b"password" in blobs.get(sha256) for sha256 in blobs)
        assert feed.sync().moved == 0
        assert feed.bodies_asked() == []


def _says(row: Any) -> bool:
    return "password" in visible(decode_record(unpack(row["body"])))


def test_an_item_without_an_id_is_told_until_it_has_one() -> None:
    with live_feed("bely_json") as feed:
        assert feed.server is not None
        feed.case.put(1, "klystron tripped")
        whole = feed.server.app
        nameless = {"timestamp": "1600000100", "author": "jd", "subject": "", "details": "an entry without an id"}

        def with_a_nameless_entry(environ: Any, start_response: Any) -> list[bytes]:
            entries = json.loads(b"".join(whole(environ, lambda *_: None)))
            start_response("200 OK", [("Content-Type", "application/json")])
            window = parse_qs(environ["QUERY_STRING"])
            here = int(window["start"][0]) <= int(nameless["timestamp"]) < int(window["end"][0])
            return [json.dumps([*entries, nameless] if here else entries).encode()]

        feed.server.app = with_a_nameless_entry
        for _ in range(2):
            assert feed.sync().report.error == ""
            assert feed.failures() == 1
            assert feed.differences() == []
        feed.server.app = whole
        feed.sync()
        assert feed.failures() == 0
