"""BELY by its REST interface: what its listing, its search and its errors hide, and that nothing is lost to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aps_rag_pipeline.demo.advance import advance
from aps_rag_pipeline.demo.live import bely as service
from aps_rag_pipeline.demo.live.bely import Server
from aps_rag_pipeline.demo.live.bely_store import MemoryStore, kind
from aps_rag_pipeline.demo.write import write
from aps_rag_pipeline.records import Record
from aps_rag_pipeline.settings import Feed, Limits, Network
from aps_rag_pipeline.sources.base import Complete, Cursor, Failure, FeedError, Ignored, SourceContext, Upsert
from aps_rag_pipeline.sources.bely import FORMS
from aps_rag_pipeline.sources.belylive import client, searching
from aps_rag_pipeline.sources.belylive import scan as scanning
from aps_rag_pipeline.sources.belylive.sightings import Sightings
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.serving import FaultyServer, serving

QUICK = Network(timeout_s=1, deadline_s=5, attempts=2, backoff_s=0.001)
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20
BODIES = "/api/Logbook/(LogEntries|LogbookSections)|/api/Downloads"


class Book:
    """A log book in memory, the server before it, and a feed that reads it; `cursor` is that of its last look."""

    def __init__(self, server: FaultyServer, store: MemoryStore, blobs: BlobStore) -> None:
        self.server, self.store, self.blobs = server, store, blobs
        self.cursor: Any = None
        self.zone = "America/Chicago"
        self.network = QUICK

    @property
    def app(self) -> Server:
        assert isinstance(self.server.app, Server)
        return self.server.app

    def source(self, **feed: Any) -> Any:
        made = Feed(name="log", source="bely", form="rest", **{"url": self.server.url, **feed})
        return FORMS["rest"](made, SourceContext(ZoneInfo(self.zone), self.blobs, Limits(), self.network))

    def look(self, retry: tuple[str, ...] = (), **feed: Any) -> list[Any]:
        """The changes since the last look, without the cursor."""
        self.server.forget()
        changes = list(self.source(**feed).changes(self.cursor, frozenset(retry)))
        assert isinstance(changes[-1], Cursor)
        self.cursor = changes[-1].value
        return changes[:-1]

    def read(self, **feed: Any) -> dict[str, Record]:
        return {change.record.id: change.record for change in self.look(**feed) if isinstance(change, Upsert)}

    def bodies(self) -> list[str]:
        return self.server.asked(BODIES)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    store = MemoryStore()
    store.add_document(105)
    store.add_section(105, 900, "Radio frequency")
    store.write(105, 1, "# Beam lost\n\nklystron tripped")
    store.write(105, 2, "reset it", parent=1)
    store.write(105, 3, "in the section", section=900)
    store.add_document(106, kinds=(4, 7))
    store.write(106, 4, "quiet shift")
    with serving(Server(store)) as server:
        yield Book(server, store, BlobStore(tmp_path / "blobs"))


def texts(record: Record) -> str:
    return " ".join(part.text for part in record.parts)


def of(kind_: type, changes: list[Any]) -> list[Any]:
    return [change for change in changes if isinstance(change, kind_)]


def test_documents_sections_and_replies_become_the_records_of_the_file_form(book: Book) -> None:
    records = book.read()
    assert records.keys() == {"1", "3", "4"}
    assert texts(records["1"]).endswith("kim, 2025-06-02 02:03: reset it")
    assert records["1"].fields["document_id"] == "105"
    assert records["3"].fields["section"] == "Radio frequency"
    assert records["4"].fields["logbook"] == ["Operations", "SR"]
    assert all("loadReplies=true" in request for request in book.server.asked("LogEntries"))


def test_the_demo_served_live_gives_the_records_of_its_files_also_after_a_day(tmp_path: Path) -> None:
    write(tmp_path / "demo", seed=7, records=300)
    folder = tmp_path / "demo/feeds/bely"
    context = SourceContext(ZoneInfo("America/Chicago"), BlobStore(tmp_path / "blobs"), Limits(), QUICK)
    files = FORMS["files"](Feed(name="log", source="bely", location=folder), context)
    held: dict[str, dict[str, Record]] = {}
    cursor = None
    with serving(Server.of_folder(folder)) as server:
        live = FORMS["rest"](Feed(name="log", source="bely", form="rest", url=server.url), context)
        for days in (0, 1, 2):
            if days:
                advance(tmp_path / "demo")
            given: dict[str, dict[str, Record]] = {}
            for change in live.changes(cursor):
                match change:
                    case Upsert(record, unit):
                        given.setdefault(unit, {})[record.id] = record
                    case Complete(unit):
                        held[unit] = given.get(unit, {})
                    case Cursor(value):
                        cursor = value
            found = {key: record for unit in held.values() for key, record in unit.items()}
            wanted = {c.record.id: c.record for c in files.changes(None) if isinstance(c, Upsert)}
            assert found == wanted
            assert len(wanted) > 50
            assert any(record.access != ("public",) for record in wanted.values())


def test_a_second_look_asks_for_no_body_and_leaves_the_cursor(book: Book) -> None:
    assert len(of(Upsert, book.look())) == 3
    first, print_ = book.cursor, book.source().fingerprint()
    assert book.look() == []
    assert book.bodies() == []
    assert book.cursor == first
    assert book.source().fingerprint() == print_


@pytest.mark.parametrize("quiet", [False, True])
def test_entries_that_change_are_seen_whether_their_document_moves_or_not(book: Book, quiet: bool) -> None:
    book.look()
    prints = {book.source().fingerprint()}
    steps = [
        (lambda: book.store.write(105, 1, "edited", quiet=quiet), "1", "edited"),
        (lambda: book.store.write(105, 2, "another reply text", quiet=quiet), "1", "another reply text"),
        (lambda: book.store.write(105, 8, "late reply", parent=1, quiet=quiet), "1", "late reply"),
        (lambda: book.store.write(105, 9, "late entry", section=900, quiet=quiet), "9", "late entry"),
        (lambda: book.store.write(105, 1, "# Beam lost\n\nklystron tripped", quiet=quiet), "1", "klystron tripped"),
    ]
    for change, key, text in steps:
        change()
        prints.add(book.source().fingerprint())
        assert text in texts(book.read()[key])
        assert not book.server.asked("LogEntries/106")
        assert book.look() == []
        assert book.bodies() == []
    assert len(prints) == 1 + len(steps)


def test_an_old_entry_edited_long_after_is_seen(book: Book) -> None:
    book.look()
    for _ in range(5):
        book.store.tick(days=2)
        book.store.write(106, 4, f"quiet shift {book.store.now}")
        book.look()
    book.store.write(105, 3, "corrected after ten days", section=900, quiet=True)
    assert texts(book.read()["3"]) == "corrected after ten days"
    assert book.look() == []
    assert book.bodies() == []


def test_a_deleted_entry_goes_with_its_document_read_whole(book: Book) -> None:
    book.look()
    book.store.delete(105, 3)
    changes = book.look()
    assert [upsert.record.id for upsert in of(Upsert, changes)] == ["1"]
    assert of(Complete, changes) == [Complete("105")]
    book.store.write(105, 3, "an id used once more", section=900)
    assert texts(book.read()["3"]) == "an id used once more"
    book.store.delete(105, 2, quiet=True)  # a recent one is missed by the search
    assert "reset it" not in texts(book.read()["1"])


def test_a_deleted_document_is_asked_for_before_it_goes(book: Book) -> None:
    book.look()
    removed = book.store.documents.pop(106)
    assert book.look() == [Complete("106")]
    assert book.server.asked("LogEntries") == ["GET /api/Logbook/LogEntries/106?loadReplies=true&loadReactions=false"]
    assert book.look() == []
    book.store.documents[106] = removed
    assert "4" in book.read()


def test_a_document_that_goes_between_listing_and_reading_is_gone(book: Book) -> None:
    book.look()
    book.store.write(106, 4, "edited and then deleted")
    listed = book.app._calls["/api/Search/<path:text>"]

    def search(request: Any, text: str) -> Any:
        reply = listed(request, text)
        book.store.documents.pop(106, None)
        return reply

    book.app._calls["/api/Search/<path:text>"] = search
    assert book.look() == [Complete("106")]
    assert book.look() == []


def test_an_id_that_belongs_to_something_else_now_is_no_document(book: Book) -> None:
    book.look()
    del book.store.documents[106]
    refusal = (
        b'{"exception": {}, "message": "logDocument id is not of domain logbook.", "simpleName": "InvalidArgument"}'
    )
    book.server.fail("status", path="LogEntries/106", times=-1, body=refusal)
    assert book.look() == [Complete("106")]


def test_a_unit_that_is_no_document_is_gone_without_being_asked_for(book: Book) -> None:
    book.look()
    book.cursor["units"]["shift/2024.json"] = "of another form"
    assert book.look() == [Complete("shift/2024.json")]
    assert book.bodies() == []


def test_a_section_that_a_search_names_moves_its_document(book: Book) -> None:
    book.look()
    book.store.documents[105]["sections"][0]["name"] = "Klystrons"
    found = book.app._calls["/api/Search/<path:text>"]

    def search(request: Any, text: str) -> Any:
        reply = found(request, text).json
        reply["documentResults"].append({"objectId": 900, "lastModifiedOn": "2025-06-02T09:00:00.000+00:00"})
        return service._reply(reply)

    book.app._calls["/api/Search/<path:text>"] = search
    assert book.read()["3"].fields["section"] == "Klystrons"
    assert book.look() == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "status", "status": 404, "body": b"<html><title>nginx</title></html>"}, "nginx"),
        ({"kind": "status", "status": 500}, "status 500"),
    ],
)
def test_a_document_is_not_gone_because_something_else_answers(book: Book, fault: dict[str, Any], said: str) -> None:
    book.look()
    removed = book.store.documents.pop(106)
    book.server.fail(path="LogEntries", times=-1, **fault)
    assert said in of(Failure, book.look())[0].reason
    assert not of(Complete, book.look())
    book.server.faults.clear()
    book.store.documents[106] = removed
    assert book.look() == []
    book.store.write(105, 1, "edited")
    book.server.fail(path="LogEntries", times=-1, **fault)
    changes = book.look()
    assert [failure.unit for failure in of(Failure, changes)] == ["105"]
    assert not of(Complete, changes)
    for number in range(200, 206):
        book.store.add_document(number)
        book.store.write(number, number, "shift")
    assert len(of(Failure, book.look())) == 7, "the service itself is there"
    book.server.fail("status", path="LogbookTypes", times=-1)
    book.server.faults.reverse()
    with pytest.raises(FeedError):
        book.look()


def test_a_document_that_the_listing_forgets_is_kept(book: Book) -> None:
    book.look()
    hidden = book.store.documents[106]["document"]
    kinds = hidden.pop("entityTypeList")
    assert "kept" in of(Failure, book.look())[0].reason
    hidden["entityTypeList"] = kinds
    assert book.look() == []


def test_only_chosen_logbooks_are_read_and_a_moved_document_leaves(book: Book) -> None:
    chosen = {"options": {"logbooks": ["operations"]}}
    book.store.add_document(107, kinds=(7,))
    book.store.write(107, 7, "studies only")
    assert book.read(**chosen).keys() == {"1", "3", "4"}
    book.store.documents[105]["document"]["entityTypeList"] = [book.store.kinds[1]]
    assert book.look(**chosen) == [Complete("105")]
    assert book.read(options={"logbooks": [7]}).keys() >= {"7"}
    with pytest.raises(FeedError, match=r"no linac; there are: Operations, SR"):
        book.look(options={"logbooks": ["Linac"]})
    with pytest.raises(FeedError, match=r"options\.logbook: Extra inputs"):
        book.look(options={"logbook": ["Linac"]})


def test_limits_are_doubled_until_nothing_more_comes(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "FIRST_LIMIT", 2)
    for number in range(200, 209):
        book.store.add_document(number)
        book.store.write(number, number, "shift")
    assert len(book.read()) == 12
    assert [path.rsplit("/", 1)[1] for path in book.server.asked("LogDocuments/4/")] == ["2", "4", "8", "16"]
    assert book.look() == []
    assert [path.rsplit("/", 1)[1] for path in book.server.asked("LogDocuments/4/")] == ["16"]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server and a client that agree on a search of six results."""
    monkeypatch.setattr(service, "_SEARCH_CAP", 6)
    monkeypatch.setattr(searching, "CAP", 6)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("hour", [3, 9, 15, 23])
