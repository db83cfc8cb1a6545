"""Work requests: one CSV a year with the headings of a maintenance system, local times, and a column of labels."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aps_rag_pipeline.demo.facility import at
from aps_rag_pipeline.demo.items import WorkRequest
from aps_rag_pipeline.demo.writers.common import label_text

FOLDER = "work_requests"
#: Our field name -> heading: what `columns` of the feed says.
COLUMNS = {
    "id": "WR Number", "title": "Short Description", "description": "Details", "status": "Status",
    "priority": "Priority", "component": "Equipment", "system": "Technical System", "location": "Area",
    "requester": "Requested By", "assignee": "Assigned To", "created": "Date Entered", "updated": "Last Change",
    "completed": "Date Completed", "resolution": "Work Performed", "related": "Related Items", "access": "Visibility",
}  # fmt: skip
TIME = "%m/%d/%Y %H:%M"


def file_name(request: WorkRequest) -> str:
    return f"{FOLDER}/requests_{at(request.minute).year}.csv"


def write(feeds: Path, requests: Iterable[WorkRequest]) -> int:
    (feeds / FOLDER).mkdir(parents=True, exist_ok=True)
    count = 0
    with ExitStack() as stack:
        # csv's writer type has no public name.
        writers: dict[str, Any] = {}
        for request in requests:
            name = file_name(request)
            if name not in writers:
                file = stack.enter_context((feeds / name).open("w", encoding="utf-8", newline=""))
                writers[name] = csv.writer(file)
                writers[name].writerow(COLUMNS.values())
            writers[name].writerow(row(request))
            count += 1
    return count


def row(request: WorkRequest) -> list[str]:
    last = max(request.minute, request.completed_minute)
    return [
        str(request.number),
        request.title,
        request.description,
        request.status,
        request.priority,
        request.device.name,
        request.device.kind.system,
        request.device.place,
        request.requester.name,
        request.assignee.name,
        at(request.minute).strftime(TIME),
        at(last).strftime(TIME),
        at(request.completed_minute).strftime(TIME) if request.completed_minute else "",
        request.resolution,
        request.related,
        label_text(request.access),
    ]
