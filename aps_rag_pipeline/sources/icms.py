"""Controlled documents and papers: a tree of files, described by an optional sidecar table.

All files of one content id are one unit, whatever they are called: a new revision file replaces the old text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import ClassVar

from aps_rag_pipeline.content.assembly import Partition, Picture
from aps_rag_pipeline.content.dates import iso_utc, parse_time
from aps_rag_pipeline.content.kinds import NoDocumentError
from aps_rag_pipeline.content.partition import partition
from aps_rag_pipeline.content.references import find_references
from aps_rag_pipeline.content.tables import cell_text, number_or_text, slug
from aps_rag_pipeline.records import FieldValue, Link, Record
from aps_rag_pipeline.sources.base import Failure, Found, Ignored, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.companions import companion, file_name, read_companion
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Listing, Unit
from aps_rag_pipeline.sources.sidecar import (
    Description,
    Sidecar,
    arxiv_id,
    current_first,
    match_files,
    normal_doi,
    read_sidecar,
)
from aps_rag_pipeline.sources.tabular import labels

_NO_SIDECAR = Sidecar("")


@dataclass(frozen=True)
class DocumentUnit(Unit):
    """The files of one document with the rows that describe them; `lost` rows name files that are not there."""

    identity: str = ""
    rows: tuple[tuple[str, Description], ...] = ()
    lost: tuple[Description, ...] = ()
    #: Row -> reason, of rows that describe nothing.
    problems: tuple[tuple[str, str], ...] = ()
    #: Why the unit cannot be judged at present.
    blocked: str = ""
    labelled: bool = False


class DocumentFiles(FileSource):
    """One record a document. Without a sidecar row a file is a document of its own, its path the id."""

    key: ClassVar[str] = "icms"
    patterns: ClassVar[tuple[str, ...]] = ("*",)

    def units(self, listing: Listing) -> Iterator[Unit]:
        sidecar = self._sidecar()
        own = self.feed.sidecar.resolve() if self.feed.sidecar else None
        entries = {entry.name: entry for entry in listing.files if own is None or entry.path.resolve() != own}
        matches = match_files(sidecar, entries)
        groups: dict[str, list[tuple[str, Description]]] = {}
        for name in entries:
            for row in matches.rows_of.get(name, ()):
                groups.setdefault(row.identity or name, []).append((name, row))
        lost: dict[str, list[Description]] = {}
        for row in matches.lost:
            lost.setdefault(row.identity or row.file, []).append(row)
        described = {name for pairs in groups.values() for name, _ in pairs}
        blocked = "a folder of the feed cannot be listed, and a file of this document is not found elsewhere"
        for identity in sorted(groups.keys() | lost.keys()):
            pairs = groups.get(identity, [])
            files = tuple(entries[name] for name in dict.fromkeys(name for name, _ in pairs))
            missing = tuple(lost.get(identity, ()))
            yield DocumentUnit(
                identity if identity not in entries or identity in described else f"{identity} (content id)",
                files,
                identity=pairs[0][1].identity if pairs else missing[0].identity,
                rows=tuple(pairs),
                lost=missing,
                blocked=blocked if missing and listing.failures else "",
                labelled=sidecar.has_access,
            )
        for name, entry in entries.items():
            if name not in described:
                yield DocumentUnit(name, (entry,))
        if sidecar.problems:
            yield DocumentUnit(f"sidecar {sidecar.name}", (), problems=tuple(sidecar.problems.items()))

    def check(self) -> Found:
        found = super().check()
        sidecar = self._sidecar()
        if not sidecar.name:
            return found
        matches = match_files(sidecar, [entry.name for entry in self.listing().files])
        detail = f"; sidecar {sidecar.name}: {len(sidecar.rows)} rows, {len(matches.rows_of)} files described"
        if matches.lost:
            detail += f", {len(matches.lost)} rows without their file, the first at {matches.lost[0].place}"
        return Found(found.units, found.detail + detail)

    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        assert isinstance(unit, DocumentUnit)
        if unit.blocked:
            raise UnreadableError(unit.blocked, remedy="check the folder's permissions", permanent=False)
        for place, reason in unit.problems:
            yield Failure(unit.name, place, place, reason, "mend or remove the row", True)
        for row in unit.lost:
            # An old revision whose file nobody kept is history; a path that is stated is a promise.
            if row.file or not unit.files:
                reason = f"the sidecar names {row.file or row.identity}, but there is no such file"
                yield Failure(unit.name, row.place, row.place, reason, "put the file there or remove the row", False)
        if unit.rows:
            yield from self._document(unit)
        else:
            for entry in unit.files:
                yield from self._bare_file(unit, entry)

    def _sidecar(self) -> Sidecar:
        if self.feed.sidecar is None:
            return _NO_SIDECAR
        return read_sidecar(self.feed.sidecar, self.feed, self.context.limits)

    def _bare_file(self, unit: Unit, entry: FileEntry) -> Iterator[Upsert | Ignored]:
        try:
            found = self._partition(entry)
        except NoDocumentError as error:
            yield Ignored(entry.name, str(error))
            return
        record = _RecordMaker(self, entry, found, None).record(entry.name, self.feed.access)
        yield Upsert(record, unit.name, entry.name)

    def _document(self, unit: DocumentUnit) -> Iterator[Upsert | Failure | Ignored]:
        """The revision in force as the record; of its renditions the first that can be read."""
        entries = {entry.name: entry for entry in unit.files}
        pairs = current_first(unit.rows)
        current = pairs[0][1]
        renditions = [file for file, row in pairs if _same_revision(row, current)]
        name, found = self._first_readable([entries[name] for name in renditions])
        maker = _RecordMaker(self, entries[name], found, current)
        history = [(row, file) for file, row in pairs if not _same_revision(row, current)] + [
            (row, "") for row in unit.lost
        ]
        record = maker.record(unit.identity or name, self._access(unit, current), unit.identity, history)
        yield Upsert(record, unit.name, f"{name} ({current.place})")
        for other in dict.fromkeys(file for file, _ in pairs if file != name):
            why = "another rendition of" if other in renditions else "an older revision of"
            yield Ignored(other, f"{why} {name}")

    def _first_readable(self, entries: list[FileEntry]) -> tuple[str, Partition]:
        problem: UnreadableError | None = None
        bare: FileEntry | None = None
        for entry in entries:
            try:
                return entry.name, self._partition(entry)
            except NoDocumentError:
                bare = bare or entry
            except UnreadableError as error:
                problem = problem or UnreadableError(
                    f"{entry.name}: {error}", remedy=error.remedy, permanent=error.permanent
                )
        if bare is not None:  # a drawing, say: what the table tells of it is worth finding
            return bare.name, Partition()
        assert problem is not None
        raise problem

    def _partition(self, entry: FileEntry) -> Partition:
        root = self.feed.location if self.feed.location.is_dir() else self.feed.location.parent

        def find_picture(address: str) -> Picture | None:
            name = file_name(address)
            if not name or "://" in address:
                return None
            path = companion(root, (entry.path.parent / address, entry.path.parent / name, root / address))
            try:
                return Picture(name, read_companion(path, self.context)) if path else None
            except UnreadableError:
                return None  # the page is worth having without it

        context = self.context
        return partition(
            self.load(entry),
            entry.name,
            context.limits,
            context.blobs,
            context.zone,
            encoding=self.feed.encoding,
            find_picture=find_picture,
        )

    def _access(self, unit: DocumentUnit, row: Description) -> tuple[str, ...]:
        # A label that is due and cannot be read admits nobody.
        return labels(row.text("access")) if unit.labelled else self.feed.access


class _RecordMaker:
    """A document on its way to a record."""

    def __init__(self, source: DocumentFiles, entry: FileEntry, found: Partition, row: Description | None) -> None:
        self.source = source
        self.entry = entry
        self.found = found
        self.row = row
        self.fields: dict[str, FieldValue] = {"file": entry.name}
        self.links: dict[tuple[str, str], Link] = {}

    def record(
        self,
        record_id: str,
        access: tuple[str, ...],
        identity: str = "",
        history: list[tuple[Description, str]] | None = None,
    ) -> Record:
        found, feed = self.found, self.source.feed
        in_date = self._described()
        self._history(history or [], identity)
        for part in found.parts:
            self._link(*find_references(part.text))
        self._link(*found.links)
        self.links.pop(("document", f"ICMS:{record_id}"), None)
        dates = [date for row, _ in history or [] if (date := self._date(row)) is not None]
        created = min([*dates, in_date]) if in_date else found.created_at
        return Record(
            source=self.source.key,
            feed=feed.name,
            id=record_id,
            title=self._title(),
            created_at=created,
            modified_at=in_date or datetime.fromtimestamp(self.entry.mtime_ns / 1e9, UTC),
            author=self._author(),
            url=feed.url_template.format(id=record_id) if feed.url_template else self._address(identity),
            parts=tuple(found.parts),
            attachments=tuple(found.attachments),
            fields={**self.fields, **found.fields},
            links=tuple(self.links.values()),
            access=access,
        )

    def _title(self) -> str:
        stated = self.row.text("title") if self.row else ""
        return stated or self.found.title or PurePosixPath(self.entry.name).stem

    def _author(self) -> str:
        if self.row is None:
            return self.found.author
        return self.row.text("author") or self.row.text("authors") or self.found.author

    def _date(self, row: Description) -> datetime | None:
        feed = self.source.feed
        return parse_time(row.values.get("in_date", ""), self.source.context.zone, feed.date_order)

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

    def _history(self, history: list[tuple[Description, str]], identity: str) -> None:
        revisions: dict[str, None] = {}
        for row, file in history:
            told = [row.revision, row.text("status"), row.text("in_date"), file or row.file]
            revisions[", ".join(text for text in told if text)] = None
            if row.revision and identity:
                self._link(Link("supersedes", f"{identity} {row.revision}", file or row.file))
        if revisions:
            self.fields["revisions"] = list(revisions)

    def _address(self, identity: str) -> str:
        kind, _, name = identity.partition(":")
        if kind == "arXiv":
            return f"https://arxiv.org/abs/{name}"
        return f"https://doi.org/{name}" if kind == "doi" else ""

    def _link(self, *links: Link) -> None:
        for link in links:
            self.links.setdefault((link.kind, link.target), link)


def _same_revision(one: Description, other: Description) -> bool:
    return one is other or bool(one.revision and one.revision == other.revision and one.in_force == other.in_force)


def _people(text: str) -> list[str]:
    """Authors of a list. Commas part them unless they also part family and given names (`Doe, J.; Roe, R.`)."""
    mark = ";" if ";" in text else " and " if " and " in text and "," not in text else ","
    return [name for part in text.split(mark) if (name := part.strip().removeprefix("and ").strip())]


FORMS: dict[str, type[Source]] = {"files": DocumentFiles}
