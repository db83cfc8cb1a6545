"""Controlled documents and papers: a tree of files, described by an optional sidecar table.

All files of one content id are one unit, whatever they are called: a new revision file replaces the old text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

from aps_rag_pipeline.content.assembly import Partition, Picture
from aps_rag_pipeline.content.kinds import NoDocumentError
from aps_rag_pipeline.content.partition import partition
from aps_rag_pipeline.sources.base import Failure, Found, Ignored, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.companions import companion, file_name, read_companion
from aps_rag_pipeline.sources.documents import SOURCE, DocumentMaker, OtherRevision, first_readable, same_revision
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Listing, Unit
from aps_rag_pipeline.sources.sidecar import (
    Description,
    Sidecar,
    current_first,
    match_files,
    read_sidecar,
    revision_order,
)
from aps_rag_pipeline.sources.tabular import labels
from aps_rag_pipeline.sources.webcenter.source import WebCenter

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

    @property
    def told(self) -> list[str]:
        """The rows of the sidecar that are about it: another document's row makes nobody read this one again."""
        if not (self.rows or self.lost or self.problems):
            return []
        # Where a row stands matters only where a failure says it: one row more moves all below it.
        described = [f"{file}|{row.said}" for file, row in self.rows]
        lost = [f"{row.place if self.promises(row) else ''}|{row.said}" for row in self.lost]
        return [self.identity, str(self.labelled), *described, "lost", *lost, *map(repr, self.problems)]

    def promises(self, row: Description) -> bool:
        """Whether a file should be where this lost row says: an old revision whose file nobody kept is history."""
        return bool(row.file) or not self.files


class DocumentFiles(FileSource):
    """One record a document. Without a sidecar row a file is a document of its own, its path the id."""

    key: ClassVar[str] = SOURCE
    version: ClassVar[int] = 11
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
            if unit.promises(row):
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
        maker = DocumentMaker(self.feed, self.context.zone, entry.name, found, None)
        record = maker.record(entry.name, self.feed.access, _modified(entry))
        yield Upsert(record, unit.name, entry.name)

    def _document(self, unit: DocumentUnit) -> Iterator[Upsert | Failure | Ignored]:
        """The revision in force as the record; of its renditions the first that can be read."""
        entries = {entry.name: entry for entry in unit.files}
        pairs = current_first(unit.rows)
        current = pairs[0][1]
        renditions = [file for file, row in pairs if same_revision(row, current)]
        name, found = first_readable((name, partial(self._partition, entries[name])) for name in renditions)
        maker = DocumentMaker(self.feed, self.context.zone, name, found, current)
        others = [(row, file) for file, row in pairs if not same_revision(row, current)]
        others += [(row, "") for row in unit.lost]
        order = revision_order(current.revision)
        history = [OtherRevision(row, revision_order(row.revision) <= order, file) for row, file in others]
        record = maker.record(
            unit.identity or name,
            self._access(unit, current),
            _modified(entries[name]),
            identity=unit.identity,
            history=history,
        )
        yield Upsert(record, unit.name, f"{name} ({current.place})")
        for other in dict.fromkeys(file for file, _ in pairs if file != name):
            why = "another rendition of" if other in renditions else "an older revision of"
            yield Ignored(other, f"{why} {name}")

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


def _modified(entry: FileEntry) -> datetime:
    return datetime.fromtimestamp(entry.mtime_ns / 1e9, UTC)


FORMS: dict[str, type[Source]] = {"files": DocumentFiles, "webcenter": WebCenter}
