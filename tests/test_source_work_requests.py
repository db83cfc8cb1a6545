"""Rows of work-request tables as records: ids, times, texts, typed fields, links, labels, and what can go wrong."""

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.records import Link, Record
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Change, Complete, Failure, FeedError, Ignored, Source, SourceContext, Upsert


class NoBlobs:
    def put(self, data: bytes) -> str:
        raise AssertionError("a table has no attachments")


def source(location: Path, **feed: Any) -> Source:
    context = SourceContext(ZoneInfo("America/Chicago"), NoBlobs(), Limits())
    return open_source(Feed(name="wr", source="work_requests", location=location, **feed), context)


Read = Callable[..., list[Change]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def _read(content: str | bytes, name: str = "wr.csv", **feed: Any) -> list[Change]:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return list(source(tmp_path, **feed).changes(None))

    return _read


def records(changes: list[Change]) -> list[Record]:
    return [change.record for change in changes if isinstance(change, Upsert)]


def failures(changes: list[Change]) -> list[Failure]:
    return [change for change in changes if isinstance(change, Failure)]


WHOLE = (
    "ID,Title,Description,Status,Priority,System,Location,Requester,Assignee,Created,Updated,Completed,Resolution,"
    "Related,Cost,Access\n"
    '20417,Replace HVPS fuse,"Klystron 3 HVPS tripped.\nSee log 48211, PV S-DCCT:CurrentM.",Closed,2,RF,S35,J. Doe,'
    'K. Roe,03/04/2025 12:00,2025-03-05,3/6/2025 4:30 PM,Fuse replaced.,"20311; BELY:48000, DOWN:2025-0412",'
    '12.50,"ops, rf"\n'
)


def test_a_whole_row(read: Read) -> None:
    changes = read(WHOLE, url_template="https://wr.example/{id}")
    (record,) = records(changes)
    assert Complete("wr.csv") in changes
    assert not failures(changes)
    assert (record.id, record.title, record.author) == ("20417", "Replace HVPS fuse", "J. Doe")
    assert record.created_at == datetime(2025, 3, 4, 18, tzinfo=UTC)
    assert record.modified_at == datetime(2025, 3, 5, 6, tzinfo=UTC)
    assert record.url == "https://wr.example/20417"
    assert record.access == ("ops", "rf")
    assert [(part.title, part.text.split("\n")[0]) for part in record.parts] == [
        ("Description", "Klystron 3 HVPS tripped."),
        ("Resolution", "Fuse replaced."),
        ("Details", "Created: 03/04/2025 12:00"),
    ]
    assert "System: RF" in record.parts[-1].text
    assert "ops" not in record.parts[-1].text
    expected = {
        "status": "Closed",
        "priority": 2,
        "system": "RF",
        "location": "S35",
        "requester": "J. Doe",
        "assignee": "K. Roe",
        "completed": "2025-03-06T22:30:00Z",
        "related": ["20311", "BELY:48000", "DOWN:2025-0412"],
        "cost": 12.5,
    }
    assert record.fields == expected
    assert set(record.links) == {
        Link("work_request", "WRQ:20311"),
        Link("log_entry", "BELY:48000"),
        Link("downtime", "DOWN:2025-0412"),
        Link("log_entry", "BELY:48211"),
        Link("process_variable", "S-DCCT:CurrentM"),
    }


def test_a_column_map_and_what_it_leaves(read: Read) -> None:
    (record,) = records(
        read(
            "WR No;Kurztext;Erfasst am;Größe;Prüfdatum\n7;Pumpe undicht;04.03.2025 08:15;DN 40;05.03.2025\n",
            columns={"id": "WR No", "title": "Kurztext", "created": "erfasst_am"},
            date_order="dmy",
        )
    )
    assert record.title == "Pumpe undicht"
    assert record.created_at == datetime(2025, 3, 4, 14, 15, tzinfo=UTC)
    assert record.fields == {"größe": "DN 40", "prüfdatum": "05.03.2025"}


def test_ids_wrong_twice_or_missing_cost_their_row_only(read: Read) -> None:
    changes = read(
        "id,title,created\n1,a,2025-01-01\n,no id,2025-01-02\n1,other,2025-01-03\n1,a,2025-01-01\n"
        f"{'x' * 300},long,2025-01-04\n2,b,sometime\nn/a,none,\n"
    )
    assert [(r.id, r.title) for r in records(changes)] == [("1", "a"), ("2", "b")]
    blank, twice, long, none = failures(changes)
    assert (blank.place, blank.reason) == ("wr.csv:3", 'no id: the column "id" is blank')
    assert twice.place == "wr.csv:4"
    assert "wr.csv:2" in twice.reason
    assert "300 characters" in long.reason
    assert none.place == "wr.csv:8"
    assert all(f.item != f.unit for f in failures(changes))
    assert Ignored("wr.csv:5", "the same as wr.csv:2") in changes
    assert Complete("wr.csv") in changes


def test_a_date_that_cannot_be_read_keeps_record_and_text(read: Read) -> None:
    first, second = records(read("id,title,created,completed\n1,a,last week,13/13/2024\n2,b,,\n"))
    assert (first.created_at, first.fields) == (None, {"created_raw": "last week", "completed_raw": "13/13/2024"})
    assert (second.created_at, second.fields) == (None, {})


@pytest.mark.parametrize(
    ("cell", "access"), [("ops", ("ops",)), ("ops; rf", ("ops", "rf")), ("", ()), (" , ", ()), ("public", ("public",))]
)
def test_a_row_with_labels_of_its_own(read: Read, cell: str, access: tuple[str, ...]) -> None:
    (record,) = records(read(f'id,title,access\n1,a,"{cell}"\n'))
    assert record.access == access


def test_without_a_label_column_the_feed_decides(read: Read) -> None:
    (record,) = records(read("id,title\n1,a\n", access=("staff",)))
    assert record.access == ("staff",)


def test_markup_is_taken_off_and_long_titles_are_cut(read: Read) -> None:
    words = "vacuum pump " * 40
    first, second = records(
        read(f'id,title,description\n1,"<b>Leak</b><br/>at &lt;S12&gt;","<p>One</p><p>Two</p>"\n2,{words},"a < b"\n')
    )
    assert first.title == "Leak"
    assert [(p.title, p.text) for p in first.parts] == [("Summary", "at <S12>"), ("Description", "One\n\nTwo")]
    assert len(second.title) <= 161
    assert second.title.endswith("…")
    assert [(p.title, p.text) for p in second.parts] == [("Summary", words.strip()), ("Description", "a < b")]


def test_long_text_of_an_unmapped_column_is_a_part(read: Read) -> None:
    (record,) = records(read(f"id,title,Remarks\n1,a,{'very hot ' * 60}\n"))
    assert [(p.title, len(p.text)) for p in record.parts] == [("Remarks", 539)]
    assert record.fields == {}


def test_an_inserted_row_changes_no_other_record(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, text in ((before, "id,title\n1,a\n2,b\n"), (after, "id,title\n0,new\n1,a\n2,b\n")):
        folder.mkdir()
        (folder / "wr.csv").write_text(text)
    assert records(list(source(after).changes(None)))[1:] == records(list(source(before).changes(None)))


def test_a_wrong_map_fails_the_file_and_the_check_says_it(tmp_path: Path, read: Read) -> None:
    changes = read("Number,Title\n1,a\n", columns={"id": "WR No"})
    (failure,) = failures(changes)
    assert failure.item == failure.unit == "wr.csv"
    assert 'wr.csv: no column headed "WR No" (for id); the headings are "Number", "Title"' in failure.reason
    assert Complete("wr.csv") not in changes
    with pytest.raises(FeedError, match=r'wr.csv: no column headed "WR No"'):
        source(tmp_path, columns={"id": "WR No"}).check()
    assert source(tmp_path).check().units == 1


def test_check_names_the_files_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,title\n1,a\n")
    (tmp_path / "b.csv").write_text("x,y\n1,a\n")
    assert '1 of 2 have no such table: b.csv: no column headed "id"' in source(tmp_path).check().detail


def test_one_bad_file_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "ä, 1.csv").write_bytes("\ufeffid,title\r\n1,Müller\r\n".encode())
    (tmp_path / "bad.xlsx").write_bytes(b"PK\x03\x04junk")
    (tmp_path / "empty.csv").write_bytes(b"")
    book = openpyxl.Workbook()
    for row in (["WR"], ["id", "title", "created"], [2, "b", datetime(2025, 3, 4, 12)]):
        book.active.append(row)
    book.save(tmp_path / "ok.xlsx")
    changes = list(source(tmp_path).changes(None))
    assert [(r.id, r.title) for r in records(changes)] == [("2", "b"), ("1", "Müller")]
    assert records(changes)[0].created_at == datetime(2025, 3, 4, 18, tzinfo=UTC)
    assert [f.unit for f in failures(changes)] == ["bad.xlsx", "empty.csv"]


_words = st.text(st.characters(categories=("L", "N", "P"), exclude_characters="<>&"), min_size=1, max_size=12)
_row = st.fixed_dictionaries({"title": _words, "description": _words, "status": _words, "note": _words})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(_row, min_size=1, max_size=6))
def test_round_trip(read: Read, contents: list[dict[str, str]]) -> None:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ["id", "title", "description", "status", "note"])
    writer.writeheader()
    writer.writerows({"id": f"WR-{number}", **row} for number, row in enumerate(contents))
    found = records(read(buffer.getvalue()))
    assert [r.id for r in found] == [f"WR-{number}" for number in range(len(contents))]
    for record, row in zip(found, contents, strict=True):
        assert record.title == row["title"]
        assert record.parts[0].text == row["description"]
        assert str(record.fields["status"]) == row["status"]
        assert str(record.fields["note"]) == row["note"]


def test_real_work_orders(shared: Path) -> None:
    columns = {
        "id": "id",
        "title": "OriginalShorttext",
        "created": "BscStartDate",
        "component": "Part",
        "system": "MajorSystem",
    }
    changes = list(source(shared / "work_requests" / "maintkg", columns=columns).changes(None))
    found = records(changes)
    assert len(found) == 5485
    assert not failures(changes)
    first = found[0]
    assert (first.id, first.title) == ("0", "BUCKET WON'T OPEN")
    assert first.created_at == datetime(2004, 7, 1, 5, tzinfo=UTC)
    assert first.fields["system"] == "Bucket"
    assert first.fields["cost"] == 183.05
    assert all(record.created_at for record in found)


def test_annotated_texts_without_ids_are_named_failures(shared: Path) -> None:
    changes = list(source(shared / "work_requests" / "maintie", include=("*.json",)).changes(None))
    assert [f.item for f in failures(changes)] == ["gold_release.json", "scheme.json"]
    assert '"text", "tokens", "entities", "relations"' in failures(changes)[0].reason
