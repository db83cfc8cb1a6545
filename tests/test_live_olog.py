"""Olog as a live log book, by the traps of the real service."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aps_rag_pipeline.sources.base import Complete, Cursor, Failure, FeedError, Ignored, Upsert
from aps_rag_pipeline.sources.logbooks_live import olog
from tests.live_cases.ologserver import OlogServer
from tests.log_services import CHICAGO, PNG, Book, book, of, read_files, words


@pytest.fixture
def service() -> OlogServer:
    return OlogServer()


@pytest.fixture
def log(service: OlogServer) -> Iterator[Book]:
    with book(service, "olog", "/Olog", options={"page_size": 5}) as made:
        yield made


def test_olog_is_walked_page_by_page_to_its_end(service: OlogServer, log: Book) -> None:
    for number in range(1, 24):
        service.write(f"entry {number}", number)
    assert sorted(log.records(), key=int) == [str(number) for number in range(1, 24)]
    assert len(log.server.asked("search")) < 9
    assert log.sync() == []
    assert log.source().check().units == 23


@pytest.mark.parametrize("count", [1, 4, 5, 6, 9, 10, 11])
def test_olog_ends_where_the_last_page_does(service: OlogServer, log: Book, count: int) -> None:
    for number in range(1, count + 1):
        service.write(f"entry {number}", number)
    assert len(log.records()) == count


def test_an_olog_entry_says_all_it_has(service: OlogServer, log: Book) -> None:
    service.write(
        "**Beam dump** at S-DCCT:CurrentM",
        7,
        title="Beam dump",
        level="Fault",
        owner="yoon",
        tags=[{"name": "Vacuum", "state": "Active"}, {"name": "RF", "state": "Active"}],
        properties=[{"name": "Fault Report", "attributes": [{"name": "Ticket", "value": "1234"}]}],
        events=[{"name": "faultTime", "instant": 1_699_990_000_000}],
        made=1_700_000_000_217,
    )
    record = log.records()["7"]
    assert (record.title, record.author, words(record)) == ("Beam dump", "yoon", "**Beam dump** at S-DCCT:CurrentM")
    assert record.created_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert record.fields == {
        "fault_report_ticket": "1234",
        "level": "Fault",
        "logbook": ["Operations"],
        "tags": ["RF", "Vacuum"],
        "event_time": "2023-11-14T19:26:40Z",
    }
    service.logs[7]["tags"].reverse()
    assert log.sync() == [], "a set in another order is the same set"


def test_an_entry_written_while_olog_is_walked_is_read_then_or_next_time(service: OlogServer, log: Book) -> None:
    for number in range(1, 13):
        service.write(f"entry {number}", number)
    asked = 0

    def busy(environ: Any, start_response: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked < 4:
            service.write(f"written after page {asked}", 100 + asked)
        return service(environ, start_response)

    log.server.app = busy
    first = log.records()
    log.server.app = service
    assert {str(number) for number in range(1, 13)} <= first.keys()
    assert first.keys() | log.records().keys() == {str(n) for n in [*range(1, 13), 101, 102, 103]}


def test_an_entry_deleted_while_olog_is_walked_starts_the_walk_again(service: OlogServer, log: Book) -> None:
    for number in range(1, 13):
        service.write(f"entry {number}", number)

    def deleting(environ: Any, start_response: Any) -> Any:
        if "end=" in environ["QUERY_STRING"] and 8 in service.logs:
            del service.logs[8]  # the last of the first page
        return service(environ, start_response)

    log.server.app = deleting
    assert log.records().keys() >= {str(number) for number in range(1, 13) if number != 8}


def test_more_olog_entries_in_a_second_than_a_page_holds(service: OlogServer, log: Book) -> None:
    for number in range(1, 5):
        service.write("before", number)
    for number in range(5, 22):
        service.write("imported at once", number, made=1_700_000_100_000 + number)
    for number in range(22, 25):
        service.write("after", number, made=1_700_000_200_000)
    assert len(log.records()) == 24


def test_olog_beyond_the_window_of_its_search_engine(
    service: OlogServer, log: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.window = 20
    monkeypatch.setattr(olog, "_WINDOW", 20)
    for number in range(1, 51):
        service.write(f"entry {number}", number)
    assert len(log.records()) == 50
    for number in range(51, 90):
        service.write("imported at once", number, made=1_700_900_000_000)
    with pytest.raises(FeedError, match="in one second"):
        log.sync()


def test_an_olog_entry_without_a_date_is_found(service: OlogServer, log: Book) -> None:
    for number in range(1, 9):
        service.write(f"entry {number}", number)
    service.write("imported without a date", 9, made=None)
    assert log.records()["9"].created_at is None


def test_an_old_olog_in_the_facilitys_zone(log: Book) -> None:
    service = log.server.app = OlogServer(CHICAGO, old=True)
    # The clock goes back on 5 November: 01:30 comes twice.
    start = datetime(2023, 11, 5, 5, 0, tzinfo=UTC)
    for number in range(1, 25):
        made = int((start + timedelta(minutes=10 * number)).timestamp() * 1000)
        service.write(f"entry {number}", number, made=made)
    service.write("130.199.4.5", 25, description="Seen on the scope", made=1_699_900_000_000)
    records = log.records()
    assert len(records) == 25
    assert words(records["25"]) == "Seen on the scope", "the old service keeps an address in `source`"
    assert log.sync() == []


def test_an_old_olog_in_another_zone_is_told_and_then_read(log: Book) -> None:
    service = log.server.app = OlogServer(ZoneInfo("Asia/Tokyo"), old=True)
    for number in range(1, 25):
        service.write(f"entry {number}", number, made=1_700_000_000_000 + number * 60_000)
    with pytest.raises(FeedError, match="server_time_zone"):
        log.sync()
    log.options["server_time_zone"] = "Asia/Tokyo"
    assert len(log.records()) == 24


def test_olog_replies_stand_in_the_record_that_they_answer(service: OlogServer, log: Book) -> None:
    service.write("Klystron 3 tripped", 1, owner="ann")
    service.write("It was the filament", 2, owner="bob")
    service.write("Water flow low", 3)
    assert log.records().keys() == {"1", "2", "3"}
    service.group(1, 2)
    changes = log.sync()
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert {c.unit for c in of(Complete, changes)} == {"1", "2"}, "the reply has no record of its own any more"
    record = of(Upsert, changes)[0].record
    assert [part.locator for part in record.parts] == ["log 1", "log 2"]
    assert record.parts[1].kind == "transcript"
    assert record.parts[1].text.startswith("bob")
    assert record.fields["reply_count"] == 1
    service.write("It was the filament supply", 2)
    assert "filament supply" in words(log.records()["1"])


def test_olog_files_are_fetched_once_by_their_ids(service: OlogServer, log: Book) -> None:
    service.write("first", 1)
    stored = service.attach(1, "scope.png", PNG)
    service.attach(1, "scope.png", PNG + b"another of the name")
    service.logs[1]["source"] = f"See ![trace](attachment/{stored}){{width=100 height=50}} here"
    record = log.records()["1"]
    assert words(record) == "See [picture: trace] here"
    assert [(a.name, a.media_type, a.part) for a in record.attachments] == [
        ("scope.png", "image/png", 0),
        ("scope.png", "image/png", -1),
    ]
    assert len(log.server.asked("GET /Olog/attachment/")) == 2
    service.write("edited", 1)
    assert len(log.records()["1"].attachments) == 2
    assert log.server.asked("attachment/") == []


def test_olog_files_of_a_service_that_knows_them_by_name_alone(log: Book) -> None:
    service = log.server.app = OlogServer(CHICAGO, old=True)
    service.write("see the file", 1)
    service.attach(1, "flow log.txt", b"12 gpm")
    assert [a.name for a in log.records()["1"].attachments] == ["flow log.txt"]


def test_an_olog_file_that_cannot_be_had_costs_the_file_alone(service: OlogServer, log: Book) -> None:
    service.write("see the picture", 1)
    stored = service.attach(1, "scope.png", PNG)
    del service.files[stored]
    service.files["twin"] = PNG
    service.logs[1]["attachments"] += [{"id": stored, "filename": "scope.png"}]
    log.server.fail("status", status=500, path="/attachment", times=-1)
    changes = log.sync()
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    (failure,) = of(Failure, changes)
    assert (failure.record_id, failure.permanent, failure.unit != failure.item) == ("1", False, True)
    assert "scope.png" in failure.reason
    log.server.faults.clear()
    service.files[stored] = PNG
    assert of(Failure, log.sync()) == []
    assert log.sync() == []


def test_inactive_entries_and_other_log_books_of_olog_are_left_out(service: OlogServer, log: Book) -> None:
    log.options["logbooks"] = ["operations"]
    for number in range(1, 5):
        service.write(f"entry {number}", number)
    service.logs[3]["state"] = "Inactive"
    service.write("not ours", 9, logbooks=[{"name": "Beamline"}])
    changes = log.sync()
    assert {c.record.id for c in of(Upsert, changes)} == {"1", "2", "4"}
    assert "Inactive" in of(Ignored, changes)[0].reason
    service.logs[1]["logbooks"] = [{"name": "Beamline"}]
    service.logs[2]["state"] = "Inactive"
    assert {c.unit for c in of(Complete, log.sync())} == {"1", "2"}


def test_an_olog_entry_without_an_id_is_told(service: OlogServer, log: Book) -> None:
    service.write("fine", 1)
    service.write("without a number", 2)
    service.logs[2]["id"] = None
    changes = log.sync()
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert "without id" in of(Failure, changes)[0].reason


def test_an_olog_entry_that_lost_its_id_keeps_its_record(service: OlogServer, log: Book) -> None:
    service.write("fine", 1)
    service.write("another", 2)
    log.sync()
    service.logs[2]["id"] = None
    changes = log.sync()
    assert of(Complete, changes) == []
    assert "2" in {f.unit for f in of(Failure, changes)}
    service.logs[2]["id"] = "2"
    log.sync()
    assert log.sync() == []


def test_a_saved_olog_search_reads_like_the_service(service: OlogServer, log: Book, tmp_path: Path) -> None:
    service.write("Klystron **3** tripped", 1, title="RF", tags=[{"name": "RF"}])
    service.write("data:image/png;base64,x is no picture", 2)
    service.write(f"![](data:image/png;base64,{base64.b64encode(PNG).decode()})", 3)
    service.group(1, 2)
    stored = service.attach(1, "a.png", PNG)
    live = log.records()
    (tmp_path / "attachment").mkdir()
    (tmp_path / "attachment" / stored).write_bytes(PNG)
    reply = {"hitCount": 3, "logs": list(service.logs.values())}
    (tmp_path / "search.json").write_text(json.dumps(reply))
    assert read_files(tmp_path) == live
    assert live["3"].attachments[0].media_type == "image/png"


@pytest.mark.parametrize(
    ("options", "said"),
    [({"page_size": 5000}, "page_size"), ({"pagesize": 5}, "pagesize"), ({"server_time_zone": "CST6"}, "CST6|zone")],
)
def test_options_of_olog_are_checked(service: OlogServer, log: Book, options: dict[str, Any], said: str) -> None:
    log.options = options
    with pytest.raises(FeedError, match=said):
        log.sync()


def test_olog_says_what_came_instead(service: OlogServer, log: Book) -> None:
    service.write("fine", 1)
    log.server.fail("body", body=b'{"status": 500, "error": "Internal Server Error"}')
    with pytest.raises(FeedError, match="Internal Server Error"):
        log.sync()


def test_a_zone_change_moves_nothing(service: OlogServer, log: Book) -> None:
    for number in range(1, 8):
        service.write(f"entry {number}", number)
    assert len(log.records()) == 7
    log.zone = ZoneInfo("Asia/Tokyo")
    assert log.sync() == []


def test_no_cursor_stands_where_the_stream_was_cut(service: OlogServer, log: Book) -> None:
    for number in range(1, 12):
        service.write(f"entry {number}", number)
    log.server.fail("status", times=-1, path="end=")
    changes = []
    with pytest.raises(FeedError, match="500"):
        changes.extend(log.source().changes(None))
    assert of(Cursor, changes) == []
