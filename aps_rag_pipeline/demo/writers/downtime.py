"""Downtime records: one workbook a year, times as cells with a date format, as a reliability group keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aps_rag_pipeline.demo.facility import at
from aps_rag_pipeline.demo.items import Outage
from aps_rag_pipeline.demo.writers.common import freeze_office_file, label_text

FOLDER = "downtime"
COLUMNS = {
    "id": "Event", "title": "Summary", "description": "Narrative", "system": "System Charged", "cause": "Cause Code",
    "component": "Device", "location": "Location", "start": "Down At", "end": "Up At", "beam_lost": "Beam Lost",
    "reporter": "Reported By", "created": "Entered", "updated": "Revised", "log_entries": "Log Entries",
    "work_requests": "Work Requests", "pvs": "Signals", "access": "Visibility",
}  # fmt: skip
SHEET = "Events"


def file_name(outage: Outage) -> str:
    return f"{FOLDER}/downtime_{at(outage.minute).year}.xlsx"


def write(feeds: Path, outages: Iterable[Outage]) -> int:
    from openpyxl import Workbook

    (feeds / FOLDER).mkdir(parents=True, exist_ok=True)
    count = 0
    books: dict[str, Any] = {}
    for outage in outages:
        name = file_name(outage)
        if name not in books:
            books[name] = Workbook(write_only=True)
            books[name].create_sheet(SHEET).append(list(COLUMNS.values()))
        books[name][SHEET].append(row(outage))
        count += 1
    for name, book in books.items():
        book.save(feeds / name)
        freeze_office_file(feeds / name, 0)
    return count


def row(outage: Outage) -> list[object]:
    # Spreadsheets have no zones: the cells hold the facility's wall clock.
    start, end, entered = (
        at(m).replace(tzinfo=None) for m in (outage.minute, outage.end_minute, outage.end_minute + 30)
    )
    return [
        outage.id,
        outage.title,
        outage.description,
        outage.device.kind.system,
        outage.cause,
        outage.device.name,
        outage.device.place,
        start,
        end,
        "yes" if outage.beam_lost else "no",
        outage.reporter.name,
        entered,
        entered,
        outage.log_entries,
        outage.work_requests,
        outage.pvs,
        label_text(outage.access),
    ]
