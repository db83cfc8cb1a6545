"""Log books: what BELY exports say, the other forms, and what is wrong with damaged ones."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.records import Link, Record, content_hash
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources.base import Change, Complete, Cursor, Failure, FeedError, Ignored, SourceContext, Upsert
from aps_rag_pipeline.sources.bely import FORMS
from aps_rag_pipeline.sources.logbooks.events import patched
from aps_rag_pipeline.stores.blobs import BlobStore

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


class Book:
    """A feed's folder under a test's own folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "feed"
        self.folder.mkdir()
        self.blobs = BlobStore(home / "blobs")

    def put(self, name: str, content: Any) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content if isinstance(content, str) else json.dumps(content)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def source(self, **feed: Any) -> Any:
        made = Feed(name="log", source="bely", **{"location": self.folder, **feed})
        return FORMS["files"](made, SourceContext(ZoneInfo("America/Chicago"), self.blobs, Limits()))

    def changes(self, cursor: Any = None, **feed: Any) -> list[Change]:
        return list(self.source(**feed).changes(cursor))

    def records(self, **feed: Any) -> dict[str, Record]:
        return {change.record.id: change.record for change in self.changes(**feed) if isinstance(change, Upsert)}


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


def entry(log_id: int | None, text: str = "beam lost", **more: Any) -> dict[str, Any]:
    return {
        "itemId": 105,
        "logId": log_id,
        "logEntry": text,
        "enteredOnDateTime": "2025-11-21T16:38:00.392+00:00",
        "enteredByUsername": "kim",
        "lastModifiedOnDateTime": "2025-11-21T16:38:00.000+00:00",
        "lastModifiedByUsername": "kim",
        "logReplies": [],
        "logReactions": [],
        **more,
    }