def test_a_search_that_overflows_is_cut_by_days(book: Book, hour: int) -> None:
    book.store.tick(hours=hour)
    book.look()
    for number in range(300, 304):
        book.store.tick(days=1)
        book.store.add_document(number)
        book.store.write(number, number, "filler")
        book.store.write(number, 1000 + number, "filler")
    book.look()
    book.store.now -= timedelta(days=2)
    book.store.write(105, 3, "hidden by six newer ones", section=900, quiet=True)
    book.store.now += timedelta(days=2)
    assert texts(book.read()["3"]) == "hidden by six newer ones"
    assert len(book.server.asked("endModifiedDate")) > 1
    assert book.look() == []
    assert book.bodies() == []


@pytest.mark.usefixtures("narrow")
def test_a_day_that_overflows_whatever_is_done_stands_for_its_logbook(book: Book) -> None:
    for log in range(400, 412):
        book.store.write(105, log, "mass import", quiet=True)
    book.look()
    assert book.look() == []
    assert book.bodies() == []
    book.store.write(106, 4, "hidden at once", quiet=True)
    for log in range(400, 412):
        book.store.write(105, log, "changed again", quiet=True)
    assert texts(book.read()["4"]) == "hidden at once"
    assert book.look() == []
    assert book.bodies() == []


