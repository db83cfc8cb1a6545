"""A controlled document or a paper on its way to a record, whatever form its feed has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import PurePosixPath

from aps_rag_pipeline.content.assembly import Partition
from aps_rag_pipeline.content.dates import iso_utc, parse_time
from aps_rag_pipeline.content.kinds import NoDocumentError
from aps_rag_pipeline.content.references import find_references
from aps_rag_pipeline.content.tables import cell_text, number_or_text, slug
from aps_rag_pipeline.records import FieldValue, Link, Record
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import UnreadableError
from aps_rag_pipeline.sources.sidecar import Description, arxiv_id, normal_doi

SOURCE = "icms"


@dataclass(frozen=True)
class OtherRevision:
    """A revision that is not the one in force. A draft is one too, but nothing supersedes it yet."""

    row: Description
    older: bool
    #: Its file, where that is known.
    file: str = ""


def first_readable(renditions: Iterable[tuple[str, Callable[[], Partition]]]) -> tuple[str, Partition]:
    """The first rendition that can be read, by name. Later ones are not asked for.

    Where none is a document (a drawing, say), the first of these comes back without any part: what is told of it is
    worth finding.

    Raises:
        UnreadableError: of the first rendition that is a document and cannot be read.
    """
    problem: UnreadableError | None = None
    bare = ""
    for name, parsed in renditions:
        try:
            return name, parsed()
        except NoDocumentError:
            bare = bare or name
        except UnreadableError as error:
            problem = problem or UnreadableError(f"{name}: {error}", remedy=error.remedy, permanent=error.permanent)
    if bare:
        return bare, Partition()
    assert problem is not None
    raise problem


class DocumentMaker:
    """One file that was read, and the description that belongs to it, if any."""

    def __init__(self, feed: Feed, zone: tzinfo, file: str, found: Partition, row: Description | None) -> None:
        """`file` names the file for readers; `zone` is that of times that state none."""
        self.feed = feed
        self.zone = zone
        self.file = file
        self.found = found
        self.row = row
        self.fields: dict[str, FieldValue] = {"file": file}
        self.links: dict[tuple[str, str], Link] = {}

    def record(
        self,
        record_id: str,
        access: tuple[str, ...],
        modified_at: datetime | None,
        *,
        identity: str = "",
        history: Sequence[OtherRevision] = (),
        address: str = "",
    ) -> Record:
        """The record.

        Args:
            modified_at: aware; stands where the description states no in-date.
            identity: the content id, or `arXiv:…` or `doi:…`; empty where the file is known by its path alone.
            history: other revisions of the same document.
            address: of the document for readers, where the feed has no `url_template`.
        """
        found = self.found
        in_date = self._described()
        self._history(history, identity)
        for part in found.parts:
            self._link(*find_references(part.text))
        self._link(*found.links)
        self.links.pop(("document", f"ICMS:{record_id}"), None)
        dates = [date for other in history if (date := self._date(other.row)) is not None]
        created = min([*dates, in_date]) if in_date else found.created_at
        template = self.feed.url_template
        return Record(
            source=SOURCE,
            feed=self.feed.name,
            id=record_id,
            title=self._title(),
            created_at=created,
            modified_at=in_date or modified_at,
            author=self._author(),
            url=template.format(id=record_id) if template else address or _address(identity),
            parts=tuple(found.parts),
            attachments=tuple(found.attachments),
            fields={**self.fields, **found.fields},
            links=tuple(self.links.values()),
            access=access,
        )

    def _title(self) -> str:
        stated = self.row.text("title") if self.row else ""
        return stated or self.found.title or PurePosixPath(self.file).stem

    def _author(self) -> str:
        if self.row is None:
            return self.found.author
        return self.row.text("author") or self.row.text("authors") or self.found.author

    def _date(self, row: Description) -> datetime | None:
        return parse_time(row.values.get("in_date", ""), self.zone, self.feed.date_order)

    def _described(self) -> datetime | None:
        """Fill the fields from the row; its in-date comes back."""
        row = self.row
        if row is None:
            return None
        for name in ("content_id", "revision", "status"):
            if text := row.text(name):
                self.fields[name] = text
        if arxiv := arxiv_id(row.text("arxiv_id"))[0]:
            self.fields["arxiv_id"] = arxiv
        if doi := normal_doi(row.text("doi")):
            self.fields["doi"] = doi
            self._link(Link("url", f"https://doi.org/{doi}"))
        if authors := row.text("authors"):
            self.fields["authors"] = _people(authors)
        if year := row.text("year"):
            self.fields["year"] = number_or_text(year)
        for heading, cell in row.others.items():
            self.fields.setdefault(slug(heading), number_or_text(cell_text(cell)))
        in_date = self._date(row)
        if in_date is not None:
            self.fields["in_date"] = iso_utc(in_date)
        elif raw := row.text("in_date"):
            self.fields["in_date_raw"] = raw
        return in_date

    def _history(self, history: Sequence[OtherRevision], identity: str) -> None:
        revisions: dict[str, None] = {}
        for other in history:
            row, file = other.row, other.file or other.row.file
            told = [row.revision, row.text("status"), row.text("in_date"), file]
            revisions[", ".join(text for text in told if text)] = None
            if other.older and row.revision and identity:
                self._link(Link("supersedes", f"{identity} {row.revision}", file))
        if revisions:
            self.fields["revisions"] = list(revisions)

    def _link(self, *links: Link) -> None:
        for link in links:
            self.links.setdefault((link.kind, link.target), link)


def same_revision(one: Description, other: Description) -> bool:
    """Whether two rows describe the same revision: one is a rendition of it then."""
    return one is other or bool(one.revision and one.revision == other.revision and one.in_force == other.in_force)


def _address(identity: str) -> str:
    kind, _, name = identity.partition(":")
    if kind == "arXiv":
        return f"https://arxiv.org/abs/{name}"
    return f"https://doi.org/{name}" if kind == "doi" else ""


def _people(text: str) -> list[str]:
    """Authors of a list. Commas part them unless they also part family and given names (`Doe, J.; Roe, R.`)."""
    mark = ";" if ";" in text else " and " if " and " in text and "," not in text else ","
    return [name for part in text.split(mark) if (name := part.strip().removeprefix("and ").strip())]
