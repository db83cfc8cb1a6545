"""Sources whose items are the rows of a table: which column is what, and a row as a record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import ClassVar

from aps_rag_pipeline.content.dates import iso_utc, parse_duration, parse_moment, parse_time, unit_seconds
from aps_rag_pipeline.content.references import KIND_OF_PREFIX, find_references
from aps_rag_pipeline.content.tables import (
    TABLE_PATTERNS,
    Cell,
    Row,
    Wanted,
    cell_text,
    head_of,
    number_or_text,
    read_tables,
    slug,
)
from aps_rag_pipeline.records import KEY_PREFIX, FieldValue, Link, Part, Record
from aps_rag_pipeline.sources.base import Failure, FeedError, Found, Ignored, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Unit

_CHECKED_FILES = 50
MAX_ID = 200
_MAX_TITLE = 160
#: A cell longer than this is prose of its own, not a value to filter by.
_MAX_VALUE = 300
_NOTHING = frozenset(("-", "--", "n/a", "na", "none", "null", "nan", "#n/a", "tbd", "?"))
_FILLERS = frozenset(("and", "or", "see", "no", "nr", "number", *_NOTHING))
_YES = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
_MARKUP = re.compile(r"</[a-z][a-z0-9]*\s*>|<(?:br|p|hr)\s*/?>|&(?:nbsp|amp|lt|gt|quot|#\d+);", re.IGNORECASE)
_DATED = re.compile(r"date|time", re.IGNORECASE)


class RowSource(Source):
    """A source whose items are rows, wherever they come from. Subclasses declare its columns.

    Columns that nobody asked for are kept as fields under a slug of their heading; long text in them becomes a part.
    """

    #: Our names of columns -> headings by which they are recognised besides the name itself.
    columns: ClassVar[dict[str, tuple[str, ...]]]
    #: Columns of free text -> the title of the part that each becomes.
    texts: ClassVar[dict[str, str]]
    #: Columns of times; the first of `created` that a row states is when it was created.
    times: ClassVar[tuple[str, ...]]
    created: ClassVar[tuple[str, ...]] = ("created",)
    #: Columns that say yes or no (or how much).
    flags: ClassVar[frozenset[str]] = frozenset()
    #: The column that names who wrote the item.
    author: ClassVar[str]
    #: Columns that name other records -> the prefix of their citation keys.
    relations: ClassVar[dict[str, str]]

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.feed.columns, self.columns, ("id",))

    def change(self, unit: str, columns: Mapping[str, str], row: Row) -> Upsert | Failure:
        """A row as a record, or why it is none. `columns`: our names -> the headings that were found for them."""
        record_id = id_text(row.values.get("id", ""))
        if row.problem:
            return Failure(unit, row.place, row.place, row.problem, "mend the row's quoting", True, record_id[:MAX_ID])
        if not record_id:
            reason = f'no id: the column "{columns["id"]}" is blank'
            return Failure(unit, row.place, row.place, reason, "give the row an id", True)
        if len(record_id) > MAX_ID:
            reason = f'the column "{columns["id"]}" holds {len(record_id)} characters, which is no id'
            return Failure(unit, row.place, row.place, reason, "mend `columns` of the feed", True)
        return Upsert(_RowReader(self, columns, row).record(record_id), unit, row.place)


class TableSource(RowSource, FileSource):
    """Reads CSV, TSV, XLSX and XLS files with one item a row."""

    patterns: ClassVar[tuple[str, ...]] = TABLE_PATTERNS

    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        seen: dict[str, Upsert] = {}
        for entry in unit.files:
            tables = read_tables(
                self.load(entry), entry.name, self.wanted, self.context.limits, encoding=self.feed.encoding
            )
            for table in tables:
                if isinstance(table, Ignored):
                    yield table
                    continue
                for row in table.rows:
                    yield first_of(seen, self.change(unit.name, table.columns, row))

    def check(self) -> Found:
        found = super().check()
        return Found(found.units, found.detail + check_headings(self, self.wanted, self.listing().files))


def id_text(cell: Cell) -> str:
    """The id that a cell states, empty where it states none."""
    stated = " ".join(cell_text(cell).split())
    return "" if stated.casefold() in _NOTHING else stated


def check_headings(source: FileSource, wanted: Wanted, files: list[FileEntry]) -> str:
    """What to say of those files that lack the wanted columns, nothing where all have them.

    Raises:
        FeedError: none has them.
    """
    files = files[:_CHECKED_FILES]
    wrong: list[str] = []
    for entry in files:
        if entry.size == 0:
            wrong.append(f"{entry.name}: the file is empty; fill it or remove it")
            continue
        try:
            data = head_of(entry.path) or source.load(entry)
            for _ in read_tables(data, entry.name, wanted, source.context.limits, source.feed.encoding):
                pass
        except UnreadableError as error:
            # A wrong column map stands in the way of all files, so it is told before an empty one.
            wrong.insert(0, f"{error}; {error.remedy}")
    if not wrong:
        return ""
    first = wrong[0]
    if len(wrong) == len(files):
        raise FeedError(first)
    return f"; {len(wrong)} of {len(files)} have no such table: {first}"


def first_of(seen: dict[str, Upsert], change: Upsert | Failure) -> Upsert | Failure | Ignored:
    """Of several rows with one id the first counts; a differing later one is a failure that names both places."""
    if isinstance(change, Failure):
        return change
    first = seen.setdefault(change.record.id, change)
    if first is change:
        return change
    if first.record == change.record:
        return Ignored(change.place, f"the same as {first.place}")
    reason = f"the id {change.record.id} is already that of {first.place}; this row is left out"
    return Failure(change.unit, change.place, change.place, reason, "give one of them another id", True)


class _RowReader:
    """One row on its way to a record."""

    def __init__(self, source: RowSource, columns: Mapping[str, str], row: Row) -> None:
        self.source = source
        self.columns = columns
        self.row = row
        self.zone = source.context.zone
        self.order = source.feed.date_order
        self.fields: dict[str, FieldValue] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.details: list[str] = []

    def record(self, record_id: str) -> Record:
        source, values = self.source, self.row.values
        title, parts = self._texts(record_id)
        moments = {name: self._time(name) for name in source.times}
        self._duration()
        for name in source.columns:
            if name in values and name not in self._special:
                self._field(name, self.columns[name], values[name])
        for name, prefix in source.relations.items():
            self._relation(name, prefix)
        parts += [part for heading, cell in self.row.others.items() if (part := self._other(heading, cell))]
        if self.details:
            parts.append(Part("prose", "\n".join(self.details), title="Details"))
        for part in parts:
            self._link(*find_references(part.text))
        self.links.pop(_own(source.key, record_id), None)
        template = source.feed.url_template
        return Record(
            source=source.key,
            feed=source.feed.name,
            id=record_id,
            title=title,
            created_at=next((moments[name] for name in source.created if moments.get(name)), None),
            modified_at=moments.get("updated"),
            author=cell_text(values.get(source.author, "")),
            url=template.format(id=record_id) if template else "",
            parts=tuple(parts),
            fields=self.fields,
            links=tuple(self.links.values()),
            access=self._access(),
        )

    @property
    def _special(self) -> frozenset[str]:
        source = self.source
        named = ("id", "title", "access", "duration")
        return frozenset((*named, *source.texts, *source.times, *source.relations))

    def _texts(self, record_id: str) -> tuple[str, list[Part]]:
        """The title, and the parts of free text. A title that goes on over several lines is a text as well."""
        texts = {name: plain(self.row.values[name]) for name in self.source.texts if name in self.row.values}
        whole = plain(self.row.values.get("title", ""))
        title = shortened(whole or next(iter(texts.values()), "") or record_id)
        parts = [Part("prose", text, title=self.source.texts[name]) for name, text in texts.items() if text]
        if whole and whole != title and whole not in texts.values():
            rest = whole.removeprefix(title).lstrip()
            parts.insert(0, Part("prose", rest if rest and not title.endswith("…") else whole, title="Summary"))
        return title, parts

    def _time(self, name: str) -> datetime | None:
        cell = self.row.values.get(name)
        if cell is None:
            return None
        moment = parse_time(cell, self.zone, self.order)
        if moment is None:
            self.fields[f"{name}_raw"] = cell_text(cell)
        elif name not in ("created", "updated"):
            self.fields[name] = iso_utc(moment)
        if name != "updated":  # a re-save that moves it changes no word
            self._detail(self.columns[name], cell)
        return moment

    def _duration(self) -> None:
        """`duration_s`, stated, or else what lies between two clock times."""
        cell = self.row.values.get("duration")
        seconds = None
        if cell is not None:
            heading = self.columns["duration"]
            unit = unit_seconds(heading) or unit_seconds(str(self.source.feed.options.get("duration_unit", "")))
            seconds = parse_duration(cell, unit)
            if seconds is None:
                self.fields["duration_raw"] = cell_text(cell)
            self._detail(heading, cell)
        if seconds is None:
            seconds = self._between("start", "end")
        if seconds is not None:
            self.fields["duration_s"] = seconds

    def _between(self, first: str, second: str) -> float | None:
        """Seconds between two times, if they state a time of day."""
        cells = [self.row.values.get(name, "") for name in (first, second)]
        moments = [parse_moment(cell, self.zone, self.order) for cell in cells]
        if not any(isinstance(moment, datetime) for moment in moments):
            return None
        # A date cell at midnight comes as a day; beside a clock time it means that midnight.
        start, end = (
            parse_time(moment, self.zone) if isinstance(moment, datetime) or isinstance(cell, date) else None
            for moment, cell in zip(moments, cells, strict=True)
        )
        return (end - start).total_seconds() if start and end and end >= start else None

    def _field(self, name: str, heading: str, cell: Cell) -> None:
        said = cell.casefold() if isinstance(cell, str) and name in self.source.flags else ""
        self.fields[name] = _YES[said] if said in _YES else self._typed(heading, cell)
        self._detail(heading, cell)

    def _other(self, heading: str, cell: Cell) -> Part | None:
        """Keep what an unmapped column holds; long text comes back as a part."""
        text = plain(cell)
        if len(text) > _MAX_VALUE:
            return Part("prose", text, title=heading)
        name = plain_name = slug(heading)
        count = 1
        while name in self.fields or name in self.source.columns:
            count += 1
            name = f"{plain_name}_{count}"
        self.fields[name] = self._typed(heading, text if isinstance(cell, str) else cell)
        self._detail(heading, text)
        return None

    def _typed(self, heading: str, cell: Cell) -> FieldValue:
        if isinstance(cell, datetime | date):
            return self._stated(cell) or cell_text(cell)
        if isinstance(cell, timedelta):
            return cell.total_seconds()
        if isinstance(cell, time):
            return cell.isoformat()
        if not isinstance(cell, str):
            return cell
        value = number_or_text(cell)
        return (self._stated(value) if isinstance(value, str) and _DATED.search(heading) else None) or value

    def _stated(self, cell: Cell) -> str | None:
        """A time in UTC, or a day as it stands: moved to UTC a day could become the one before."""
        moment = parse_moment(cell, self.zone, self.order)
        if isinstance(moment, datetime):
            return iso_utc(moment)
        return moment.isoformat() if moment else None

    def _detail(self, heading: str, cell: Cell) -> None:
        text = plain(cell)
        if text and not heading.startswith("column "):
            self.details.append(f"{heading}: {text}")
        if re.fullmatch(r"https?://\S+", text):
            self._link(Link("url", text, heading))

    def _link(self, *links: Link) -> None:
        for link in links:
            self.links.setdefault((link.kind, link.target), link)

    def _relation(self, name: str, prefix: str) -> None:
        cell = self.row.values.get(name)
        if cell is None:
            return
        ids = related_ids(cell)
        if ids:
            self.fields[name] = ids
        self._link(*(related_link(token, prefix) for token in ids))
        self._detail(self.columns[name], cell)

    def _access(self) -> tuple[str, ...]:
        if "access" not in self.columns:
            return self.source.feed.access
        # A label that is due and cannot be read admits nobody.
        cell = self.row.values.get("access")
        return labels(cell) if isinstance(cell, str) else ()


def plain(cell: Cell) -> str:
    """The text of a cell; markup in it is taken off."""
    text = cell_text(cell)
    if _MARKUP.search(text):
        from aps_rag_pipeline.content.markup import html_to_text

        return html_to_text(text).strip()
    return text


def shortened(text: str) -> str:
    """The first line of a text as a title, cut at a word where it is long."""
    line = " ".join(text.strip().split("\n", 1)[0].split())
    if len(line) <= _MAX_TITLE:
        return line
    return line[:_MAX_TITLE].rsplit(" ", 1)[0].rstrip(" ,;:") + "…"


def labels(text: str) -> tuple[str, ...]:
    """Access labels of a cell, parted by commas, semicolons, bars or lines."""
    return tuple(sorted({label.strip() for label in re.split(r"[,;|\n]", text) if label.strip()}))


def related_ids(cell: Cell) -> list[str]:
    """The ids in a cell, parted by commas, semicolons and blanks, once each."""
    tokens = (token.strip("()[]").strip(".:").lstrip("#") for token in re.split(r"[,;\s]+", cell_text(cell)))
    return list(dict.fromkeys(token for token in tokens if token and token.casefold() not in _FILLERS))


def related_link(token: str, prefix: str) -> Link:
    """A link to the record that a token names: by address, by citation key, or by an id of the source of `prefix`."""
    if token.startswith(("http://", "https://")):
        return Link("url", token)
    stated, _, rest = token.partition(":")
    if rest and stated in KIND_OF_PREFIX:
        prefix, token = stated, rest
    return Link(KIND_OF_PREFIX[prefix], token if prefix == "PV" else f"{prefix}:{token}")


def _own(key: str, record_id: str) -> tuple[str, str]:
    """What a link of a record to itself would be filed under."""
    prefix = KEY_PREFIX[key]
    return KIND_OF_PREFIX[prefix], f"{prefix}:{record_id}"
