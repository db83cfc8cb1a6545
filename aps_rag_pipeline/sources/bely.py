"""Log books: BELY exports as its REST interface gives them, and the other forms that facilities keep their logs in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aps_rag_pipeline.content.text import decode
from aps_rag_pipeline.sources.base import Failure, FeedError, Found, Ignored, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.belylive.scan import BelyRest
from aps_rag_pipeline.sources.files import FileEntry, Listing, Unit
from aps_rag_pipeline.sources.jsonfiles import JsonFileSource, mapping, read_json
from aps_rag_pipeline.sources.logbooks.dialects import SHAPES, read_values
from aps_rag_pipeline.sources.logbooks.dump import Dump, read_dump
from aps_rag_pipeline.sources.logbooks.elog import Naming, is_elog, read_elog
from aps_rag_pipeline.sources.logbooks.events import is_event_capture, read_events
from aps_rag_pipeline.sources.logbooks.model import Reading
from aps_rag_pipeline.sources.logbooks.threads import FilesBeside, ThreadWriter
from aps_rag_pipeline.sources.logbooks.transcript import META, Mission, is_transcript, read_transcript
from aps_rag_pipeline.sources.logbooks.units import unit_records
from aps_rag_pipeline.sources.logbooks_live.elog import Elog
from aps_rag_pipeline.sources.logbooks_live.jsonlog import JsonLog
from aps_rag_pipeline.sources.logbooks_live.olog import Olog

EVENTS, DUMP, TRANSCRIPT, ELOG = "mqtt", "sql", "spacelog", "elog"
DIALECTS = (*SHAPES, EVENTS, DUMP, TRANSCRIPT, ELOG)
#: Endings of files that are one unit with those beside them: a dump in pieces, a log book's days.
_TOGETHER = (".sql", ".log", ".elog")


class BelyFiles(JsonFileSource):
    """A folder of log book exports.

    The form of a file is found from its content; `options.dialect` (one of `DIALECTS`) settles it for the whole feed.
    The .sql files of a folder are one dump and one unit, and so are the data files of an ELOG log book, whose replies
    may stand in another day's file; any other file is a unit of its own, a transcript together with the description
    beside it.
    """

    key = "bely"
    version = 2
    patterns = ("*.json", "*.jsonl", "*.ndjson", "*.sql", "*.log", "*.elog", "*.xml")

    def units(self, listing: Listing) -> Iterator[Unit]:
        together: dict[str, list[FileEntry]] = {}
        metas = {_folder(entry.name): entry for entry in listing.files if _base(entry.name) == META}
        for entry in listing.files:
            ending = next((e for e in _TOGETHER if entry.name.lower().endswith(e)), "")
            if ending:
                together.setdefault(f"{_folder(entry.name)}*{ending}", []).append(entry)
            elif _base(entry.name) == META or "." in _base(entry.name) or _folder(entry.name) not in metas:
                yield Unit(entry.name, (entry,))
            else:
                yield Unit(entry.name, (entry, metas[_folder(entry.name)]))
        for name, entries in together.items():
            yield Unit(name, tuple(entries))

    def check(self) -> Found:
        self._dialect()
        return super().check()

    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        dialect = self._dialect()
        first = unit.files[0]
        if first.name.lower().endswith(".sql"):
            yield from self._records(self._dump(unit), unit)
            return
        if first.name.lower().endswith((".log", ".elog", ".xml")):
            yield from self._records(self._elog(unit), unit)
            return
        if _base(first.name) == META:
            yield Ignored(first.name, "it describes the transcripts beside it")
            return
        text = decode(self.load(first), self.feed.encoding)
        if dialect == TRANSCRIPT or (dialect is None and is_transcript(text)):
            yield from read_transcript(text, self.feed, self._mission(unit), unit.name)
        elif dialect == EVENTS or (dialect is None and is_event_capture(text)):
            yield from self._records(read_events(text, unit.name, first.name), unit)
        else:
            found = read_json(text, first.name)
            if found.broken:
                remedy = "export the file again; nothing of it is removed until it can be read whole"
                yield Failure(unit.name, unit.name, first.name, found.problem, remedy, True)
            yield from self._records(read_values(found.values, unit.name, dialect), unit)

    def _dialect(self) -> str | None:
        """The dialect that the configuration settles, None where each file tells.

        Raises:
            FeedError: there is no such dialect.
        """
        named = self.feed.options.get("dialect")
        if named is None or named in DIALECTS:
            return named
        known = ", ".join(DIALECTS)
        raise FeedError(f"feed {self.feed.name}: options.dialect is {named!r}; it can be one of {known}")

    def _records(self, reading: Reading, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        location = self.feed.location
        root = location if location.is_dir() else location.parent
        beside = FilesBeside(unit.files[0].path.parent, root, self.context)
        yield from unit_records(reading, ThreadWriter(self.feed, self.context, unit.name, beside))

    def _dump(self, unit: Unit) -> Reading:
        dump = Dump()
        for entry in unit.files:
            yield from dump.add(self._text(entry), entry.name)
        yield from read_dump(dump, unit.name)

    def _elog(self, unit: Unit) -> Reading:
        naming = Naming.of(self.feed.options)
        for entry in unit.files:
            text = self._text(entry)
            if is_elog(text):
                yield from read_elog(text, unit.name, entry.name, naming)
            else:
                yield Ignored(entry.name, "neither a data file nor an export of ELOG")

    def _mission(self, unit: Unit) -> Mission:
        for entry in unit.files[1:]:
            found = read_json(self._text(entry), entry.name)
            return Mission.read(mapping(found.values[0].value), self.context.zone)
        return Mission()

    def _text(self, entry: FileEntry) -> str:
        """The text of a file that its unit cannot be read without."""
        try:
            return decode(self.load(entry), self.feed.encoding)
        except UnreadableError as error:
            reason = f"{entry.name}: {error}"
            raise UnreadableError(reason, remedy=error.remedy, permanent=error.permanent) from error


def _folder(name: str) -> str:
    return name[: name.rfind("/") + 1]


def _base(name: str) -> str:
    return Path(name).name


FORMS: dict[str, type[Source]] = {"files": BelyFiles, "rest": BelyRest, "olog": Olog, "elog": Elog, "json": JsonLog}