def test_a_change_in_the_second_of_the_look_is_not_lost(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_moment", lambda reply: book.store.now)  # what the test server sends is the true time
    book.store.write(106, 4, "first")
    assert "4" in book.read()
    book.store.documents[106]["entries"][0]["logEntry"] = "second, and no time has moved"
    assert texts(book.read()["4"]) == "second, and no time has moved"
    assert book.source().fingerprint() is None, "whether it will move is not known"
    book.store.tick(seconds=3)
    assert book.read().keys() == {"4"}
    assert book.look() == []
    assert book.source().fingerprint() is not None


@pytest.mark.parametrize("years", [-3, 3])
def test_a_clock_that_is_wrong_hides_nothing(book: Book, years: int) -> None:
    book.look()
    right = book.store.now
    book.store.now = datetime.now(UTC) + timedelta(days=365 * years)
    book.store.write(105, 3, "by a wrong clock", section=900, quiet=True)
    book.store.write(106, 4, "by a wrong clock")
    book.read()
    book.look()
    assert book.bodies() == []
    book.store.now = right
    book.store.write(106, 4, "the clock is set")
    assert texts(book.read()["4"]) == "the clock is set"
    if years < 0:
        book.store.write(105, 3, "the clock is set here too", section=900, quiet=True)
        assert texts(book.read()["3"]) == "the clock is set here too"
    book.look()
    assert book.bodies() == []


def test_another_zone_of_server_or_feed_reads_nothing_again(book: Book) -> None:
    book.look()
    for bundle in book.store.documents.values():
        info = bundle["document"]["moreInfo"]
        for name in ("createdOnDateTime", "lastModifiedOnDateTime"):
            info[name] = datetime.fromisoformat(info[name]).astimezone(ZoneInfo("Asia/Tokyo")).isoformat()
    book.server.app = Server(book.store, zone="Asia/Tokyo")
    book.zone = "Europe/Berlin"
    assert book.look() == []
    assert book.bodies() == []


def test_what_is_written_during_the_look_is_read_with_the_next(book: Book) -> None:
    app = book.server.app

    def late(environ: Any, start_response: Any) -> Any:
        answer = app(environ, start_response)
        if "/api/Search" in environ["PATH_INFO"]:
            book.server.app = app
            book.store.write(106, 4, "written behind the listing")
        return answer

    book.look()
    book.server.app = late
    book.look()
    assert texts(book.read()["4"]) == "written behind the listing"


def test_reactions_are_no_content(book: Book) -> None:
    book.look()
    book.store.documents[106]["entries"][0]["logReactions"] = [{"id": 1, "reaction": {"name": "thumbs up"}}]
    assert book.look() == []


def test_attachments_by_both_addresses_and_in_their_original_size(book: Book) -> None:
    book.store.files = {"scope.png": PNG, "sheet 1.pdf": b"%PDF-1.4 x", "shot.png.original": PNG + b"1"}
    book.store.write(
        106,
        4,
        "![scope](/log/attachments/scope.png) [sheet](/api/Downloads/Attachments/sheet%201.pdf) "
        "![shot](/log/attachments/shot.png) ![web](http://x.org/y.png)",
    )
    record = book.read()["4"]
    assert [(a.name, a.media_type) for a in record.attachments] == [
        ("scope.png", "image/png"),
        ("sheet 1.pdf", "application/pdf"),
        ("shot.png", "image/png"),
    ]
    assert book.blobs.get(record.attachments[2].sha256) == PNG + b"1"
    assert [link.target for link in record.links] == ["http://x.org/y.png"]
    book.store.write(106, 4, "the same ![scope](/log/attachments/scope.png)")
    assert book.read()["4"].attachments == (record.attachments[0],)
    assert not book.server.asked("/api/Downloads"), "what is there is not fetched again"
    book.cursor = None
    record = book.read(options={"attachments": False})["4"]
    assert (record.attachments, texts(record)) == ((), "the same [picture: scope]")
    assert not book.server.asked("/api/Downloads")


def test_a_missing_attachment_is_asked_for_again_and_the_entry_is_there(book: Book) -> None:
    book.store.write(106, 4, "look: ![s](/log/attachments/..%2f..%2fgone.png)")
    changes = book.look()
    (failure,) = of(Failure, changes)
    assert (failure.unit, failure.record_id, failure.permanent) == ("106", "4", False)
    assert "FileNotFoundException: Attachment: gone.png requested was not found." in failure.reason
    assert "stackTrace" not in failure.reason
    assert "4" in {upsert.record.id for upsert in of(Upsert, changes)}
    book.store.files["gone.png"] = PNG
    assert book.read()["4"].attachments


def test_a_sign_in_page_is_not_kept_as_an_attachment(book: Book) -> None:
    book.store.files = {"scope.png": PNG, "page.html": b"<html><body>A page of its own</body></html>"}
    book.store.write(106, 4, "![s](/log/attachments/scope.png) [p](/log/attachments/page.html)")
    book.server.fail("html", path="Attachments/scope")
    changes = book.look()
    (failure,) = of(Failure, changes)
    assert "a web page came in place of scope.png" in failure.reason
    assert (failure.record_id, failure.permanent) == ("4", False)
    assert [a.name for c in of(Upsert, changes) for a in c.record.attachments] == ["page.html"]
    (shown, page) = book.read()["4"].attachments
    assert (book.blobs.get(shown.sha256), page.name) == (PNG, "page.html")


def test_errors_of_the_server_are_told_without_their_stack(book: Book) -> None:
    app = book.app
    app.store = None
    app._calls["/api/Logbook/LogbookTypes"] = _broken
    with pytest.raises(FeedError) as caught:
        book.look()
    assert str(caught.value).endswith(
        "/api/Logbook/LogbookTypes: status 500, DatabaseException: the connection pool is exhausted"
    )


def _broken(request: Any) -> Any:
    raise service._ServerError(500, "DatabaseException", "the connection pool is exhausted")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "no logbook types"),
        (b"{}", "something else came"),
        (b"null", "something else came"),
        (b'{"simpleName": "Oops", "message": "pool", "exception": {}}', "an error came with a good status: Oops pool"),
    ],
)
def test_a_good_status_with_something_else_is_an_outage(book: Book, body: bytes, said: str) -> None:
    book.look()
    book.server.fail("body", path="LogbookTypes", body=body, times=-1)
    with pytest.raises(FeedError, match=said):
        book.look()


