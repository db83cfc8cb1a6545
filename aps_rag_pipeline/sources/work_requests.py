"""Work requests from tables and databases: one record a row."""

from __future__ import annotations

from typing import ClassVar

from aps_rag_pipeline.sources.base import Source
from aps_rag_pipeline.sources.database import DatabaseSource
from aps_rag_pipeline.sources.tabular import RowSource, TableSource


class WorkRequests(RowSource):
    """The columns of work requests."""

    key = "work_requests"
    columns: ClassVar[dict[str, tuple[str, ...]]] = {
        "id": ("work request", "work request id", "work request number", "wr", "wr number", "wr no", "number"),
        "title": ("summary", "subject", "short text"),
        "description": ("long text", "details", "problem"),
        "status": ("state",),
        "priority": (),
        "component": (),
        "system": (),
        "location": (),
        "requester": ("requested by", "reporter", "reported by"),
        "assignee": ("assigned to", "technician"),
        "created": ("created at", "created on", "created date", "date created", "requested on", "opened"),
        "updated": ("updated at", "last updated", "modified", "last modified"),
        "completed": ("completed at", "completed on", "completed date", "date completed", "closed"),
        "resolution": ("solution", "work performed", "action taken"),
        "related": ("related ids", "related work requests", "references"),
        "access": (),
    }
    texts: ClassVar[dict[str, str]] = {"description": "Description", "resolution": "Resolution"}
    times = ("created", "updated", "completed")
    author = "requester"
    relations: ClassVar[dict[str, str]] = {"related": "WRQ"}


class WorkRequestFiles(WorkRequests, TableSource):
    """CSV, TSV, XLSX and XLS exports of a work-request system."""


class WorkRequestDatabase(WorkRequests, DatabaseSource):
    """Rows of a work-request system, asked with SQL."""


FORMS: dict[str, type[Source]] = {"files": WorkRequestFiles, "sql": WorkRequestDatabase}
