"""Rows of downtime tables as records: start, end and duration, related records, and real event reports."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import openpyxl
import pytest

from aps_rag_pipeline.records import Link, Record
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Change, Complete, Failure, Ignored, SourceContext, Upsert


class NoBlobs:
    def put(self, data: bytes) -> str:
        raise AssertionError("a table has no attachments")


def changes(location: Path, **feed: Any) -> list[Change]:
    context = SourceContext(ZoneInfo("America/Chicago"), NoBlobs(), Limits())
    return list(open_source(Feed(name="down", source="downtime", location=location, **feed), context).changes(None))


def records(found: list[Change]) -> list[Record]:
    return [change.record for change in found if isinstance(change, Upsert)]


def read(folder: Path, text: str, **feed: Any) -> list[Record]:
    (folder / "down.csv").write_text(text, encoding="utf-8")
    return records(changes(folder, **feed))


def test_a_whole_event(tmp_path: Path) -> None:
    (record,) = read(
        tmp_path,
        "ID,Title,Description,System,Cause,Start,End,Duration,Beam Lost,Reporter,Created,Log Entries,"
        "Work Requests,PVs\n"
        "2025-0412,RF trip,Stored beam lost.,RF,HVPS fuse,2025-03-04 12:00,2025-03-04 13:30,1.5 h,Yes,J. Doe,"
        '2025-03-04 14:00,"48211, 48212",20417;20418,S35:KICKER:HVPS:VoltageM S-DCCT:CurrentM\n',
    )
    assert (record.id, record.title, record.author) == ("2025-0412", "RF trip", "J. Doe")
    assert record.created_at == datetime(2025, 3, 4, 20, tzinfo=UTC)
    assert record.fields == {
        "start": "2025-03-04T18:00:00Z",
        "end": "2025-03-04T19:30:00Z",
        "duration_s": 5400.0,
        "system": "RF",
        "cause": "HVPS fuse",
        "beam_lost": True,
        "reporter": "J. Doe",
        "log_entries": ["48211", "48212"],
        "work_requests": ["20417", "20418"],
        "pvs": ["S35:KICKER:HVPS:VoltageM", "S-DCCT:CurrentM"],
    }
    assert set(record.links) == {
        Link("log_entry", "BELY:48211"),
        Link("log_entry", "BELY:48212"),
        Link("work_request", "WRQ:20417"),
        Link("work_request", "WRQ:20418"),
        Link("process_variable", "S35:KICKER:HVPS:VoltageM"),
        Link("process_variable", "S-DCCT:CurrentM"),
    }
    assert record.parts[0].text == "Stored beam lost."
    assert "Cause: HVPS fuse" in record.parts[-1].text


@pytest.mark.parametrize(
    ("heading", "cell", "seconds", "raw"),
    [
        ("Duration", "1:30", 5400.0, None),
        ("Duration", "PT1H30M", 5400.0, None),
        ("Duration (min)", "90", 5400.0, None),
        ("duration_h", "1.5", 5400.0, None),
        ("Duration", "90", 3600.0, "90"),  # without a unit it says nothing; start and end do
        ("Duration", "", 3600.0, None),
        ("Duration", "a while", 3600.0, "a while"),
    ],
)
def test_durations(tmp_path: Path, heading: str, cell: str, seconds: float, raw: str | None) -> None:
    text = f"id,start,end,{heading}\n1,2025-03-04 12:00,2025-03-04 13:00,{cell}\n"
    (record,) = read(tmp_path, text, columns={"duration": heading})
    assert record.fields["duration_s"] == seconds
    assert record.fields.get("duration_raw") == raw


def test_no_duration_is_made_up(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "id,start,end\n1,2025-03-04,2025-03-05\n2,2025-03-04 12:00,2025-03-04 11:00\n3,2025-03-04 12:00,\n"
        "4,2025-03-09 01:30,2025-03-09 03:30\n",
    )
    assert [record.fields.get("duration_s") for record in found] == [None, None, None, 3600.0]  # 4: clocks went forward


def test_the_unit_of_bare_durations_can_be_set(tmp_path: Path) -> None:
    (record,) = read(tmp_path, "id,duration\n1,90\n", options={"duration_unit": "min"})
    assert record.fields["duration_s"] == 5400.0


def test_an_event_without_entry_time_is_dated_by_its_start(tmp_path: Path) -> None:
    (record,) = read(tmp_path, "id,title,start,beam_lost\n1,a,03/04/2025 12:00,102.5\n")
    assert record.created_at == datetime(2025, 3, 4, 18, tzinfo=UTC)
    assert record.fields["beam_lost"] == 102.5


def test_typed_cells_of_a_workbook(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "2025"
    for row in (
        ["Downtime 2025"],
        ["Event ID", "Summary", "Start", "End", "Duration", "Inspected"],
        [412, "RF", datetime(2025, 3, 4), datetime(2025, 3, 4, 1, 30), None, date(2025, 3, 7)],
        [413, "Vacuum", datetime(2025, 3, 5, 12), None, timedelta(hours=30), None],
    ):
        sheet.append(row)
    book.save(tmp_path / "d.xlsx")
    found = changes(tmp_path)
    first, second = records(found)
    assert first.fields == {
        "start": "2025-03-04T06:00:00Z",
        "end": "2025-03-04T07:30:00Z",
        "duration_s": 5400.0,
        "inspected": "2025-03-07",
    }
    assert second.fields["duration_s"] == 30 * 3600
    assert [change.place for change in found if isinstance(change, Upsert)] == ["d.xlsx:2025:3", "d.xlsx:2025:4"]


LER = {"id": "LER Number", "title": "Title", "location": "Plant Name", "start": "Event Date", "created": "Report Date"}


@pytest.fixture(scope="module")
def event_reports(shared: Path) -> list[Change]:
    return changes(shared / "downtime" / "nrc", columns=LER)


def test_real_event_reports(event_reports: list[Change]) -> None:
    found = records(event_reports)
    assert len(found) == 1742
    first = found[0]
    assert (first.id, first.title) == (
        "2192003001",
        "License Violation Due to Security Officers Inattentive to Duty",
    )
    assert first.created_at == datetime(2003, 5, 12, 5, tzinfo=UTC)
    assert first.fields == {
        "start": "2003-04-15T05:00:00Z",
        "location": "Oyster Creek",
        "accession": "ML03140055",
    }
    assert first.parts[0].text.startswith("Abstract: On April 15, 2003, at approximately 4:50 A.M.")
    assert not any("<strong>" in part.text or "&nbsp;" in part.text for record in found for part in record.parts)


def test_every_real_file_ends_as_records_or_as_a_named_failure(event_reports: list[Change]) -> None:
    complete = {change.unit for change in event_reports if isinstance(change, Complete)}
    failed = {
        change.unit: change for change in event_reports if isinstance(change, Failure) and change.item == change.unit
    }
    assert complete == {f"LERSearchResults{year}.xlsx" for year in (2003, 2008, 2011, 2014, 2017, 2018)}
    assert failed.keys() == {"SCRAM.xlsx", "generic-issues-dataset.xls", "reactors-operating.xlsx"}
    assert '"En No."' in failed["SCRAM.xlsx"].reason
    twice = [change for change in event_reports if isinstance(change, Failure) and change.item != change.unit]
    assert {change.item for change in twice} == {
        "LERSearchResults2008.xlsx:Sheet1:118",
        "LERSearchResults2014.xlsx:Sheet1:149",
        "LERSearchResults2014.xlsx:Sheet1:276",
    }
    blank = [change for change in event_reports if isinstance(change, Ignored)]
    other_kinds = {change.place for change in blank if change.reason.startswith("not a kind of file")}
    assert other_kinds == {"README.md", "SOURCE.txt"}
    assert {change.reason for change in blank if change.place not in other_kinds} == {"a blank sheet"}


def test_a_real_old_workbook_with_its_own_map(shared: Path) -> None:
    found = records(
        changes(
            shared / "downtime" / "nrc",
            include=("*.xls",),
            columns={"id": "Issue Number", "title": "Issue Title", "start": "Date of Identification"},
        )
    )
    assert len(found) == 854
    assert found[0].fields["start"] == "1979-10-30T06:00:00Z"
    assert found[0].fields["date_of_resolution"] == "1997-12-31"
    assert (
        Link(
            "url",
            "http://www.nrc.gov/reading-rm/doc-collections/nuregs/staff/sr0933/sec1/1-a1r3.html",
            "Issue Description",
        )
        in found[0].links
    )