def test_an_older_server_is_read_as_far_as_it_goes(book: Book) -> None:
    book.server.app = Server(book.store, older=True)
    for each in book.store.kinds:
        del each["isInternal"]
    book.store.documents[106]["document"]["name"] = "n" * 200
    assert book.read().keys() == {"1", "3", "4"}
    book.cursor = None
    book.server.fail("status", path="/api/Search", status=404, times=-1)
    changes = book.look()
    assert len(of(Upsert, changes)) == 3
    assert "cannot search" in of(Ignored, changes)[0].reason
    book.store.write(105, 1, "seen by its document")
    assert texts(book.read()["1"]).startswith("seen by its document")
    book.look()
    assert book.bodies() == []


def test_a_logbook_type_that_only_groups_others_is_passed_over(book: Book) -> None:
    book.store.kinds.append(kind(50, "all-studies", "Studies"))
    refuse = book.app._calls["/api/Logbook/LogDocuments/<int:logbook>/<int:limit>"]

    def documents(request: Any, logbook: int, limit: int) -> Any:
        if logbook == 50:
            raise service._ServerError(500, "InvalidArgument", "50 is not a valid logbook type id.")
        return refuse(request, logbook, limit)

    book.app._calls["/api/Logbook/LogDocuments/<int:logbook>/<int:limit>"] = documents
    changes = book.look()
    assert len(of(Upsert, changes)) == 3
    assert of(Ignored, changes)[0].reason == "a logbook that only groups others"