def bundle(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    document = {
        "id": 105,
        "name": "[2025/11/21/2] Day shift",
        "description": "what happened",
        "entityTypeList": [{"id": 7, "name": "studies-sr", "displayName": "SR"}],
        "itemTypeList": [{"id": 1, "name": "RF"}],
    }
    return {"document": document, "entries": list(entries), **more}


def of(kind: type, changes: list[Change]) -> list[Any]:
    return [change for change in changes if isinstance(change, kind)]


def test_an_entry_with_replies_is_one_record(book: Book) -> None:
    late = entry(269, "later", enteredOnDateTime="2025-11-21T18:00:00.000+00:00", parentLogId=267)
    early = entry(268, "**found** it", enteredOnDateTime="2025-11-21T17:00:00.000+00:00", enteredByUsername="lee")
    early["logReplies"] = [entry(270, "thanks", enteredOnDateTime="2025-11-21T17:30:00.000+00:00")]
    root = entry(267, "# Klystron trip\r\n\r\nsecond line\r\n", logReplies=[late, early])
    book.put("a.json", bundle(root, sections=[{"id": 9, "name": "RF", "entries": [entry(300, "in a section")]}]))
    records = book.records(url_template="https://log/{document}/{id}")
    assert records.keys() == {"267", "300"}
    record = records["267"]
    assert record.title == "Klystron trip"
    assert [(part.kind, part.locator, part.text) for part in record.parts] == [
        ("prose", "log 267", "# Klystron trip\n\nsecond line"),
        ("transcript", "log 268", "lee, 2025-11-21 11:00: **found** it"),
        ("transcript", "log 270", "kim, 2025-11-21 11:30: thanks"),
        ("transcript", "log 269", "kim, 2025-11-21 12:00: later"),
    ]
    assert record.fields == {
        "logbook": ["SR"],
        "system": ["RF"],
        "document": "[2025/11/21/2] Day shift",
        "document_id": "105",
        "document_description": "what happened",
        "reply_count": 3,
    }
    assert record.created_at is not None
    assert record.created_at.isoformat() == "2025-11-21T16:38:00+00:00"  # whole seconds: fractions are lost on reload
    assert record.url == "https://log/105/267"
    assert records["300"].fields["section"] == "RF"


def test_reactions_and_saving_again_change_no_content_and_an_edit_does(book: Book) -> None:
    book.put("a.json", [entry(1)])
    before = book.records()["1"]
    saved = {"lastModifiedOnDateTime": "2025-11-22T10:00:00.000+00:00", "logReactions": [{"id": 1, "username": "lee"}]}
    book.put("a.json", [entry(1, **saved)])
    again = book.records()["1"]
    assert content_hash(again) == content_hash(before)
    assert again.modified_at is not None
    assert again.modified_at.day == 22
    book.put("a.json", [entry(1, "beam lost twice", lastModifiedByUsername="lee", **saved)])
    edited = book.records()["1"]
    assert content_hash(edited) != content_hash(before)
    assert edited.fields["edited_by"] == "lee"


def test_replies_beside_their_parent_join_it_and_orphans_say_whom_they_answer(book: Book) -> None:
    rows = [entry(2, "reply", parentLogId=1), entry(1, "root"), entry(5, "orphan", parentLogId=4)]
    rows += [entry(6, "ring", parentLogId=7), entry(7, "ring too", parentLogId=6)]
    book.put("rows.jsonl", "\n".join(json.dumps(row) for row in rows))
    records = book.records()
    assert records.keys() == {"1", "5", "6", "7"}
    assert [part.locator for part in records["1"].parts] == ["log 1", "log 2"]
    assert Link("reply_to", "4") in records["5"].links


def test_attachments_under_both_addresses_and_external_pictures(book: Book) -> None:
    text = (
        "see ![scope](/log/attachments/scope.png) and\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "[log sheet](https://bely/api/Downloads/Attachments/sheet%201.pdf/scaled) ![web](http://x.org/y.png)"
    )
    book.put("deep/a.json", [entry(1, text)])
    book.put("deep/attachments/scope.png.original", PNG)
    book.put("attachments/sheet 1.pdf", b"%PDF-1.4 x")
    record = book.records()["1"]
    assert [(a.name, a.media_type, a.part) for a in record.attachments] == [
        ("scope.png", "image/png", 0),
        ("sheet 1.pdf", "application/pdf", 2),
    ]
    assert book.blobs.get(record.attachments[0].sha256) == PNG
    assert [part.kind for part in record.parts] == ["prose", "table", "prose"]
    assert record.parts[0].text == "see [picture: scope] and"
    assert record.parts[2].text == "[file: log sheet] web (http://x.org/y.png)"
    assert [link.target for link in record.links] == ["http://x.org/y.png"]


def test_a_missing_attachment_is_remembered_and_the_entry_still_read(book: Book) -> None:
    book.put(
        "a.json", [entry(1, "![s](/log/attachments/gone.png)"), entry(2, "![s](/log/attachments/..%2f..%2fsecret)")]
    )
    book.home.joinpath("secret").write_text("no")
    changes = book.changes()
    assert len(of(Upsert, changes)) == 2
    failures = of(Failure, changes)
    assert [failure.record_id for failure in failures] == ["1", "2"]
    assert "attachments/gone.png" in failures[0].remedy
    assert not failures[0].permanent
    assert of(Complete, changes)
    book.put("attachments/gone.png", PNG)
    retried = list(book.source().changes(of(Cursor, changes)[0].value, frozenset(("a.json",))))
    assert of(Upsert, retried)[0].record.attachments[0].name == "gone.png"


def test_links_labels_and_event_times_as_stated(book: Book) -> None:
    text = "Late entry for 23:50: S-DCCT:CurrentM fell, see WRQ 20417, log 1234 and BELY:1."
    book.put(
        "a.jsonl",
        "\n".join(
            json.dumps(row)
            for row in (
                bundle(entry(1, text), access=["ops", "rf"]),
                bundle(entry(2, "event time: 2025-11-20 08:15", access=""), access=["ops"]),
                bundle(entry(3, "x", eventDateTime="not a time"), access=[None]),
                [entry(4, "y", enteredOnDateTime="yesterday")],
            )
        ),
    )
    records = book.records(access=("staff",))
    assert [records[key].access for key in "1234"] == [("ops", "rf"), (), (), ("staff",)]
    targets = {(link.kind, link.target) for link in records["1"].links}
    assert targets == {
        ("work_request", "WRQ:20417"),
        ("log_entry", "BELY:1234"),
        ("process_variable", "S-DCCT:CurrentM"),
    }
    assert records["1"].fields["event_time"] == "2025-11-21T05:50:00Z"  # the evening before, in the feed's zone
    assert records["2"].fields["event_time"] == "2025-11-20T14:15:00Z"
    assert records["3"].fields["event_time_raw"] == "not a time"
    assert records["4"].created_at is None
    assert records["4"].fields["created_raw"] == "yesterday"


def test_what_is_no_entry_is_counted_or_named(book: Book) -> None:
    book.put(
        "a.json",
        [
            bundle(),
            bundle(entry(None, "no id"), entry(3, "User: logr | Created: doc [Item Id: 78]"), entry(4, " \r\n")),
            {"documentResults": [], "logEntryResults": [{"objectId": 1}]},
            {"id": 1, "name": "RF", "domain": {}},
            entry(5),
            entry(5),
            entry(5, "another text"),
        ],
    )
    changes = book.changes()
    assert [upsert.record.id for upsert in of(Upsert, changes)] == ["5"]
    assert Counter(ignored.reason.split(" (")[0] for ignored in of(Ignored, changes)) == {
        "a log document without entries": 1,
        "an audit line of the server": 1,
        "a log entry without text, replies or files": 1,
        "a search result, which holds matching lines only": 1,
        "the same entry as at a.json: item 5": 1,
    }
    failures = of(Failure, changes)
    assert [failure.place for failure in failures] == ["a.json: item 2: entry 1", "a.json: item 4", "a.json: item 7"]
    assert "keys: domain, id, name" in failures[1].reason
    assert "a.json: item 5" in failures[2].reason


@pytest.mark.parametrize(
    ("content", "reason", "permanent"),
    [
        (b"", "empty", True),
        (b"<!doctype html><title>Sign in</title>", "HTML", True),
        (b'{"document": {"id": 1}, "entries": [{"logId": 1, "logEn', "cut off", False),
        (b'{"simpleName": "X", "message": "boom", "exception": "stack"}', "boom", True),
        (b"[" * 100_000, "could not be parsed", True),
        (b"\xff\xfe\x00\x01not json", "JSON", True),
    ],
)
def test_a_damaged_file_is_one_failure_and_removes_nothing(
    book: Book, content: bytes, reason: str, permanent: bool
) -> None:
    book.put("bad.json", content)
    book.put("good.json", [entry(1)])
    changes = book.changes()
    (failure,) = of(Failure, changes)
    assert failure.item == failure.unit == "bad.json"
    assert reason in failure.reason
    assert failure.permanent is permanent
    assert [change.unit for change in of(Complete, changes)] == ["good.json"]


def test_lines_that_are_cut_off_are_named_and_the_others_read(book: Book) -> None:
    lines = [json.dumps([entry(number)]) for number in range(1, 4)]
    book.put("a.jsonl", "\n".join([*lines, '{"document": {"id"']))
    changes = book.changes()
    assert len(of(Upsert, changes)) == 3
    assert "line 4" in of(Failure, changes)[0].reason
    assert not of(Complete, changes)  # what the broken line held may not be taken for removed


def test_only_what_moved_is_read_and_a_file_that_is_gone_is_complete(book: Book) -> None:
    book.put("a.json", [entry(1)])
    path = book.put("b.json", [entry(2)])
    first = book.changes()
    cursor = of(Cursor, first)[0].value
    assert [type(change) for change in book.changes(cursor)] == [Cursor]
    path.unlink()
    assert [change.unit for change in of(Complete, book.changes(cursor))] == ["b.json"]


def test_an_unknown_dialect_is_said_before_anything_is_read(book: Book) -> None:
    book.put("a.json", [entry(1)])
    assert book.source().check().units == 1
    with pytest.raises(FeedError, match="can be one of bely"):
        book.source(options={"dialect": "docuwiki"}).check()
    with pytest.raises(FeedError, match="can be one of bely"):
        book.changes(options={"dialect": "docuwiki"})


def test_the_configured_dialect_wins(book: Book) -> None:
    book.put("a.json", [{"id": 1, "subject": "s", "details": "d", "text": "t", "timestamp": "1704067200"}])
    assert book.records()["1"].title == "s"
    assert book.records(options={"dialect": "generic"})["1"].parts[0].text == "t"


def test_a_change_told_as_lines_is_applied_or_refused() -> None:
    assert patched("a\nb\nc", "- b\n+ B\r\n+ and more\r\n") == "a\nB\nand more\nc"
    assert patched("a\nb", "- x\n+ y") is None
    assert patched(None, "- x\n+ y") is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["document", "entries", "sections", "logId", "logEntry", "logReplies", "id", "text", "access"]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=80, deadline=None)
def test_no_json_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    book = Book(tmp_path_factory.mktemp("any"))
    book.put("a.json", json.dumps(value))
    assert not [failure for failure in of(Failure, book.changes()) if "could not be parsed" in failure.reason]


# real files


def test_the_event_capture_leaves_one_thread(book: Book, shared: Path) -> None:
    changes = book.changes(location=shared / "bely" / "mqtt", include=("sample-*",))
    (upsert,) = of(Upsert, changes)
    assert [part.text for part in upsert.record.parts] == [
        "New Log Entry Added\n\nSame Entry Updated",
        "logr, 2025-11-21 10:38: Reply Added\n\nReply Modified",
    ]
    assert upsert.record.fields["document"] == "[2025/11/21/2] New Document"
    assert len(of(Ignored, changes)) == 15
    assert not of(Failure, changes)


def test_the_test_database_gives_its_entries_without_its_audit_lines(book: Book, shared: Path) -> None:
    changes = book.changes(location=shared / "bely" / "sql")
    records = {upsert.record.id: upsert.record for upsert in of(Upsert, changes)}
    assert records.keys() == {"10", "13", "14", "15", "16", "19", "22", "27", "30", "31"}
    assert records["16"].parts[0].text == "How \n\nAbout \n\nMultiple \n\nLines"
    assert records["22"].fields == {
        "logbook": ["Template"],
        "document": "Test Template Sections + Copy",
        "document_id": "78",
        "section": "Section 3",
    }
    assert [part.locator for part in records["27"].parts] == ["log 27", "log 28", "log 29"]
    assert Counter(i.reason for i in of(Ignored, changes))["an audit line of the server"] == 8
    assert not of(Failure, changes)
    assert "nQs4$" not in json.dumps(
        [str(record) for record in records.values()]
    )  # password hashes stay where they are


def test_a_dump_that_is_cut_off_fails_as_a_whole(book: Book) -> None:
    book.put("log.sql", "INSERT INTO `log` (`id`,`text`) VALUES (1,'it''s \\'so\\'; (really)'),(2,'b');")
    assert {r.parts[0].text for r in book.records().values()} == {"it's 'so'; (really)", "b"}
    book.put("more.sql", "INSERT INTO `log` VALUES (3,'c")
    changes = book.changes()
    assert "more.sql" in of(Failure, changes)[0].reason
    assert not of(Complete, changes)


def test_other_facilities_entries_are_read(book: Book, shared: Path) -> None:
    changes = book.changes(location=shared / "logbook" / "osprey")
    by_place = {upsert.place: upsert.record for upsert in of(Upsert, changes)}
    assert len(by_place) == 102
    assert [failure.record_id for failure in of(Failure, changes)] == ["10001", "10005", "10008", "10012", "10012"]
    fixtures = "tests/fixtures/ariel"
    als = by_place[f"{fixtures}/sample_als_entries.jsonl: line 3"]
    assert als.title == "Undulator temperature anomaly"
    assert als.fields["tag"] == "LOTO-2024-001"
    assert Link("log_entry", "BELY:10001") in als.links
    ornl = by_place[f"{fixtures}/sample_ornl_entries.json: item 4"]
    assert str(ornl.created_at) == "2024-01-01 23:00:00+00:00"
    assert ornl.fields["event_time"] == "2024-01-01T21:00:00Z"
    jlab = by_place[f"{fixtures}/sample_jlab_entries.json: item 2"]
    assert (jlab.id, jlab.author, jlab.fields["logbook"]) == ("J20002", "operator2", ["CEBAF Operations"])
    assert str(jlab.created_at) == "2024-01-01 10:30:00+00:00"


def test_the_voice_log_is_a_record_a_page_with_real_times(book: Book, shared: Path) -> None:
    changes = book.changes(location=shared / "logbook" / "spacelog", include=("TEC", "MEDIA", "_meta"))
    records = {upsert.record.id: upsert.record for upsert in of(Upsert, changes)}
    assert len(records) == 756
    assert not of(Failure, changes)
    assert [ignored.reason for ignored in of(Ignored, changes)] == ["it describes the transcripts beside it"]
    spoken = [r for r in records.values() if any("Houston, we've had a problem" in part.text for part in r.parts)]
    assert [r.fields["section"] for r in spoken] == ["To the Moon"]
    assert str(spoken[0].created_at)[:13] == "1970-04-14 03"  # 55 h 55 min after the launch
    first = records["a13/transcripts/TEC/page-8"]
    assert first.parts[0].locator == "-00:00:00:10"
    assert "CMP: Okay. P11, Jim." in [part.text for part in first.parts]
    assert sum(len(r.parts) for r in records.values()) > 11_000
