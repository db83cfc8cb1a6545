"""The table that describes the files of a folder: which row is whose, and which revision is the current one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from stat import S_ISREG

from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.tables import Cell, Wanted, cell_text, read_tables
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources.base import FeedError, Ignored, UnreadableError

#: Our names of columns -> headings by which they are recognised besides the name itself.
COLUMNS: dict[str, tuple[str, ...]] = {
    "file": ("file name", "filename", "path", "file path", "document"),
    "content_id": ("content", "content ID", "dDocName", "document id", "doc id", "id"),
    "title": ("dDocTitle", "document title", "name"),
    "revision": ("rev", "revision label", "dRevLabel", "version"),
    "status": ("dStatus", "state"),
    "in_date": ("in-date", "dInDate", "release date", "released", "date"),
    "author": ("dDocAuthor", "owner"),
    "access": ("access labels", "labels", "groups"),
    "arxiv_id": ("arxiv", "arxiv number", "eprint"),
    "doi": (),
    "authors": (),
    "year": ("publication year", "published"),
}
#: A row must name its file or what it is; the first of these that a table has decides where its headings stand.
_KEYS = ("file", "content_id", "arxiv_id", "doi")
#: A revision of such a status is not the one in force while another is.
_NOT_IN_FORCE = re.compile(
    r"draft|edit|review|pending|work|reject|obsolete|supersed|expired?|delet|withdraw|cancel|archiv", re.IGNORECASE
)
_UNDER_REVISION = re.compile(r"under revision", re.IGNORECASE)
_ARXIV = re.compile(r"(?:arxiv\s*:|https?://(?:www\.)?arxiv\.org/(?:abs|pdf|html)/)?\s*(.+?)(?:\.pdf)?$", re.IGNORECASE)
_ARXIV_ID = re.compile(r"(\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})(v\d+)?$", re.IGNORECASE)
_DOI = re.compile(r"10\.\d{4,9}/\S+")


@dataclass(frozen=True)
class Description:
    """One row. `values` by our names, `others` by heading."""

    place: str
    values: Mapping[str, Cell]
    others: Mapping[str, Cell] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return " ".join(cell_text(self.values.get(name, "")).split())

    @property
    def said(self) -> str:
        """All that the row says, wherever it stands."""
        return repr((sorted(self.values.items()), list(self.others.items())))

    @property
    def file(self) -> str:
        return self.text("file").replace("\\", "/").removeprefix("./").strip("/")

    @property
    def identity(self) -> str:
        """The record's id: content id, `arXiv:…` or `doi:…`; empty when the row has none."""
        if content_id := self.text("content_id"):
            return content_id
        if arxiv := arxiv_id(self.text("arxiv_id"))[0]:
            return f"arXiv:{arxiv}"
        doi = normal_doi(self.text("doi"))
        return f"doi:{doi}" if doi else ""

    @property
    def revision(self) -> str:
        return self.text("revision") or arxiv_id(self.text("arxiv_id"))[1]

    @property
    def in_force(self) -> bool:
        status = self.text("status")
        return not _NOT_IN_FORCE.search(status) or bool(_UNDER_REVISION.search(status))


@dataclass
class Sidecar:
    """All rows of the table. `problems` are rows that say nothing usable: place -> reason."""

    name: str
    rows: list[Description] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    has_access: bool = False


@dataclass
class Matches:
    """Which rows describe which files; `lost` are rows whose file is not there."""

    rows_of: dict[str, list[Description]] = field(default_factory=lambda: defaultdict(list))
    lost: list[Description] = field(default_factory=list)


def read_sidecar(path: Path, feed: Feed, limits: Limits) -> Sidecar:
    """The sidecar table of a feed.

    Raises:
        FeedError: it cannot be read, is too large, or has no column that names files or documents.
    """
    try:
        stat = path.stat()
        if not S_ISREG(stat.st_mode):
            raise FeedError(f"{path}: not a regular file; mend or remove `sidecar` of feed {feed.name}")
        if stat.st_size > limits.max_file_mb * 1e6:
            size = f"{stat.st_size / 1e6:.1f} MB, more than limits.max_file_mb ({limits.max_file_mb:g})"
            raise FeedError(f"{path}: {size}; raise the limit or split the table and the feed")
        data = path.read_bytes()
    except OSError as error:
        raise FeedError(f"{path}: cannot be read ({error.strerror or error})") from error
    problem: UnreadableError | None = None
    for key in (name for name in _KEYS if not feed.columns or name in feed.columns or name in ("file", "content_id")):
        try:
            return _read(data, path.name, Wanted(feed.columns, COLUMNS, (key,)), limits, feed.encoding)
        except UnreadableError as error:
            problem = problem or error
    raise FeedError(f"sidecar {problem}; {problem.remedy if problem else ''}".rstrip("; "))