def test_documents_and_entries_without_id_are_named(book: Book) -> None:
    del book.store.documents[106]["document"]["id"]
    book.store.documents[105]["entries"].append({"logEntry": "no id", "lastModifiedOnDateTime": "2025-06-02T07:00:00Z"})
    book.server.app = _Lenient(book.store)
    failures = of(Failure, book.look())
    assert "a log document without an id" in {failure.reason for failure in failures}
    assert "a log entry without logId" in {failure.reason for failure in failures}


@pytest.mark.parametrize("reply", [False, True])
def test_what_comes_without_its_id_takes_nothing_with_it(book: Book, reply: bool) -> None:
    book.server.app = _Lenient(book.store)
    book.store.write(105, 5, "quiet")
    book.look()
    book.store.write(105, 5, "edited")
    lost = book.store.documents[105]["entries"][0]
    lost = lost["logReplies"][0] if reply else lost
    number = lost["logId"]
    lost["logId"] = None
    for _ in range(2):
        changes = book.look()
        assert of(Complete, changes) == []
        assert {c.record.id: texts(c.record) for c in of(Upsert, changes)} == {"3": "in the section", "5": "edited"}
        assert {(f.unit, f.item, f.permanent) for f in of(Failure, changes)} == {("105", "105", False)}
    lost["logId"] = number
    changes = book.look()
    assert [c.record.id for c in of(Upsert, changes)] == ["1", "5", "3"]
    assert of(Complete, changes) == [Complete("105")]
    assert book.look() == []


