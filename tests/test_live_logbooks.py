"""Olog, ELOG and JSON log books against services that behave as the real ones do, traps and all."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from werkzeug import Request, Response

from aps_rag_pipeline.records import Record
from aps_rag_pipeline.settings import Feed, Limits, Network
from aps_rag_pipeline.sources.base import Complete, Cursor, Failure, FeedError, Ignored, SourceContext, Upsert
from aps_rag_pipeline.sources.bely import FORMS
from aps_rag_pipeline.sources.logbooks.elcode import elcode_to_markdown
from aps_rag_pipeline.sources.logbooks_live import jsonlog, olog
from aps_rag_pipeline.sources.logbooks_live.elogpassword import elog_password, sha256_crypt
from aps_rag_pipeline.sources.net.errors import RefusedError
from tests.live_cases.elogserver import ElogServer
from tests.live_cases.ologserver import OlogServer
from tests.serving import FaultyServer, serving

QUICK = Network(timeout_s=0.3, deadline_s=2, attempts=3, backoff_s=0.001)
CHICAGO = ZoneInfo("America/Chicago")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Blobs(dict[str, bytes]):
    def put(self, data: bytes) -> str:
        import hashlib

        sha256 = hashlib.sha256(data).hexdigest()
        self[sha256] = data
        return sha256

    def get(self, sha256: str) -> bytes:  # type: ignore[override]
        return self[sha256]


@dataclass
class Book:
    """A feed and the service behind it; `sync` goes on from its last cursor."""

    server: FaultyServer
    form: str
    path: str
    options: dict[str, Any] = field(default_factory=dict)
    zone: ZoneInfo = CHICAGO
    more: dict[str, Any] = field(default_factory=dict)
    blobs: Blobs = field(default_factory=Blobs)
    cursor: Any = None

    def source(self) -> Any:
        feed = Feed(
            name="live",
            source="bely",
            form=self.form,
            url=self.server.url + self.path,
            options=self.options,
            **self.more,
        )
        return FORMS[self.form](feed, SourceContext(self.zone, self.blobs, Limits(), QUICK))

    def sync(self, retry: frozenset[str] = frozenset()) -> list[Any]:
        self.server.forget()
        changes = list(self.source().changes(json.loads(json.dumps(self.cursor)), retry))
        self.cursor = changes[-1].value
        return changes[:-1]

    def records(self) -> dict[str, Record]:
        return {c.record.id: c.record for c in self.sync() if isinstance(c, Upsert)}


def of(kind: type, changes: list[Any]) -> list[Any]:
    return [change for change in changes if isinstance(change, kind)]


def words(record: Record) -> str:
    return "\n".join(part.text for part in record.parts)


@contextmanager
def book(app: Any, form: str, path: str, **more: Any) -> Iterator[Book]:
    with serving(app) as server:
        yield Book(server, form, path, **more)


@pytest.fixture
def service() -> OlogServer:
    return OlogServer()


@pytest.fixture
def log(service: OlogServer) -> Iterator[Book]:
    with book(service, "olog", "/Olog", options={"page_size": 5}) as made:
        yield made


@pytest.fixture
def elogd() -> ElogServer:
    return ElogServer()


@pytest.fixture
def diary(elogd: ElogServer) -> Iterator[Book]:
    with book(elogd, "elog", "/Operations") as made:
        yield made


# Olog


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


def read_files(folder: Path, **options: Any) -> dict[str, Record]:
    feed = Feed(name="live", source="bely", location=folder, options=options)
    source = FORMS["files"](feed, SourceContext(CHICAGO, Blobs(), Limits()))
    changes = list(source.changes(None))
    assert of(Failure, changes) == []
    return {c.record.id: c.record for c in changes if isinstance(c, Upsert)}


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


# ELOG


def test_elog_reads_only_what_moved(elogd: ElogServer, diary: Book) -> None:
    for number in range(1, 8):
        elogd.write(f"entry {number}", number, Subject=f"About {number}", Category="RF | Vacuum")
    records = diary.records()
    assert len(records) == 7
    assert records["3"].title == "About 3"
    assert records["3"].author == "ritt"
    assert records["3"].created_at == datetime(2023, 11, 14, 21, 13, 20, tzinfo=UTC)
    assert records["3"].fields == {"logbook": ["Operations"], "category": ["RF", "Vacuum"]}
    assert diary.sync() == []
    assert diary.server.requests == ["GET /Operations/?cmd=GetMD5"]
    elogd.write("entry 3, corrected", 3)
    assert words(diary.records()["3"]) == "entry 3, corrected"
    assert diary.server.asked("Download") == ["GET /Operations/3?cmd=Download"]
    assert diary.source().fingerprint() != Book(diary.server, "elog", "/Nowhere").form
    diary.server.forget()
    assert diary.source().check().units == 7
    assert diary.server.asked("Download") == []


def test_late_elog_replies_find_their_thread(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("Water flow low", 2)
    elogd.write("It was the filament", 3, answers=1)
    assert diary.records().keys() == {"1", "2"}
    elogd.write("No, its supply", 4, answers=3, Author="bob")
    (record,) = diary.records().values()
    assert [part.locator for part in record.parts] == ["log 1", "log 3", "log 4"]
    assert record.parts[2].text.startswith("bob")
    assert record.fields["reply_count"] == 2
    elogd.delete(4)
    assert [part.locator for part in diary.records()["1"].parts] == ["log 1", "log 3"]
    elogd.delete(1)
    assert {c.unit for c in of(Complete, diary.sync())} == {"1"}


def test_an_elog_entry_that_becomes_a_reply_gives_up_its_record(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2)
    assert diary.records().keys() == {"1", "2"}
    elogd.write("It was the filament", 2, answers=1)
    changes = diary.sync()
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert {c.unit for c in of(Complete, changes)} == {"1", "2"}


def test_elog_replies_in_a_ring_are_records(elogd: ElogServer, diary: Book) -> None:
    elogd.write("one", 1)
    elogd.write("two", 2, answers=1)
    elogd.entries[1][0]["In reply to"] = "2"
    assert diary.records().keys() == {"1", "2"}
    assert diary.sync() == []


def test_an_elog_reply_that_fails_costs_what_is_not_known(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2, answers=1)
    diary.server.fail("status", path="/Operations/2\\?", times=-1)
    changes = diary.sync()
    assert words(of(Upsert, changes)[0].record) == "Klystron 3 tripped"
    (failure,) = of(Failure, changes)
    assert (failure.unit, failure.item, failure.record_id, failure.permanent) == ("1", "1/2", "1", False)
    diary.server.faults.clear()
    changes = diary.sync()
    assert "filament" in words(of(Upsert, changes)[0].record)
    assert of(Failure, changes) == []
    assert diary.sync() == []
    diary.server.fail("status", path="/Operations/2\\?", times=-1)
    elogd.write("It was the filament supply", 2, answers=1)
    elogd.write("Klystron 3 tripped again", 1)
    changes = diary.sync()
    assert of(Upsert, changes) == [], "words that are known are not given up for an outage"
    assert of(Complete, changes) == []
    assert [f.item for f in of(Failure, changes)] == ["1"]


def test_an_elog_reply_read_for_the_first_time_waits_for_its_thread(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2, answers=1)
    del elogd.entries[1][0]["Reply to"]
    diary.server.fail("status", path="/Operations/2\\?", times=3)
    changes = diary.sync()
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert "the next sync" in of(Failure, changes)[0].reason
    changes = diary.sync()
    assert "filament" in words(of(Upsert, changes)[0].record)
    assert of(Failure, changes) == []


def error_page(said: str) -> bytes:
    return f'<html><head><title>ELOG error</title></head><td class="errormsg" colspan=2>{said}</td></html>'.encode()


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "body", "body": error_page('Error: User "reader" is not allowed to perform command "Download"')},
        {"kind": "body", "body": error_page("Error: <b>Cannot open file 231114a.log</b>, the entry does not exist?")},
        {"kind": "status", "status": 404, "body": b"<html><title>nginx</title></html>"},
    ],
)
def test_an_error_page_of_elog_proves_nothing_of_an_entry_that_is_listed(
    elogd: ElogServer, diary: Book, fault: dict[str, Any]
) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2, answers=1)
    elogd.write("Water flow low", 3)
    diary.sync()
    elogd.write("It was the filament supply", 2, answers=1)
    elogd.write("Water flow low again", 3)
    diary.server.fail(path="Download", times=-1, **fault)
    for _ in range(2):
        changes = diary.sync()
        assert of(Upsert, changes) + of(Complete, changes) == []
        assert [(f.unit, f.item, f.permanent) for f in of(Failure, changes)] == [("1", "1", False), ("3", "3", False)]
    diary.server.faults[0].path = "/2.cmd=Download"
    changes = diary.sync()
    assert [c.unit for c in of(Complete, changes)] == ["3"]
    assert [f.item for f in of(Failure, changes)] == ["1"], "a thread is not read without one of its replies"
    diary.server.faults.clear()
    assert "filament supply" in words(diary.records()["1"])


@pytest.mark.parametrize("said", ["This entry has been deleted", "Dieser Eintrag wurde gel&ouml;scht", "Verboten"])
def test_an_elog_entry_deleted_while_it_is_read_is_gone_whatever_the_language(
    elogd: ElogServer, diary: Book, said: str
) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2, answers=1)
    elogd.write("Water flow low", 3)
    diary.sync()
    elogd.write("Klystron 3 tripped again", 1)
    elogd.write("Water flow low again", 3)
    listed: list[str] = []

    def deleting(environ: Any, start_response: Any) -> Any:
        if "Download" in environ["QUERY_STRING"] and not listed:
            listed.extend(diary.server.asked("GetMD5"))
            elogd.delete(2)
            elogd.delete(3)
        return elogd(environ, start_response)

    diary.server.app = deleting
    diary.server.fail("body", path="/[23].cmd=Download", times=-1, body=error_page(said))
    changes = diary.sync()
    assert of(Failure, changes) == []
    assert {c.unit for c in of(Complete, changes)} == {"1", "3"}
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert len(listed) == 1


@pytest.mark.parametrize("lines", [2, 3, 4])
def test_a_list_of_digests_that_is_cut_off_removes_nothing(elogd: ElogServer, diary: Book, lines: int) -> None:
    for number in range(1, 6):
        elogd.write(f"entry {number}", number)
    diary.sync()
    listing = "".join(f"ID: {n:6d} MD5:{'0' * 32}\n" for n in range(lines))
    diary.server.fail("body", body=listing.encode(), path="GetMD5", times=-1)
    with pytest.raises(FeedError, match="leaves out entry"):
        diary.sync()
    diary.server.faults[0].body = listing.encode()[:-20]
    with pytest.raises(FeedError, match="cut off"):
        diary.sync()


def test_an_elog_entry_that_is_cut_off_is_asked_for_again(elogd: ElogServer, diary: Book) -> None:
    elogd.write("a long story about the kicker", 1)
    elogd.write("another", 2)
    diary.server.fail("torn", path="/Operations/1\\?", times=3)
    changes = diary.sync()
    assert [c.record.id for c in of(Upsert, changes)] == ["2"]
    assert of(Failure, changes)[0].unit == "1"
    assert words(diary.records()["1"]) == "a long story about the kicker"


def test_an_elog_entry_that_is_cut_off_at_the_end_of_a_line_is_not_believed(elogd: ElogServer, diary: Book) -> None:
    elogd.write("first line\nsecond line\n", 1)
    diary.sync()
    elogd.write("first line of the edit\nsecond line of the edit\n", 1)
    whole = diary.server.app

    def cutting(environ: Any, start_response: Any) -> Any:
        body = b"".join(whole(environ, start_response))
        return [body[: body.rindex(b"second")] if "Download" in environ["QUERY_STRING"] else body]

    diary.server.app = cutting
    changes = diary.sync()
    assert of(Upsert, changes) == []
    assert of(Failure, changes)[0].unit == "1"
    diary.server.app = whole
    assert "second line of the edit" in words(diary.records()["1"])


def test_elog_wants_its_cookies(elogd: ElogServer, diary: Book, tmp_path: Path) -> None:
    elogd.write("private", 1)
    elogd.user, elogd.password = "reader", elog_password("s3cret word")
    with pytest.raises(RefusedError, match="credentials"):
        diary.sync()
    (tmp_path / "password").write_text("s3cret word\n")
    diary.more = {"credentials": {"user": "reader", "password": {"file": str(tmp_path / "password")}}}
    assert diary.records().keys() == {"1"}
    assert "s3cret" not in json.dumps(diary.cursor)
    assert all(elogd.password in headers["COOKIE"] for headers in diary.server.headers)


def test_the_password_of_elog_is_the_crypt_of_unix() -> None:
    # The vectors are those of the specification, and of crypt(3) without salt.
    assert sha256_crypt(b"Hello world!", b"saltstring") == "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"
    assert elog_password("secret") == "o1w7HPzHt8gHmL5zUzDkRqt6Az.BjDfkvuDNNLWnXx5"


def test_elog_pictures_attached_inlined_and_pasted(elogd: ElogServer, diary: Book) -> None:
    elogd.write("", 1, encoding="HTML")
    stored = elogd.attach(1, "scope.png", PNG)
    elogd.attach(1, "notes.txt", b"12 gpm")
    pasted = base64.b64encode(PNG + b"pasted").decode()
    html = (
        f'<p>Trace <img alt="trace" src="{stored[:13]}/scope.png?lb=Operations&amp;thumb=1"></p>'
        f'<table><tr><th>PV</th></tr><tr><td>S:X</td></tr></table><img src="data:image/png;base64,{pasted}">'
    )
    elogd.entries[1] = (elogd.entries[1][0], html)
    record = diary.records()["1"]
    assert record.parts[0].text == "Trace [picture: trace]"
    assert record.parts[1].kind == "table"
    assert [(a.name.split("-")[0], a.part) for a in record.attachments] == [
        ("scope.png", 0),
        ("pasted", 2),
        ("notes.txt", -1),
    ]
    assert len(diary.server.asked("/231114_")) == 2
    elogd.entries[1] = (elogd.entries[1][0], html + "<p>more</p>")
    assert "more" in words(diary.records()["1"])
    assert diary.server.asked("/231114_") == []


def test_an_elog_file_that_is_a_page_is_none(elogd: ElogServer, diary: Book) -> None:
    elogd.write("see the picture", 1)
    del elogd.files[elogd.attach(1, "scope.png", PNG)]
    changes = diary.sync()
    assert [c.record.attachments for c in of(Upsert, changes)] == [()]
    assert "has no such file" in of(Failure, changes)[0].reason


def test_elog_folders_and_exports_read_like_the_server(elogd: ElogServer, diary: Book, tmp_path: Path) -> None:
    elogd.write("Klystron <3> & 4 tripped", 1, Subject="RF", **{"Operator on duty": "ann | bob"})
    elogd.write("[B]It was[/B] the [URL=http://x.org]filament[/URL], see elog:1", 2, answers=1, encoding="ELCode")
    elogd.write("<p>Water <b>flow</b></p>", 3, encoding="HTML")
    live = diary.records()
    assert live["1"].fields["operator_on_duty"] == ["ann", "bob"]
    assert "It was the filament (http://x.org)" in words(live["1"])
    for name, numbers in (("231114a.log", (1, 3)), ("231115a.log", (2,))):
        text = b"".join(elogd.raw(number) for number in numbers)
        (tmp_path / name).write_bytes(text.replace(b"\n", b"\r\n") if numbers == (2,) else text)
    (tmp_path / "elogd.log").write_text("15-Nov-2023 [ritt] LOGIN user\n")
    assert read_files(tmp_path, logbook="Operations") == live
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "export.xml").write_text(elogd.xml())
    assert read_files(tmp_path, logbook="Operations") == live


def test_damaged_elog_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("$@MID@$: 1\nDate: x\n" + "=" * 40 + "\nfine\n$@MID@$: 2\nDate: cut o")
    (tmp_path / "b.xml").write_text("<?xml version='1.0'?>\n<ELOG_LIST><ENTRY><MID>3</MID><TEXT>cut o")
    (tmp_path / "c.xml").write_text('<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><ELOG_LIST>&e;</ELOG_LIST>')
    source = FORMS["files"](
        Feed(name="live", source="bely", location=tmp_path), SourceContext(CHICAGO, Blobs(), Limits())
    )
    changes = list(source.changes(None))
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert {c.place.split(":")[0] for c in of(Failure, changes)} >= {"a.log", "b.xml"}
    assert not any("root:" in repr(change) for change in changes)


def test_attributes_of_an_elog_are_named_by_options(elogd: ElogServer, diary: Book) -> None:
    elogd.write("text", 1, Headline="Beam dump", Wer="Müller", Happened="2023-11-14 20:00")
    diary.options = {"title": "Headline", "author": "Wer", "event": "Happened", "logbook": "Betrieb"}
    record = diary.records()["1"]
    assert (record.title, record.author, record.fields["logbook"]) == ("Beam dump", "Müller", ["Betrieb"])
    assert record.fields["event_time"] == "2023-11-15T02:00:00Z"
    diary.options = {"titel": "Headline"}
    with pytest.raises(FeedError, match="titel"):
        diary.sync()


def test_elog_in_another_charset(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Kühlwasser zu warm", 1)
    plain = elogd.raw
    elogd.raw = lambda number: plain(number).decode().encode("latin-1")  # type: ignore[method-assign]
    assert words(diary.records()["1"]) == "Kühlwasser zu warm"


def test_an_address_that_is_no_elog_is_told(elogd: ElogServer, diary: Book) -> None:
    diary.path = "/Nowhere"
    with pytest.raises(FeedError, match="Nowhere"):
        diary.sync()
    diary.server.app = lambda environ, start: Response("hello")(environ, start)
    with pytest.raises(FeedError, match="address of a log book"):
        diary.sync()


def test_elog_entries_that_hang_do_not_hold_up_the_listing(elogd: ElogServer, diary: Book) -> None:
    for number in range(1, 4):
        elogd.write(f"entry {number}", number)
    diary.server.fail("hang", path="/Operations/2\\?", times=3)
    changes = diary.sync()
    assert {c.record.id for c in of(Upsert, changes)} >= {"1", "3"}
    diary.server.stopping.clear()
    diary.sync()
    assert diary.sync() == []


@pytest.mark.parametrize(
    ("elcode", "markdown"),
    [
        ("[B]bold[/B] [I]it[/I] [COLOR=red]red[/COLOR]", "bold it red"),
        ("[IMG]elog:/2[/IMG] [img size=40]elog:/9[/img]", "![](two.png) ![](elog:/9)"),
        ("[URL]http://x.org[/URL] [URL=http://y.org]y[/URL]", "http://x.org [y](http://y.org)"),
        ("[LIST]\n[*]a\n[*] b\n[/LIST]", "\n- a\n- b\n"),
        ("x[CODE]\na[0] = [B]\n[/CODE]y", "x\n```\na[0] = [B]\n```\ny"),
        ('[TABLE border="1"]\nA|B\n|-\n1|2\n[/TABLE]', "\n| A | B |\n| --- | --- |\n| 1 | 2 |\n"),
        ('[QUOTE="ann"]so[/QUOTE]', "\n> ann wrote:\n> so\n"),
        ("a [1] and [x] and [B", "a [1] and [x] and [B"),
    ],
)
def test_elcode_becomes_markdown(elcode: str, markdown: str) -> None:
    assert elcode_to_markdown(elcode, ["one.png", "two.png"]) == markdown


# JSON


@dataclass
class JsonServer:
    """Gives `reply` at /log, and `files` elsewhere."""

    reply: Any = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ)
        if request.path == "/log":
            body = self.reply(request) if callable(self.reply) else self.reply
            reply = Response(body if isinstance(body, str) else json.dumps(body), mimetype="text/html")
        else:
            data = self.files.get(request.path)
            reply = Response("no such file", 404) if data is None else Response(data)
        return reply(environ, start_response)


@pytest.fixture
def journal() -> Iterator[Book]:
    with book(JsonServer(), "json", "/log") as made:
        yield made


def als(number: int, text: str, **more: Any) -> dict[str, Any]:
    stamp = str(1_704_067_200 + number * 3600)
    return {"id": str(number), "timestamp": stamp, "author": "alee", "subject": f"S{number}", "details": text, **more}


@pytest.mark.parametrize("name", ["jlab", "als", "generic", "ornl"])
def test_the_shapes_of_other_facilities(journal: Book, shared: Path, tmp_path: Path, name: str) -> None:
    (path,) = (shared / "logbook").rglob(f"sample_{name}_entries.json*")
    text = re.sub(r'"attachments": \[\{.*?\}\]', '"attachments": []', path.read_text())
    journal.server.app.reply = text
    (tmp_path / path.name).write_text(text)
    live = journal.records()
    assert len(live) >= 5
    assert live == read_files(tmp_path)
    assert journal.sync() == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<html><title>Sign in</title></html>", "Sign in|HTML"),
        ('{"error": "database is away"}', "database is away"),
        ('{"error": {"message": "no"}}', "no"),
        ("{}", "where entries were due"),
        ("null", "where entries were due"),
        ('{"data": null}', "where entries were due"),
        ('{"data": {}}', "where entries were due"),
        ('{"status": "maintenance"}', "where entries were due"),
        ('[{"id": "1"', "cut off"),
        ("", "cut off"),
        ("[]", "nothing is listed"),
        ('{"id": 1, "timestamp": 2, "subject": "a", "details": "b"}\n{"id": 2, "times', "line 2|JSON"),
    ],
)
def test_what_is_no_list_of_entries_is_an_outage(journal: Book, body: str, said: str) -> None:
    journal.server.app.reply = [als(1, "one"), als(2, "two")]
    journal.sync()
    journal.server.app.reply = body
    with pytest.raises(FeedError, match=said) as caught:
        journal.sync()
    assert journal.server.url.removeprefix("http://") in str(caught.value)


def test_stretches_of_time_meet_and_reach_beyond_now(journal: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    start = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp())
    entries = {start + days * 86_400 + 43_200 * (days % 2): days for days in range(0, 1500, 10)}

    def stretch(request: Request) -> list[Any]:
        first, last = int(request.args["start"]), int(request.args["end"])
        return [als(number, f"entry {number}") for made, number in entries.items() if first < made < last]

    journal.server.app.reply = stretch
    journal.options = {"windows": {"since": "2019-12-01", "days": 100}, "parameters": {"op": "retrieve"}}
    monkeypatch.setattr(jsonlog.clock, "now", lambda: datetime.fromtimestamp(max(entries), UTC) - timedelta(days=60))
    assert len(journal.records()) == len(entries), "a clock that is two months behind hides nothing"
    assert all("op=retrieve" in request for request in journal.server.requests)
    assert journal.sync() == []


def test_a_stretch_that_is_missing_once_removes_nothing(journal: Book) -> None:
    journal.server.app.reply = [als(number, "text") for number in range(1, 6)]
    journal.sync()
    journal.server.fail("body", body=json.dumps([als(1, "text")]).encode())
    with pytest.raises(FeedError, match="two requests in a row"):
        journal.sync()
    journal.server.app.reply = [als(number, "text") for number in range(1, 5)]
    assert [c.unit for c in journal.sync()] == ["5"]


def test_what_contradicts_itself_or_has_no_id_is_told(journal: Book) -> None:
    journal.server.app.reply = [als(1, "one"), als(2, "two"), als(2, "two"), als(1, "other"), {**als(3, "x"), "id": ""}]
    changes = journal.sync()
    assert {c.record.id for c in of(Upsert, changes)} == {"1", "2"}
    assert words(of(Upsert, changes)[0].record) == "one"
    assert {c.record_id for c in of(Failure, changes)} == {"1", ""}


def test_an_entry_that_became_unreadable_keeps_its_record(journal: Book) -> None:
    journal.server.app.reply = [als(1, "one"), als(2, "two")]
    journal.sync()
    broken = {"id": "2", "oops": True}
    journal.server.app.reply = [als(1, "one"), broken]
    for _ in range(2):
        changes = journal.sync()
        assert of(Complete, changes) == []
        assert [(f.unit, f.item) for f in of(Failure, changes)] == [("2", "2")]
    journal.server.app.reply = [als(1, "one"), als(2, "two again")]
    assert [c.unit for c in of(Complete, journal.sync())] == ["2"]


def test_a_json_entry_that_lost_its_id_keeps_its_record(journal: Book) -> None:
    journal.server.app.reply = [als(1, "one"), als(2, "two")]
    journal.sync()
    journal.server.app.reply = [als(1, "edited"), {**als(2, "two"), "id": None}]
    for _ in range(2):
        changes = journal.sync()
        assert of(Complete, changes) == [Complete("1")] * bool(of(Upsert, changes))
        assert "2" in {f.unit for f in of(Failure, changes)}
        assert "2" in journal.cursor["units"]
    journal.server.app.reply = [als(1, "edited")]
    assert journal.sync() == [Complete("2")]


def test_a_json_thread_whose_reply_lost_its_id_stays_as_it_was(journal: Book) -> None:
    reply = {"logId": 2, "logEntry": "it was the filament", "parentLogId": 1}
    journal.server.app.reply = [{"logId": 1, "logEntry": "klystron tripped", "logReplies": [reply]}]
    assert "filament" in words(journal.records()["1"])
    journal.server.app.reply[0]["logReplies"] = [{**reply, "logId": None}]
    for _ in range(2):
        changes = journal.sync()
        assert of(Upsert, changes) + of(Complete, changes) == []
        assert "1" in {f.unit for f in of(Failure, changes)}
    journal.server.app.reply[0]["logReplies"] = [reply]
    journal.sync()
    assert journal.sync() == []


def test_files_of_json_log_books(journal: Book) -> None:
    files = [{"url": "attachments/2024/scope.png"}, {"url": "http://elsewhere.example/x.png"}]
    files += [{"url": f"{journal.server.url}/files/note.txt?version=2", "filename": "note.txt"}]
    journal.server.app.files["/files/note.txt"] = b"12 gpm"
    journal.server.app.files["/attachments/2024/scope.png"] = PNG
    journal.server.app.reply = [als(1, "one", attachments=files)]
    record = journal.records()["1"]
    assert [(a.name, a.media_type) for a in record.attachments] == [
        ("scope.png", "image/png"),
        ("note.txt", "text/plain"),
    ]
    assert ("url", "http://elsewhere.example/x.png") in {(link.kind, link.target) for link in record.links}
    journal.server.app.reply = [als(1, "edited", attachments=files)]
    assert len(journal.records()["1"].attachments) == 2
    assert journal.server.asked("scope|note") == []


@pytest.mark.parametrize(
    "address",
    [
        "//{other}/x.png",
        "http://{other}/x.png",
        "http:\\\\{other}\\x.png",
        "/\t/{other}/x.png",
        "\n//{other}/x.png",
        "/\\{other}/x.png",
        "///{other}/x.png",
        "{home}//{other}/x.png",
        "{home}@{other}/x.png",
        "http://reader:guess@{bare}/x.png",
        "{home}\\@{other}/x.png",
        "//{other}/log/attachments/x.png",
        "http://[{other}/x.png",
        "https://{bare}/x.png",
    ],
)
def test_what_an_entry_names_gets_no_secrets(journal: Book, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("LOG_TOKEN", "t0ken")
    journal.more = {"credentials": {"token": {"env": "LOG_TOKEN"}}}
    with serving(lambda environ, start: Response(PNG)(environ, start)) as other:
        there = other.url.removeprefix("http://").replace("127.0.0.1", "localhost")
        home, bare = journal.server.url, journal.server.url.removeprefix("http://")
        named = address.format(other=there, home=home, bare=bare)
        text = f"see ![x](<{named}>)" if named.isprintable() else "see the picture"
        journal.server.app.reply = [als(1, text, attachments=[named, {"url": named}])]
        record = journal.records()["1"]
        assert other.requests == []
        assert record.attachments == ()
        assert all(headers.get("AUTHORIZATION") == "Bearer t0ken" for headers in journal.server.headers)
    assert "t0ken" not in json.dumps(record.fields | {"links": [link.target for link in record.links]})


def test_a_file_without_a_scheme_on_another_host_is_a_link(journal: Book) -> None:
    journal.server.app.reply = [als(1, "one", attachments=["//elsewhere.example/a/x.png"])]
    (record,) = [c.record for c in of(Upsert, journal.sync())]
    assert ("url", "http://elsewhere.example/a/x.png") in {(link.kind, link.target) for link in record.links}
    assert len(journal.server.requests) == 1


def test_secrets_of_json_log_books(journal: Book, tmp_path: Path) -> None:
    journal.server.app.reply = [als(1, "one")]
    (tmp_path / "token").write_text("t0ken")
    journal.more = {"credentials": {"token": {"file": str(tmp_path / "token")}}}
    journal.sync()
    assert journal.server.headers[0]["AUTHORIZATION"] == "Bearer t0ken"
    assert "t0ken" not in json.dumps(journal.cursor)
    journal.more = {"credentials": {"user": "u", "password": {"file": str(tmp_path / "none")}}}
    with pytest.raises(FeedError, match="cannot be read"):
        journal.sync()


@pytest.mark.parametrize("options", [{"dialect": "docuwiki"}, {"windows": {"days": 0}}, {"window": {}}])
def test_options_of_json_log_books_are_checked(journal: Book, options: dict[str, Any]) -> None:
    journal.options = options
    with pytest.raises(FeedError, match=r"feed live: options\."):
        journal.sync()


@pytest.mark.parametrize("form", ["olog", "elog", "json"])
def test_a_sign_in_page_is_not_kept_as_a_file(form: str) -> None:
    services: dict[str, tuple[Any, str]] = {
        "olog": (OlogServer(), "/Olog"), "elog": (ElogServer(), "/Operations"), "json": (JsonServer(), "/log"),
    }  # fmt: skip
    app, path = services[form]
    with book(app, form, path) as made:
        if form == "json":
            app.reply = [als(1, "see the picture", attachments=[{"url": "/a?id=5", "filename": "scope.png"}])]
            app.files["/a"] = PNG
        else:
            app.write("see the picture", 1)
            app.attach(1, "scope.png", PNG)
        made.server.fail("html", path=r"attachment/|/231114_|/a\?")
        changes = made.sync()
        assert [c.record.attachments for c in of(Upsert, changes)] == [()]
        assert "a web page came in place of scope.png" in of(Failure, changes)[0].reason
        assert [made.blobs[a.sha256] for a in made.records()["1"].attachments] == [PNG]
        assert made.sync() == []


def test_pages_that_are_files_of_elog(elogd: ElogServer, diary: Book) -> None:
    elogd.write("see the files", 1)
    page = b"<html><body>A page of its own</body></html>"
    elogd.attach(1, "report.html", page)
    elogd.attach(1, "found.txt", b"The pump was not found on this server rack")
    assert next(diary.blobs[a.sha256] for a in diary.records()["1"].attachments) == page
    assert len(diary.blobs) == 2


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


@pytest.mark.parametrize("piece", ["[quote]", "[table]a|-", "[url=a]", "[code]", "[img", "[size=", " [*", "[table]\n|"])
def test_hostile_elcode_takes_no_longer_than_its_length(piece: str) -> None:
    started = time.monotonic()
    elcode_to_markdown(piece * 30_000 + "[/table]", [])
    assert time.monotonic() - started < 3
