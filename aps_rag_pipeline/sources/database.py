"""Work requests and downtime straight from a database: any that SQLAlchemy reaches, one SELECT, one record a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, ClassVar

from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.tables import Cell, Row, cell_text
from aps_rag_pipeline.sources.base import Failure, FeedError, Found, Ignored, UnreadableError, Upsert
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan, digest
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.options import read_options
from aps_rag_pipeline.sources.sql.options import SqlOptions
from aps_rag_pipeline.sources.sql.session import Database
from aps_rag_pipeline.sources.sql.table import QueryTable, TableRow
from aps_rag_pipeline.sources.tabular import MAX_ID, RowSource, first_of, id_text, plain, shortened

#: Ids in one statement: databases take from 1,000 parameters up.
_BLOCK = 500
#: Where more than this share of the rows is looked at, one pass over all of them is cheaper than asking for each.
_MANY = 0.2


@dataclass(frozen=True)
class RowUnit(Listed):
    """The rows of one id; nearly always one. `keys` are the id as the database has it. A row without an id is a unit
    too, named by its content, so that it can be told, and forgotten when it has been given one."""

    keys: tuple[Any, ...]
    place: str = ""


@dataclass(slots=True)
class _Seen:
    """What the listing has found of one id."""

    keys: list[Any] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    #: When it was last changed, where that can be told.
    settled: datetime | None = None

    def add(self, key: Any, state: str) -> None:
        if key not in self.keys:
            self.keys.append(key)
        self.states.append(state)


class DatabaseSource(RowSource, LiveSource[RowUnit]):
    """A feed that is one SELECT of a database. Subclasses declare its columns, as for tables in files."""

    block: ClassVar[int] = _BLOCK
    parallel: ClassVar[int] = 1  # one connection, one snapshot

    def scan(self, memory: Memory) -> DatabaseScan:
        return DatabaseScan(self, memory)

    def inventory(self) -> Iterator[str]:
        with closing(self.scan(Memory())) as scan:
            yield from (unit.name for unit in scan.units() if unit.keys and len(unit.name) <= MAX_ID)

    def check(self) -> Found:
        with closing(self.scan(Memory())) as scan:
            table = scan.table
            ((count,),) = scan.database.rows(table.count(), 1)
        if not count:
            raise FeedError(f"{table.where}: answers, but the query gives no row; check `options.query`")
        columns = ", ".join(f"{name}: {heading}" for name, heading in table.columns.items())
        return Found(count, f"{table.where} answers; {count} rows; columns {columns}")


class DatabaseScan(Scan[RowUnit]):
    """One look at the rows of a query.

    Nothing is missed, because every look lists the id of every row that there is, in one statement and therefore one
    snapshot, with a token that moves:

    - Without a trusted `updated` column the token is a digest of the row.
    - With one it is the value of that column as it stands; it is compared with the value of the last look, never with a
      clock, so that late entries, clocks that are wrong and transactions committed late are seen. What it cannot tell
      is a second edit with the same value. Rows whose value lies within `overlap_hours` of the newest (the column may
      hold whole seconds, or days) therefore have the digest added, and are looked at once more when newer values move
      them out of that span. So have all rows whose value lies that far in the future of the database's own clock, which
      would else be the newest for ever, and all without a value or with one that is no time.
    - An edit that leaves the column alone is found when the feed is reconciled, which reads everything again; where
      edits do that, `trust_updated: false` digests every row in every look.

    Rows are then read by id. In PostgreSQL that is the snapshot of the listing. Elsewhere what is read can be newer
    than the token, never older, and the next look reads it again. A row that is gone by then counts as gone.

    Of the rows only ids and tokens are held, and one block of those that moved.
    """

    def __init__(self, source: DatabaseSource, memory: Memory) -> None:
        super().__init__(source.feed, source.context, memory)
        self._source = source
        self._options = read_options(source.feed, SqlOptions)
        self.database = Database(source.feed, source.context)
        self._table: QueryTable | None = None
        self._block: dict[str, list[TableRow]] = {}

    @property
    def table(self) -> QueryTable:
        """The query, asked for its columns when first needed."""
        if self._table is None:
            zone, encoding = self.context.zone, self.feed.encoding
            self._table = QueryTable(self.database, self._options.query, self._source.wanted, zone, encoding)
        return self._table

    def units(self) -> Iterator[RowUnit]:
        found: dict[str, _Seen] = {}
        nameless: dict[str, RowUnit] = {}
        if self._options.trust_updated and "updated" in self.feed.columns:
            self._by_mark(found, nameless)
        else:
            self._by_digest(found, nameless)
        if nameless and not found:
            raise FeedError(
                f'{self.table.where}: no row has an id in the column "{self.table.columns["id"]}"; mend `columns` of '
                "the feed or `options.query`"
            )
        for name, seen in found.items():
            state = seen.states[0] if len(seen.states) == 1 else digest(*sorted(seen.states))
            yield RowUnit(name, state, tuple(seen.keys))
        yield from nameless.values()

    def prefetch(self, units: Sequence[RowUnit]) -> None:
        self._block = {}
        self._block = self._rows_of([key for unit in units for key in unit.keys])

    def read(self, unit: RowUnit) -> Iterator[Upsert | Failure | Ignored]:
        columns = self.table.columns
        if not unit.keys:
            yield self._source.change(unit.name, columns, Row(unit.place, {}, {}))
            return
        rows = self._block.pop(unit.name, None) or self._rows_of(unit.keys).get(unit.name)
        if not rows:
            raise GoneError(f"{self.table.where}: the row {unit.name} is gone")
        seen: dict[str, Upsert] = {}
        rows.sort(key=_content)  # which of several is the first must not depend on where they lie
        for number, found in enumerate(rows, 1):
            place = f"{self.table.where}: id {unit.name}" + (f", row {number} of {len(rows)}" if len(rows) > 1 else "")
            yield from (Ignored(place, reason) for reason in found.left_out)
            row = Row(place, found.row.values, found.row.others)
            yield first_of(seen, self._source.change(unit.name, columns, row))

    def alive(self) -> bool:
        try:
            for _ in self.database.rows(self.table.count(), 1):
                pass
        except FeedError:
            return False
        return True

    def close(self) -> None:
        self.database.close()

    def _by_digest(self, found: dict[str, _Seen], nameless: dict[str, RowUnit]) -> None:
        for values in self.database.rows(self.table.all(), self._options.page_rows):
            self._note(self.table.row(values), found, nameless)

    def _by_mark(self, found: dict[str, _Seen], nameless: dict[str, RowUnit]) -> None:
        unnamed: list[Any] = []
        for values in self.database.rows(self.table.marks(), self._options.page_rows):
            key, cell, updated = self.table.mark(values)
            if name := _named(cell):
                seen = found.setdefault(name, _Seen())
                seen.add(key, _mark(updated))
                alone = len(seen.states) == 1  # which of several rows is meant, no time can tell
                seen.settled = parse_time(updated, self.context.zone, self.feed.date_order) if alone else None
            elif key not in unnamed:
                unnamed.append(key)
        unsettled = self._unsettled(found)
        if len(unsettled) > _MANY * len(found):
            rows: Iterable[TableRow] = self._all_rows()
        else:
            rows = self._by_key(key for name in unsettled for key in found[name].keys)
        for each in rows:
            if (name := _named(each.row.values.get("id", ""))) in unsettled:
                found[name].states.append(_state(each))
        for each in self._by_key(iter(unnamed)):
            self._note(each, {}, nameless)

    def _unsettled(self, found: dict[str, _Seen]) -> set[str]:
        """The ids whose `updated` does not tell whether their rows are as they were."""
        overlap = timedelta(hours=self._options.overlap_hours)
        moments = [seen.settled for seen in found.values() if seen.settled is not None]
        ceiling = self._now() + overlap
        newest = max((moment for moment in moments if moment <= ceiling), default=None)
        return {
            name
            for name, seen in found.items()
            if seen.settled is None or newest is None or seen.settled > ceiling or newest - seen.settled <= overlap
        }

    def _now(self) -> datetime:
        """The database's own time."""
        from sqlalchemy import func, select

        ((now,),) = self.database.rows(select(func.current_timestamp()), 1)
        zone = UTC if self.database.dialect == "sqlite" else self.context.zone
        return parse_time(now, zone) or datetime.max.replace(tzinfo=UTC)

    def _note(self, each: TableRow, found: dict[str, _Seen], nameless: dict[str, RowUnit]) -> None:
        state = _state(each)
        if name := _named(each.row.values.get("id", "")):
            found.setdefault(name, _Seen()).add(each.key, state)
            return
        name = f"(no id) {state}"
        title = next((text for wanted in ("title", *self._source.texts) if (text := self._text(each, wanted))), "")
        nameless[name] = RowUnit(name, state, (), f"{self.table.where}: a row without id ({title or 'no title'})")

    def _text(self, each: TableRow, name: str) -> str:
        return shortened(plain(each.row.values.get(name, "")))

    def _all_rows(self) -> Iterator[TableRow]:
        return map(self.table.row, self.database.rows(self.table.all(), self._options.page_rows))

    def _by_key(self, keys: Iterable[Any]) -> Iterator[TableRow]:
        keys = iter(keys)
        while block := list(islice(keys, _BLOCK)):
            statement = self.table.of_keys(block)
            yield from map(self.table.row, self.database.rows(statement, self._options.page_rows))

    def _rows_of(self, keys: Sequence[Any]) -> dict[str, list[TableRow]]:
        """The rows that have these ids, by the unit's name.

        Raises:
            UnreadableError: the database cannot compute one of them.
        """
        rows: dict[str, list[TableRow]] = {}
        try:
            for each in self._by_key(keys):
                rows.setdefault(_named(each.row.values.get("id", "")), []).append(each)
        except OutageError:
            raise
        except FeedError as error:
            raise UnreadableError(str(error), remedy="mend the row or the query", permanent=False) from error
        return rows


def _named(cell: Cell) -> str:
    """The name of a row's unit: its id, or what stands for one that is far too long; empty for a row without one."""
    name = id_text(cell)
    return name if len(name) <= MAX_ID else f"{name[:80]}… {digest(name)}"


def _mark(updated: Cell) -> str:
    """A time of the last change as a token that does not depend on zones."""
    if isinstance(updated, datetime):
        return (updated.astimezone(UTC) if updated.tzinfo else updated).isoformat()
    return cell_text(updated)


def _state(each: TableRow) -> str:
    values = (f"{name}={cell!r}" for cells in (each.row.values, each.row.others) for name, cell in cells.items())
    return digest(*values)


def _content(each: TableRow) -> list[tuple[str, str]]:
    return [(name, cell_text(c)) for cells in (each.row.values, each.row.others) for name, c in cells.items()]