class _Lenient(Server):
    """One that lists what has no id."""

    def _search(self, request: Any, text: str) -> Any:
        return service._reply({"documentResults": [], "logEntryResults": []})

    def _item(self, item: int) -> Any:
        return (book, book) if (book := self.store.documents.get(item)) else super()._item(item)


def test_a_document_that_fails_for_ever_holds_up_no_other(book: Book) -> None:
    book.server.fail("status", path="LogEntries/106", times=-1)
    for _ in range(3):
        changes = book.look()
        assert [failure.unit for failure in of(Failure, changes)] == ["106"]
    assert not of(Upsert, changes)
    book.server.faults.clear()
    assert book.read().keys() == {"4"}


def test_a_page_that_comes_twice_and_torn_json_do_no_harm(book: Book) -> None:
    app = book.app
    listing = app._calls["/api/Logbook/LogDocuments/<int:logbook>/<int:limit>"]

    def twice(request: Any, logbook: int, limit: int) -> Any:
        return service._reply(listing(request, logbook, limit).json * 2)

    app._calls["/api/Logbook/LogDocuments/<int:logbook>/<int:limit>"] = twice
    book.server.fail("torn", path="LogDocuments/4")
    book.server.fail("torn", path="LogEntries/105")
    assert len(book.read()) == 3
    assert book.look() == []