def _read(data: bytes, name: str, wanted: Wanted, limits: Limits, encoding: str | None) -> Sidecar:
    sidecar = Sidecar(name)
    for table in read_tables(data, name, wanted, limits, encoding):
        if isinstance(table, Ignored):
            continue
        sidecar.has_access = sidecar.has_access or "access" in table.columns
        for row in table.rows:
            found = Description(row.place, row.values, row.others)
            if row.problem:
                sidecar.problems[row.place] = row.problem
            elif not found.file and not found.identity:
                sidecar.problems[row.place] = "names neither a file nor a document"
            else:
                sidecar.rows.append(found)
    return sidecar


def match_files(sidecar: Sidecar, names: Iterable[str]) -> Matches:
    """Join rows and files: by path, by a path that differs in case or depth, or by an id that is the file's name."""
    index = _Index(names)
    matches = Matches()
    for row in sidecar.rows:
        found = index.by_path(row.file) if row.file else index.by_stem(row)
        taken = [name for name in found if any(other.identity != row.identity for other in matches.rows_of[name])]
        if taken:
            first = matches.rows_of[taken[0]][0]
            sidecar.problems[row.place] = f"describes {taken[0]}, which {first.place} describes as {first.identity}"
            continue
        for name in found:
            matches.rows_of[name].append(row)
        if not found:
            matches.lost.append(row)
    return matches


class _Index:
    def __init__(self, names: Iterable[str]) -> None:
        self.exact: dict[str, str] = {}
        self.ends: dict[str, list[str]] = defaultdict(list)
        self.stems: dict[str, list[str]] = defaultdict(list)
        for name in names:
            self.exact[name] = name
            self.ends[name.casefold()].append(name)
            base = name.rsplit("/", 1)[-1].casefold()
            if base != name.casefold():
                self.ends[base].append(name)
            self.stems[base.rsplit(".", 1)[0]].append(name)

    def by_path(self, path: str) -> list[str]:
        if path in self.exact:
            return [path]
        folded = path.casefold()
        # The table may have been written one folder up, or name the files alone.
        for shorter in (folded, folded.partition("/")[2], folded.rsplit("/", 1)[-1]):
            if shorter and len(found := self.ends.get(shorter, [])) == 1:
                return found
        return []

    def by_stem(self, row: Description) -> list[str]:
        arxiv, version = arxiv_id(row.text("arxiv_id"))
        doi = normal_doi(row.text("doi"))
        stems = [row.text("content_id"), arxiv + version, arxiv, arxiv.replace("/", "_"), re.sub(r"[/:]", "_", doi)]
        return next((found for stem in stems if stem and (found := self.stems.get(stem.casefold(), []))), [])


def current_first(rows: Iterable[tuple[str, Description]]) -> list[tuple[str, Description]]:
    """(file, row) pairs of one document, the one in force first: released ones before others, later before earlier.

    The file stands in the pair because several files can be renditions of one revision.
    """
    return sorted(rows, key=lambda pair: _rank(pair[1]), reverse=True)


def _rank(row: Description) -> tuple[bool, list[tuple[int, int, str]], float]:
    date = parse_time(row.values.get("in_date", ""), UTC)
    return row.in_force, revision_order(row.revision), date.timestamp() if date else 0.0


def revision_order(revision: str) -> list[tuple[int, int, str]]:
    """Revisions in order: numbers by value, letters by the alphabet (`A < B < AA`), a missing one before all."""
    pieces = re.findall(r"\d+|[a-z]+", revision.casefold().removeprefix("rev"))
    return [(0, len(piece), piece) if piece.isalpha() else (1, int(piece[:18]), "") for piece in pieces]


def arxiv_id(text: str) -> tuple[str, str]:
    """An arXiv number without its version, and the version (`v2`); empty texts where there is none."""
    match = _ARXIV.match(text.strip())
    found = _ARXIV_ID.match(match[1]) if match else None
    return (found[1].lower(), (found[2] or "").lower()) if found else ("", "")


def normal_doi(text: str) -> str:
    """A DOI in lower case, without the address of a resolver; empty where there is none."""
    match = _DOI.search(text)
    return match[0].rstrip(".,;").lower() if match else ""
