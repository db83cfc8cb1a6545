"""Documents from a content server: its own traps, and that nothing is lost, invented or fetched twice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from werkzeug import Response

from aps_rag_pipeline.demo.live.idcplg import DEMO_OPTIONS, Server
from aps_rag_pipeline.demo.write import write
from aps_rag_pipeline.records import Link, Record
from aps_rag_pipeline.settings import Feed, Limits, Network, Settings
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import (
    Change,
    Complete,
    Cursor,
    Failure,
    FeedError,
    Found,
    Source,
    SourceContext,
    Upsert,
)
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError
from aps_rag_pipeline.sources.webcenter.binder import DeniedError, read_binder
from aps_rag_pipeline.sources.webcenter.listing import list_all
from aps_rag_pipeline.sources.webcenter.options import WebCenterOptions
from aps_rag_pipeline.sources.webcenter.times import Times
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.documents import pdf, utc
from tests.serving import FaultyServer, serving

QUICK = Network(timeout_s=0.3, deadline_s=2, attempts=3, backoff_s=0.001)
CHICAGO = ZoneInfo("America/Chicago")
LISTING, INFO, FILE = "GET_SEARCH_RESULTS", "DOC_INFO", "GET_FILE"


class Reader:
    """A feed that is read again and again, as the sync does it."""

    def __init__(self, server: FaultyServer, app: Server, folder: Path) -> None:
        self.server, self.app, self.store = server, app, app.store
        self.blobs = BlobStore(folder / "blobs")
        self.cursor: Any = None
        self.known: dict[str, Record] = {}
        self.feed: dict[str, Any] = {}

    def source(self) -> Source:
        told = {"name": "live", "source": "icms", "form": "webcenter", "url": f"{self.server.url}/docs"}
        feed = Feed.model_validate({**told, **self.feed})
        return open_source(feed, SourceContext(CHICAGO, self.blobs, Limits(), QUICK))

    def sync(self, retry: frozenset[str] = frozenset(), cursor: Any = None) -> list[Change]:
        """One sync; `known` follows it as the catalog does."""
        self.server.forget()
        changes = list(self.source().changes(cursor or self.cursor, retry))
        end = changes[-1]
        assert isinstance(end, Cursor)
        self.cursor = msgspec.json.decode(msgspec.json.encode(end.value))
        units = {change.unit: change.record for change in changes if isinstance(change, Upsert)}
        for change in changes:
            if isinstance(change, Complete):
                if change.unit in units:
                    self.known[change.unit] = units[change.unit]
                else:
                    self.known.pop(change.unit, None)
        return changes[:-1]

    def texts(self) -> dict[str, str]:
        return {name: "\n".join(part.text for part in record.parts) for name, record in self.known.items()}

    def bodies(self) -> int:
        return len(self.server.asked(FILE))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    app = Server()
    with serving(app) as server:
        yield Reader(server, app, tmp_path)


def failures(changes: list[Change]) -> list[Failure]:
    return [change for change in changes if isinstance(change, Failure)]


def fill(reader: Reader, count: int = 3) -> list[str]:
    names = [f"APS_{1273342 + number}" for number in range(count)]
    for name in names:
        reader.store.check_in(name, f"words of {name}".encode())
    return names


# records


def test_the_demo_gives_the_records_of_the_file_form(tmp_path: Path) -> None:
    write(tmp_path / "demo", seed=7, records=300)
    settings = Settings.load(tmp_path / "demo" / "facility.yaml")
    feed = settings.feed("documents")
    context = SourceContext(settings.zone, BlobStore(tmp_path / "blobs"), Limits(), QUICK)

    def read(feed: Feed, cursor: Any = None) -> tuple[dict[str, Record], Any]:
        *changes, end = open_source(feed, context).changes(cursor)
        assert isinstance(end, Cursor)
        assert not failures(changes)
        return {change.record.id: change.record for change in changes if isinstance(change, Upsert)}, end.value

    with serving(Server.of_folder(feed.location)) as server:
        form = {"form": "webcenter", "url": f"{server.url}/docs", "options": DEMO_OPTIONS, "sidecar": None}
        live = feed.model_copy(update=form)
        (by_file, _), (by_service, cursor) = read(feed), read(live)
        assert len(by_file) > 30
        assert any(len(record.fields.get("revisions", ())) for record in by_file.values())
        assert {record.access for record in by_service.values()} == {("public",), ("safety",)}
        assert by_service == {name: without_folders(record) for name, record in by_file.items()}
        # A folder that moves shows through the server.
        sidecar = feed.location.with_suffix(".csv")
        sidecar.write_text(sidecar.read_text().replace(",public", ",ops", 1))
        (moved,) = read(live, cursor)[0].values()
        assert moved == msgspec.structs.replace(by_service[moved.id], access=("ops",))


def without_folders(record: Record) -> Record:
    """What the service cannot tell: the folders of files, and the file names of older revisions."""
    fields: dict[str, Any] = {**record.fields, "file": str(record.fields["file"]).rpartition("/")[2]}
    if isinstance(told := record.fields.get("revisions"), list):
        fields["revisions"] = [text.rpartition(", ")[0] for text in told]
    links = tuple(Link(link.kind, link.target) if link.kind == "supersedes" else link for link in record.links)
    return msgspec.structs.replace(record, fields=fields, links=links)


def test_a_new_revision_supersedes_the_old_one_and_says_so(reader: Reader) -> None:
    described = {"title": "Kicker timing", "author": "Roe", "file": "kicker.txt", "label": "011"}
    metadata = {"xControlledRevisionNumber": "4", "xCollection": "Procedures", "xDocumentID": "", "xOther": "no"}
    at = utc(2024, 1, 5, 6)
    reader.store.check_in("APS_1273342", b"old wording", in_date=at, metadata=metadata, **described)
    reader.sync()
    (record,) = reader.known.values()
    assert (record.id, record.title, record.author) == ("APS_1273342", "Kicker timing", "Roe")
    assert record.created_at == record.modified_at == at
    assert record.url == f"{reader.server.url}/docs/idcplg?IdcService=DOC_INFO_BY_NAME&dDocName=APS_1273342"
    assert record.fields == {
        "file": "kicker.txt",
        "content_id": "APS_1273342",
        "revision": "011",
        "status": "RELEASED",
        "in_date": "2024-01-05T06:00:00Z",
        "controlled_revision_number": 4,
        "collection": "Procedures",
    }
    later = utc(2024, 3, 4, 18, 30)
    reader.store.check_in("APS_1273342", b"new wording", label="012", in_date=later, status="UNDER REVISION")
    draft = {"released": False, "status": "REVIEW", "label": "013", "in_date": utc(2024, 5, 1)}
    reader.store.check_in("APS_1273342", b"draft wording", **draft)
    reader.sync()
    (record,) = reader.known.values()
    assert [part.text for part in record.parts] == ["new wording"]
    assert (record.created_at, record.modified_at) == (at, later)
    assert record.fields["status"] == "UNDER REVISION"
    assert record.fields["revisions"] == ["011, RELEASED, 2024-01-05", "013, REVIEW, 2024-05-01T00:00:00Z"]
    assert [link.target for link in record.links if link.kind == "supersedes"] == ["APS_1273342 011"]


def test_the_server_tells_which_revision_is_later_not_the_label(reader: Reader) -> None:
    """A label is a version of two characters and a number of the iteration."""
    for label in ("019", "0110", "021"):
        reader.store.check_in("APS_1", f"iteration {label}".encode(), label=label)
    reader.store.check_in("APS_1", b"draft", label="0111", released=False, status="REVIEW")
    reader.sync()
    assert reader.texts() == {"APS_1": "iteration 021"}
    assert [str(text)[:4] for text in reader.known["APS_1"].fields["revisions"]] == ["0110", "019,", "0111"]
    superseded = [link.target for link in reader.known["APS_1"].links if link.kind == "supersedes"]
    assert superseded == ["APS_1 0110", "APS_1 019"]


def test_a_server_that_shows_the_latest_revision_is_asked_for_the_released_one(reader: Reader) -> None:
    reader.store.check_in("APS_1", b"in force", label="011")
    reader.store.check_in("APS_1", b"draft", label="012", released=False, status="REVIEW")
    by_name = reader.app.services["DOC_INFO_BY_NAME"]
    latest = {"RevisionSelectionMethod": "Latest"}
    reader.app.services["DOC_INFO_BY_NAME"] = lambda asked: by_name({**asked, **latest})
    reader.sync()
    assert reader.texts() == {"APS_1": "in force"}


def test_of_a_drawing_the_converted_page_is_read_and_else_what_is_told_of_it(reader: Reader) -> None:
    drawing = b"\x00\x01\x02DRW" * 50
    reader.store.check_in("U2210207-100102.DRW", drawing, file="U2210207-100102.DRW", title="Girder")
    reader.store.check_in(
        "U2210207-100103.DRW", drawing, file="U2210207-100103.DRW", web=("pdf", pdf(["Sheet one of the girder"]))
    )
    changes = reader.sync()
    assert not failures(changes)
    bare, viewable = reader.known["U2210207-100102.DRW"], reader.known["U2210207-100103.DRW"]
    assert (bare.title, bare.parts, bare.fields["file"]) == ("Girder", (), "U2210207-100102.DRW")
    assert "girder" in viewable.parts[0].text
    assert viewable.fields["file"] == "U2210207-100103.pdf"
    reader.store.update("U2210207-100103.DRW", title="Girder, east")
    reader.sync()
    assert reader.known["U2210207-100103.DRW"].title == "Girder, east"
    assert reader.bodies() == 0


# nothing twice


def test_second_sync_asks_for_the_listing_alone(reader: Reader) -> None:
    names = fill(reader, 5)
    reader.sync()
    assert sorted(reader.known) == names
    assert reader.bodies() == 5
    cursor = reader.cursor
    before = reader.source().fingerprint()
    assert reader.sync() == []
    assert reader.cursor == cursor
    assert len(reader.server.requests) == 1
    assert reader.source().fingerprint() == before, "scores move with every search and say nothing"
    reader.store.update(names[0], title="Other")
    assert reader.source().fingerprint() != before


def test_metadata_without_a_new_revision_is_seen_and_downloads_nothing(reader: Reader) -> None:
    names = fill(reader)
    reader.sync()
    reader.store.update(names[1], title="Renamed", metadata={"xCollection": "Rf"})
    changes = reader.sync()
    assert [change.unit for change in changes if isinstance(change, Upsert)] == [names[1]]
    assert (reader.known[names[1]].title, reader.known[names[1]].fields["collection"]) == ("Renamed", "Rf")
    assert reader.texts()[names[1]] == f"words of {names[1]}"
    assert reader.bodies() == 0


def test_reading_all_again_downloads_nothing_and_a_lost_blob_is_fetched_again(reader: Reader) -> None:
    names = fill(reader)
    reader.sync()
    before = dict(reader.known)
    reader.sync(cursor=reader.source().again(reader.cursor))
    assert reader.known == before
    assert (reader.bodies(), len(reader.server.asked(INFO))) == (0, 3)
    for sha256 in list(reader.blobs):
        reader.blobs.remove(sha256)
    reader.sync(cursor=reader.source().again(reader.cursor))
    assert reader.known == before
    assert reader.bodies() == 3
    reader.store.check_in(names[0], b"new words")
    reader.sync()
    assert len(reader.cursor["files"][names[0]]) == 1, "older files are not remembered"


# changes of all kinds


def test_add_edit_revert_delete_and_a_reused_id(reader: Reader) -> None:
    a, b, c = fill(reader)
    reader.sync()
    reader.store.check_in(a, b"edited")
    reader.store.delete(b)
    reader.store.check_in("APSU-9", b"late entry", in_date=utc(2001, 1, 1))
    reader.sync()
    assert reader.texts() == {a: "edited", c: f"words of {c}", "APSU-9": "late entry"}
    reader.store.check_in(a, f"words of {a}".encode())
    reader.store.delete(c)
    reader.store.check_in(c, b"another document", title="Reused")
    reader.sync()
    assert reader.texts() == {a: f"words of {a}", c: "another document", "APSU-9": "late entry"}
    assert "revisions" not in reader.known[c].fields


def test_a_document_without_an_id_is_a_failure_of_its_own(reader: Reader) -> None:
    (name,) = fill(reader, 1)
    reader.store.check_in("", b"nobody's")
    (failure,) = failures(reader.sync())
    assert (failure.item, failure.permanent, set(reader.known)) == ("dID=4202", True, {name})
    assert failures(reader.sync()) == [failure]
    assert reader.bodies() == 0


def test_expired_content_goes_and_comes_back(reader: Reader) -> None:
    a, b = fill(reader, 2)
    reader.sync()
    reader.store.expire(a)
    assert Complete(a) in reader.sync()
    assert set(reader.known) == {b}
    reader.store.check_in(a, b"valid again", released=True, status="RELEASED")
    reader.sync()
    assert set(reader.known) == {a, b}


@pytest.mark.parametrize("dates", ["ts", "locale", "iso"])
def test_times_are_those_of_the_server_whatever_its_form(reader: Reader, dates: str) -> None:
    reader.app.dates = dates
    at = utc(2024, 7, 3, 18, 30)
    reader.store.check_in("APS_1", b"words", in_date=at)
    reader.sync()
    assert reader.known["APS_1"].modified_at == at


def test_another_time_zone_or_a_wrong_clock_of_the_server_moves_nothing(reader: Reader) -> None:
    names = fill(reader)
    reader.sync()
    reader.app.zone = "Europe/Berlin"
    assert reader.sync() == []
    reader.store.clock = datetime(1999, 1, 1, tzinfo=UTC)
    reader.store.check_in(names[0], b"from a clock that is years behind")
    reader.sync()
    assert reader.texts()[names[0]] == "from a clock that is years behind"


# the index lags


def test_what_the_index_does_not_have_yet_is_found_by_a_later_scan(reader: Reader) -> None:
    (a, b) = fill(reader, 2)
    reader.sync()
    reader.store.check_in("APS_9", b"new", indexed=False)
    reader.store.check_in(a, b"second", indexed=False)
    assert reader.sync() == []
    reader.store.index("APS_9")
    reader.store.index(a)
    reader.sync()
    assert reader.texts() == {a: "second", b: f"words of {b}", "APS_9": "new"}


def test_a_document_that_drops_out_of_the_index_is_kept_until_it_is_back(reader: Reader) -> None:
    (a, b) = fill(reader, 2)
    reader.sync()
    del reader.store.searchable[a]
    (failure,) = failures(reader.sync())
    assert (failure.unit, failure.permanent, "answers when it is asked" in failure.reason) == (a, False, True)
    assert set(reader.known) == {a, b}
    reader.store.index(a)
    assert failures(reader.sync()) == []
    assert reader.bodies() == 0


def test_what_the_index_still_has_but_the_server_has_not_is_gone(reader: Reader) -> None:
    (a, b, c) = fill(reader)
    reader.sync()
    reader.store.delete(a, indexed=False)
    reader.store.expire(b, indexed=False)
    reader.sync(retry=frozenset((a, b)))
    assert set(reader.known) == {c}
    reader.sync()
    assert set(reader.known) == {c}


def test_a_stale_row_gives_the_newest_revision_once(reader: Reader) -> None:
    (a,) = fill(reader, 1)
    reader.store.check_in(a, b"second", indexed=False)
    reader.sync()
    assert reader.texts() == {a: "second"}
    reader.store.index(a)
    reader.sync()
    assert reader.texts() == {a: "second"}
    assert reader.bodies() == 0


def test_leaving_the_query_is_told_from_leaving_the_index(reader: Reader) -> None:
    (a, b, c) = fill(reader)
    for name in (a, b, c):
        reader.store.update(name, metadata={"xCollection": "Procedures"})
    reader.feed = {"options": {"query": "xCollection <matches> `Procedures`"}}
    reader.sync()
    assert set(reader.known) == {a, b, c}
    reader.store.update(a, metadata={"xCollection": "Minutes"})
    del reader.store.searchable[b]
    (failure,) = failures(reader.sync())
    assert (failure.unit, set(reader.known)) == (b, {b, c})


# the listing


def test_pages_are_capped_by_the_server_and_followed_by_what_came(reader: Reader) -> None:
    reader.app.max_results = 4
    names = fill(reader, 21)
    reader.sync()
    assert sorted(reader.known) == names
    assert len(reader.server.asked(LISTING)) == 7, "each page begins with the last row of the one before"
    assert reader.source().check() == Found(21, f"{reader.server.url}/docs answers; 21 listed")


def test_what_is_written_and_deleted_during_the_scan_hides_nothing(reader: Reader) -> None:
    reader.app.max_results = 5
    names = fill(reader, 20)
    search, asked = reader.app.services[LISTING], []

    def busy(given: Any) -> Any:
        asked.append(given)
        if len(asked) == 2:  # rows behind the first page move up by one, and the sum stays
            reader.store.delete(names[0])
            reader.store.check_in("APS_new", b"new")
        return search(given)

    reader.app.services[LISTING] = busy
    reader.sync()
    assert sorted(reader.known) == sorted([*names[1:], "APS_new"])


def test_rows_of_one_minute_in_no_fixed_order_are_all_found(reader: Reader) -> None:
    reader.app.max_results = 6
    names = [f"APS_{number}" for number in range(10, 22)]
    for name in names:
        reader.store.check_in(name, name.encode(), in_date=utc(2024, 1, 1))
    reader.app.unsteady = True
    reader.sync()
    assert sorted(reader.known) == names


def test_pages_that_stay_short_of_the_count_are_an_outage(reader: Reader) -> None:
    reader.app.max_results = 4
    fill(reader, 10)
    reader.sync()
    search = reader.app.services[LISTING]
    reader.app.services[LISTING] = lambda asked: search({**asked, "StartRow": "1"})
    with pytest.raises(FeedError, match="counts 10 documents but lists 4, 3 times"):
        reader.sync()
    reader.app.services[LISTING] = search
    assert reader.sync() == []


@pytest.mark.parametrize("fault", [{"kind": "html"}, {"kind": "torn"}])
def test_a_page_that_fails_for_good_leaves_all_as_it_was(reader: Reader, fault: dict[str, Any]) -> None:
    reader.app.max_results = 4
    fill(reader, 10)
    reader.sync()
    before = dict(reader.known)
    reader.server.fail(path="StartRow=4", times=-1, **fault)
    with pytest.raises(FeedError, match="idcplg"):
        reader.sync()
    reader.server.faults.clear()
    assert reader.sync() == []
    assert reader.known == before


def test_an_error_or_an_emptiness_in_a_good_reply_is_an_outage(reader: Reader) -> None:
    fill(reader)
    reader.sync()
    error = {"LocalData": {"StatusCode": "-1", "StatusMessage": "Unable to connect to the index."}}
    empty = {"LocalData": {"TotalRows": "0"}, "ResultSets": {"SearchResults": {"fields": [], "rows": []}}}
    for body, said in (
        (error, "StatusCode -1: Unable to connect to the index."),
        (empty, "nothing is listed, but 3 items"),
        ({"LocalData": {}}, "does not say what it found"),
        ({"error": "nope"}, "no reply of a content server"),
    ):
        reader.server.fail("body", path=LISTING, times=-1, body=json.dumps(body).encode())
        with pytest.raises(FeedError, match=said):
            reader.sync()
        reader.server.faults.clear()
    assert reader.sync() == []


def test_a_damaged_result_set_is_an_outage() -> None:
    body = {"LocalData": {}, "ResultSets": {"SearchResults": {"fields": [{"name": "dID"}], "rows": [["1", "2"]]}}}
    with pytest.raises(OutageError, match="damaged"):
        read_binder(body, "here")


# one item fails


def test_an_item_that_fails_for_ever_holds_up_nothing_and_is_tried_each_time(reader: Reader) -> None:
    (a, b, c) = fill(reader)
    reader.sync()
    reader.store.check_in(b, b"second")
    reader.server.fail("status", path=f"{FILE}.*{b}", times=-1)
    for _ in range(2):
        (failure,) = failures(reader.sync())
        assert (failure.unit, failure.permanent) == (b, False)
        assert reader.texts() == {name: f"words of {name}" for name in (a, b, c)}
    reader.server.faults.clear()
    assert failures(reader.sync()) == []
    assert reader.texts()[b] == "second"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "html"}, "a web page came in place of APS_1.txt"),
        ({"kind": "torn"}, "18 bytes came where the server tells of 37"),
        ({"kind": "empty"}, "0 bytes came"),
        ({"kind": "body", "body": b'{"LocalData": {"StatusCode": "-1", "StatusMessage": "No vault."}}'}, "No vault"),
        ({"kind": "body", "body": b'{"LocalData": {"StatusCode": "-16"}}'}, "StatusCode -16"),
        ({"kind": "status", "status": 404}, "status 404"),
        ({"kind": "hang"}, "no answer"),
    ],
)
def test_what_is_not_the_file_is_not_taken_for_it(reader: Reader, fault: dict[str, Any], said: str) -> None:
    reader.store.check_in("APS_1", b"first words")
    reader.sync()
    reader.store.check_in("APS_1", b"second words, and some more of them..")
    reader.server.fail(path=FILE, times=-1, **fault)
    (failure,) = failures(reader.sync())
    assert said in failure.reason
    assert reader.texts() == {"APS_1": "first words"}
    reader.server.faults.clear()
    reader.sync()
    assert reader.texts() == {"APS_1": "second words, and some more of them.."}


def test_a_sign_in_page_without_a_type_is_not_kept_as_a_file_of_unknown_size(reader: Reader) -> None:
    reader.store.check_in("APS_1", b"\x00dwg", file="drawing.dwg", web=("pdf", pdf(["Sheet one"])))
    described = reader.app._search_row
    reader.app._search_row = lambda r: {**described(r), "WebFileSize": ""}
    reader.server.fail("body", path="Rendition=Web", body=b"<!DOCTYPE html><html><title>Sign in</title></html>")
    changes = reader.sync()
    assert "a web page came in place of" in failures(changes)[0].reason
    reader.sync()
    assert reader.texts() == {"APS_1": "Sheet one"}


def test_files_that_look_like_errors_are_files(reader: Reader) -> None:
    reader.store.check_in("APS_1", b'{"LocalData": {"StatusCode": "-1"}}', file="saved reply.txt")
    reader.store.check_in("APS_2", b"<html><body><p>A page of its own</p></body></html>", file="page.html")
    assert not failures(reader.sync())
    assert "StatusCode" in reader.texts()["APS_1"]
    assert reader.texts()["APS_2"] == "A page of its own"


def test_damaged_empty_and_huge_files_cost_themselves_alone(reader: Reader) -> None:
    (a,) = fill(reader, 1)
    reader.store.check_in("APS_bad", b"%PDF-1.4 broken", file="bad.pdf")
    reader.store.check_in("APS_empty", b"")
    reader.store.check_in("APS_huge", b"x" * 65_000_000)
    found = {failure.unit: failure for failure in failures(reader.sync())}
    assert set(found) == {"APS_bad", "APS_empty", "APS_huge"}
    assert all(failure.permanent and failure.remedy for failure in found.values())
    assert not reader.server.asked(f"{FILE}.*APS_huge"), "its size is known before it is fetched"
    assert set(reader.known) == {a}
    assert reader.sync() == [], "only a change of the item can help"


def test_an_info_that_fails_leaves_the_record(reader: Reader) -> None:
    (a,) = fill(reader, 1)
    reader.sync()
    reader.store.update(a, title="Other")
    body = {"LocalData": {"StatusCode": "-1", "StatusMessageKey": f"!csUnableToGetRevInfo2,{a}!csDbUnableToConnect"}}
    reader.server.fail("body", path=INFO, times=-1, body=json.dumps(body).encode())
    (failure,) = failures(reader.sync())
    assert (failure.unit, set(reader.known)) == (a, {a})
    reader.store.delete(a)
    fill(reader, 2)
    reader.store.delete(a)
    (failure,) = failures(reader.sync())[-1:]
    assert "whether it is gone cannot be told" in failure.reason or failure.unit != a
    assert a in reader.known
    reader.server.faults.clear()
    reader.sync()
    assert a not in reader.known


@pytest.mark.parametrize("left_out", [("DOC_INFO", "REVISION_HISTORY"), ("DOC_INFO",), ("ResultSets",)])
def test_an_info_that_describes_no_document_removes_none(reader: Reader, left_out: tuple[str, ...]) -> None:
    (a, b) = fill(reader, 2)
    reader.sync()
    described = reader.app.services["DOC_INFO_BY_NAME"]

    def cut(asked: Mapping[str, str]) -> Response:
        reply = json.loads(described(asked).data)
        for name in left_out:
            reply.pop(name, None)
            reply.get("ResultSets", {}).pop(name, None)
        return Response(json.dumps(reply), mimetype="application/json")

    reader.app.services["DOC_INFO_BY_NAME"] = cut
    reader.store.check_in(a, b"second")
    del reader.store.searchable[b]
    found = {failure.unit: failure for failure in failures(reader.sync())}
    assert all("describes no document" in failure.reason for failure in found.values())
    assert (set(found), set(reader.known)) == ({a, b}, {a, b})
    reader.app.services["DOC_INFO_BY_NAME"] = described
    reader.sync()
    assert reader.texts()[a] == "second"


def test_a_document_out_of_force_is_gone_only_by_its_history(reader: Reader) -> None:
    (a,) = fill(reader, 1)
    fill(reader, 2)
    reader.sync()
    reader.store.expire(a)
    revision = reader.store.contents[a][-1]
    row = {**reader.app._row(revision), "dStatus": "EXPIRED"}
    described = reader.app.services["DOC_INFO_BY_NAME"]
    reader.app.services["DOC_INFO_BY_NAME"] = lambda asked: reader.app._reply({}, {"DOC_INFO": [row]}, asked)
    (failure,) = failures(reader.sync())
    assert "does not tell the revisions" in failure.reason
    assert a in reader.known
    reader.app.services["DOC_INFO_BY_NAME"] = described
    reader.sync()
    assert a not in reader.known


# rights


def test_signing_in_and_what_the_account_may_read(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.app.users = {"robot": ("secret", frozenset(("Public", "Rf")))}
    fill(reader, 2)
    reader.store.check_in("APS_rf", b"cavity", group="Rf")
    reader.store.check_in("APS_hr", b"salaries", group="Staff")
    reader.feed = {"credentials": {"user": "robot", "password": {"env": "ROBOT"}}}
    with pytest.raises(FeedError, match="ROBOT is not set"):
        reader.sync()
    monkeypatch.setenv("ROBOT", "wrong")
    with pytest.raises(RefusedError, match="credentials"):
        reader.sync()
    monkeypatch.setenv("ROBOT", "secret")
    assert not failures(reader.sync())
    assert len(reader.known) == 3
    assert "secret" not in json.dumps(reader.cursor)
    reader.feed = {"credentials": {"user": "robot"}}
    with pytest.raises(FeedError, match="no `password`"):
        reader.sync()
    reader.app.login_page = True
    reader.feed = {}
    with pytest.raises(OutageError, match="a web page \\(Login\\) came"):
        reader.sync()


def test_what_the_account_may_no_longer_read_is_served_no_more(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBOT", "secret")
    reader.app.users = {"robot": ("secret", frozenset(("Public",)))}
    reader.feed = {"credentials": {"user": "robot", "password": {"env": "ROBOT"}}}
    (a, b, c) = fill(reader)
    reader.sync()
    reader.store.update(a, group="Staff")
    reader.sync()
    assert set(reader.known) == {b, c}, "the search leaves it out, the server refuses it"
    reader.store.update(b, group="Staff", indexed=False)
    (failure,) = failures(reader.sync(retry=frozenset((b,))))
    assert (failure.unit, failure.item, failure.permanent) == (b, f"{b} (access)", False)
    assert set(reader.known) == {c}
    reader.store.update(b, group="Public")
    reader.sync()
    assert set(reader.known) == {b, c}


@pytest.mark.parametrize(
    ("group", "account", "wanted"),
    [
        ("Public", "", ("public",)),
        ("Controlled", "", ("ops", "staff")),
        ("Controlled", "rf", ("rf",)),
        ("Controlled", "rf/klystron", ("rf",)),
        ("Controlled", "rfx", ()),
        ("Public", "rf", ()),
        ("Unheard", "", ()),
        ("", "", ()),
        ("", "rf", ()),
    ],
)
def test_labels_by_group_and_account(group: str, account: str, wanted: tuple[str, ...]) -> None:
    rules = {"Public": ["public"], "Controlled": ["staff", "ops"], "Controlled/rf": ["rf"]}
    row = {"dSecurityGroup": group, "dDocAccount": account}
    assert WebCenterOptions(access=rules).labels_of(row, ("facility",)) == wanted
    assert WebCenterOptions().labels_of(row, ("facility",)) == ("facility",)


def test_a_relabelling_is_seen_and_a_blank_label_admits_nobody(reader: Reader) -> None:
    (a,) = fill(reader, 1)
    reader.store.update(a, metadata={"xLabels": "ops; rf"})
    reader.feed = {"options": {"access_field": "xLabels"}}
    reader.sync()
    assert reader.known[a].access == ("ops", "rf")
    reader.store.update(a, metadata={"xLabels": ""})
    reader.sync()
    assert reader.known[a].access == ()
    assert reader.bodies() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queri": "x"}, "options.queri"),
        ({"access": {"Public": ["public"]}, "access_field": "xLabels"}, "either `access` or `access_field`"),
        ({"renditions": []}, "options.renditions"),
    ],
)
def test_options_that_cannot_be_used_say_why(reader: Reader, options: dict[str, Any], said: str) -> None:
    reader.feed = {"options": options}
    with pytest.raises(FeedError, match=said):
        reader.source().check()


def test_an_address_is_needed_and_a_wrong_one_is_told(reader: Reader) -> None:
    fill(reader)
    reader.feed = {"url": f"{reader.server.url}/elsewhere"}
    with pytest.raises(OutageError, match="mend `url`"):
        reader.source().check()
    for address in ("", "ecm.example.org/docs"):
        reader.feed = {"url": address}
        with pytest.raises(FeedError, match=r"`url` is missing or not one of the web: .*, before /idcplg"):
            reader.source().check()
    reader.feed = {"url": f"{reader.server.url}/docs/idcplg/"}
    assert reader.source().check().units == 3


# replies


@pytest.mark.parametrize(
    ("local", "error"),
    [
        ({"StatusCode": "-16"}, GoneError),
        ({"StatusCode": -16}, GoneError),
        ({"StatusCode": "-18", "StatusMessageKey": "!csUnableToGetRevInfo2,X!csUserInsufficientAccess,u"}, DeniedError),
        ({"StatusCode": "-1", "StatusMessageKey": "!csUnableToGetRevInfo2,X!csUserInsufficientAccess,u"}, DeniedError),
        ({"StatusCode": "-20"}, RefusedError),
        ({"StatusCode": "-1", "StatusMessageKey": "!csGetFileUnableToFindRevision,a,A\\!B"}, GoneError),
        ({"StatusCode": "-1", "StatusMessage": "This content item no longer exists."}, GoneError),
        ({"StatusCode": "-1", "StatusMessage": "The table REVISIONS does not exist."}, OutageError),
        ({"StatusCode": "-1", "StatusMessageKey": "!csUnableToGetRevInfo2,X!csDbUnableToConnect"}, OutageError),
        ({"StatusCode": "-64"}, OutageError),
        ({"StatusCode": "soon"}, OutageError),
    ],
)
def test_errors_are_told_apart(local: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(OutageError) as raised:
        read_binder({"LocalData": local}, "here")
    assert type(raised.value) is error


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        ("'{ts' ''yyyy-MM-dd HH:mm:ss{.SSS}[Z]'''}'!tEurope/London", "{ts '2012-07-08 17:36:14.522'}", (16, 36, 14)),
        ("M/d{/yy}{ h:mm[:ss]{ aa}[zzz]}!mAM,PM!tAmerica/Chicago", "7/8/12 5:36 PM", (22, 36, 0)),
        ("d/M{/yy}{ H:mm[:ss]}!tEurope/Berlin", "8/7/12 17:36", (15, 36, 0)),
        ("", "2012-07-08 17:36:14Z", (17, 36, 14)),
        ("M/d{/yy}!tNo/Where", "7/8/12 17:36", (17, 36, 0)),
    ],
)
def test_times_are_read_as_the_reply_says(pattern: str, text: str, wanted: tuple[int, int, int]) -> None:
    moment = Times.of({"blDateFormat": pattern}, UTC, "ymd").moment(text)
    assert moment is not None
    assert moment.replace(microsecond=0) == utc(2012, 7, 8, *wanted)


def test_a_year_of_two_digits_and_what_is_no_time() -> None:
    times = Times.of({"blDateFormat": "M/d/yy"}, UTC, "mdy")
    assert times.moment("1/2/87") == utc(1987, 1, 2)
    assert times.moment("soon") is None
    assert times.stated("soon", UTC) == "soon"


def test_a_listing_that_ends_early_is_done_again() -> None:
    from aps_rag_pipeline.sources.webcenter.binder import Binder
    from aps_rag_pipeline.sources.webcenter.service import Page

    rows = [{"dID": str(number)} for number in range(1, 8)]
    asked: list[int] = []

    def search(first: int) -> Page:
        asked.append(first)
        given = () if len(asked) == 2 else tuple(rows[first - 1 : first + 2])
        return Page(Binder({}), given, first, len(rows))

    assert [row["dID"] for row in list_all(search, "here").rows.values()] == [row["dID"] for row in rows]
    assert asked[:3] == [1, 3, 1]