def test_signing_in_and_again_when_the_server_forgot(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    book.server.app = Server(book.store, accounts={"reader": "s3cret"})
    with pytest.raises(FeedError, match=r"status 401, NotAuthorizedException: .*check the feed's `credentials`"):
        book.look()
    monkeypatch.setenv("BELY_PASSWORD", "s3cret")
    login = {"credentials": {"user": "reader", "password": {"env": "BELY_PASSWORD"}}}
    assert len(book.read(**login)) == 3
    assert len(book.server.asked("auth/login")) == 1
    forget = book.app.tokens.clear
    entries = book.app._calls["/api/Logbook/LogDocuments/<int:logbook>/<int:limit>"]
    calls = iter([forget])

    def restarted(request: Any, **arguments: Any) -> Any:
        for call in calls:
            call()
        return entries(request, **arguments)

    book.app._calls["/api/Logbook/LogDocuments/<int:logbook>/<int:limit>"] = restarted
    assert book.look(**login) == []
    assert len(book.server.asked("auth/login")) == 2
    assert "s3cret" not in str(book.cursor)
    monkeypatch.setenv("BELY_PASSWORD", "wrong")
    with pytest.raises(FeedError, match=r"AuthenticationError: Could not verify.*check the feed's") as caught:
        book.look(**login)
    assert "wrong" not in str(caught.value)
    monkeypatch.delenv("BELY_PASSWORD")
    with pytest.raises(FeedError, match="BELY_PASSWORD is not set"):
        book.look(**login)


@pytest.mark.parametrize("half", [{"user": "reader"}, {"password": {"env": "X"}}, {"token": {"env": "X"}}])
def test_half_a_sign_in_is_not_dropped(book: Book, monkeypatch: pytest.MonkeyPatch, half: dict[str, Any]) -> None:
    monkeypatch.setenv("X", "s3cret")
    with pytest.raises(FeedError, match=r"credentials name .*, but"):
        book.look(credentials=half)
    assert book.server.requests == []


def test_a_token_stays_with_its_host(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELY_PASSWORD", "s3cret")
    login = {"credentials": {"user": "reader", "password": {"env": "BELY_PASSWORD"}}}
    with serving(Server(book.store)) as other:
        book.server.fail(
            "status", path="LogbookTypes", status=302, headers={"Location": other.url + "/api/Logbook/LogbookTypes"}
        )
        book.read(**login)
        assert len(other.requests) == 1
        assert "TOKEN" not in other.headers[0]
    assert "TOKEN" in book.server.headers[-1]


def test_a_password_is_not_carried_to_another_host(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELY_PASSWORD", "s3cret")
    login = {"credentials": {"user": "reader", "password": {"env": "BELY_PASSWORD"}}}
    with serving(Server(book.store)) as other:
        there = other.url.replace("127.0.0.1", "localhost")
        book.server.fail("status", path="auth/login", status=307, headers={"Location": f"{there}/api/auth/login"})
        with pytest.raises(FeedError, match="localhost"):
            book.look(**login)
        assert other.requests == []


def test_addresses_that_cannot_be_right_say_so(book: Book) -> None:
    with pytest.raises(FeedError, match="`url` is missing"):
        book.look(url="")
    with pytest.raises(FeedError, match="address of the portal"):
        book.look(url="bely")
    assert book.read(url=book.server.url + "/api/").keys() == {"1", "3", "4"}
    with pytest.raises(FeedError, match="404"):
        book.look(url=book.server.url + "/elsewhere")
    assert book.source().check().units == 2


def test_sightings_do_not_depend_on_how_they_were_folded() -> None:
    early, late = Sightings(), Sightings()
    for day in range(1, 10):
        seen = {"5": {str(n): f"2025-06-0{n}" for n in range(max(1, day - 2), day + 1)}}
        early.look(seen, f"2025-06-0{max(0, day - 3)}")
    late.look({"5": {str(n): f"2025-06-0{n}" for n in range(1, 10)}}, "2025-06-00")
    assert early.token("5") == late.token("5")
    assert Sightings(early.notes()).token("5") == early.token("5")
    early.look({"5": {"8": "2025-06-08"}}, "2025-06-06")  # 7 and 9 are gone
    assert early.token("5") != late.token("5")
    early.keep([])
    assert early.notes() == {"recent": {}, "folded": {}}
