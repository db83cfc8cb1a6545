"""The `facility.yaml` of the demo, commented like one that a person would keep."""

from __future__ import annotations

from aps_rag_pipeline.demo.facility import NAME, SHIFTS, ZONE
from aps_rag_pipeline.demo.writers import bely, downtime, epics, work_requests

_HEAD = """\
# Settings of the demo facility. Every value can be overridden by an environment variable APS_RAG_<NAME>.
facility: {name}
# Zone of times that state none, and of questions such as "last Tuesday on owl shift".
time_zone: {zone}
shifts:
{shifts}
# Where catalog, indexes, blobs and releases go; relative paths start at the folder of this file.
home: home

# One feed per source, and two for documents: citation keys of ICMS therefore name the feed (ICMS:papers/arXiv:...).
feeds:
"""


def text() -> str:
    shifts = "\n".join(f'  - {{name: {name}, start: "{hour:02d}:00"}}' for name, hour in SHIFTS)
    head = _HEAD.format(name=NAME, zone=ZONE.key, shifts=shifts)
    feeds = [
        _feed("bely", "bely", bely.FOLDER, "the electronic log book: one export bundle per shift"),
        _feed("documents", "icms", "icms/documents", "controlled documents", ["sidecar: feeds/icms/documents.csv"]),
        _feed("papers", "icms", "icms/papers", "papers, known by arXiv id or DOI", ["sidecar: feeds/icms/papers.csv"]),
        _feed("work-requests", "work_requests", work_requests.FOLDER, "work requests", _columns(work_requests.COLUMNS)),
        _feed("teams", "teams", "teams", "chat channels with screenshots"),
        _feed("downtime", "downtime", downtime.FOLDER, "downtime records", _columns(downtime.COLUMNS)),
        _feed("sdds", "sdds_docs", "sdds_docs", "manuals of the toolkit, and data files read by their headers"),
        _feed("code", "code", "code", "git checkouts"),
        _feed("wiki", "wiki", "wiki", "pages in Markdown, DokuWiki and MediaWiki markup"),
        _feed("epics", "epics", epics.FOLDER, "process variables: logger lists and database files"),
    ]
    return head + "\n".join(feeds)


def _feed(name: str, source: str, folder: str, comment: str, more: list[str] | None = None) -> str:
    lines = [f"  # {comment}", f"  - name: {name}", f"    source: {source}", f"    location: feeds/{folder}"]
    return "\n".join([*lines, "    access: [public]", *(f"    {line}" for line in more or ())]) + "\n"


def _columns(columns: dict[str, str]) -> list[str]:
    return [
        "# our field: heading of the column",
        "columns:",
        *(f"  {ours}: {theirs}" for ours, theirs in columns.items()),
    ]
