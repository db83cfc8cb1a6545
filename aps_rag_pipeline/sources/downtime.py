"""Downtime and other operational events from tables and databases: one record a row."""

from __future__ import annotations

from typing import ClassVar

from aps_rag_pipeline.sources.base import Source
from aps_rag_pipeline.sources.database import DatabaseSource
from aps_rag_pipeline.sources.tabular import RowSource, TableSource


class DowntimeEvents(RowSource):
    """The columns of downtime records.

    An event is dated by its entry time, and by its start where the table has no entry time.
    """

    key = "downtime"
    columns: ClassVar[dict[str, tuple[str, ...]]] = {
        "id": ("downtime id", "event id", "event number", "number"),
        "title": ("summary", "subject"),
        "description": ("details", "narrative", "comments"),
        "system": ("subsystem", "group"),
        "cause": ("root cause", "reason"),
        "component": ("device", "equipment"),
        "location": ("sector", "area"),
        "start": ("start time", "started", "begin", "from", "event date"),
        "end": ("end time", "ended", "until", "to"),
        "duration": ("downtime", "length", "time lost", "duration h", "duration hours", "duration min", "duration s"),
        "beam_lost": ("beam loss",),
        "reporter": ("reported by", "operator"),
        "created": ("created at", "entered", "entered on", "report date"),
        "updated": ("updated at", "last updated", "modified", "last modified"),
        "log_entries": ("log entry", "log ids", "log"),
        "work_requests": ("work request", "work orders", "wr"),
        "pvs": ("pv", "process variables", "process variable"),
        "access": (),
    }
    texts: ClassVar[dict[str, str]] = {"description": "Description"}
    times = ("start", "end", "created", "updated")
    created = ("created", "start")
    flags = frozenset(("beam_lost",))
    author = "reporter"
    relations: ClassVar[dict[str, str]] = {"log_entries": "BELY", "work_requests": "WRQ", "pvs": "PV"}


class DowntimeFiles(DowntimeEvents, TableSource):
    """CSV, TSV, XLSX and XLS exports of a downtime database."""


class DowntimeDatabase(DowntimeEvents, DatabaseSource):
    """Rows of a downtime database, asked with SQL."""


FORMS: dict[str, type[Source]] = {"files": DowntimeFiles, "sql": DowntimeDatabase}
