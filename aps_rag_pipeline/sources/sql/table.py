"""The configured query as a table: its columns, the statements that ask it, and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.content.tables import Cell, Row, Wanted
from aps_rag_pipeline.sources.base import FeedError, UnreadableError
from aps_rag_pipeline.sources.sql.cells import bytes_left_out, cell_of, id_cell
from aps_rag_pipeline.sources.sql.session import Database

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Executable, Select, Subquery

_SHOWN_COLUMNS = 40


@dataclass(frozen=True)
class TableRow:
    """A row, the ids it has in the database's own type, and what of it was left out because it is no text."""

    row: Row
    key: Any
    left_out: tuple[str, ...] = ()


class QueryTable:
    """The query, asked for its columns.

    Every statement holds the query in parentheses, where a database takes nothing but a SELECT.

    Raises:
        FeedError: it lacks a wanted column, gives one twice, or the column map has a name that means nothing.
        OutageError: the database is away.
    """

    def __init__(
        self, database: Database, query: str, wanted: Wanted, zone: tzinfo, encoding: str | None = None
    ) -> None:
        self._query = query
        self._zone, self._encoding = zone, encoding
        self.where = database.where
        try:
            wanted.check_names()
        except UnreadableError as error:
            raise FeedError(f"{self.where}: {error}; {error.remedy}") from error
        self.headings = self._described(database)
        found = wanted.match([" ".join(heading.split()) for heading in self.headings])
        if lacking := wanted.missing(found):
            raise self._missing(lacking)
        self._ours = {index: name for name, index in found.items()}
        #: Our names -> the columns that were found for them.
        self.columns = {name: self.headings[index] for name, index in found.items()}

    def all(self) -> Select[Any]:
        from sqlalchemy import select

        return select(self._sub(self.headings))

    def marks(self) -> Select[Any]:
        """Ids and the times of the last change, of every row."""
        from sqlalchemy import select

        named = [self.columns["id"], self.columns["updated"]]
        return select(self._sub(named))

    def of_keys(self, keys: Sequence[Any]) -> Select[Any]:
        """The rows that have one of these ids; None asks for those that have none."""
        from sqlalchemy import bindparam, or_, select
        from sqlalchemy.types import NullType

        sub = self._sub(self.headings)
        column = sub.c[self.columns["id"]]
        stated = [key for key in keys if key is not None]
        choices: list[ColumnElement[bool]] = []
        if stated:
            choices.append(column.in_(bindparam("keys", stated, expanding=True, type_=NullType())))
        if len(stated) < len(keys):
            choices.append(column.is_(None))
        return select(sub).where(or_(*choices))

    def count(self) -> Executable:
        from sqlalchemy import func, select

        return select(func.count()).select_from(self._sub(self.headings))

    def row(self, values: Sequence[Any], place: str = "") -> TableRow:
        """A row of `all` or `of_keys`."""
        ours: dict[str, Cell] = {}
        others: dict[str, Cell] = {}
        key: Any = None
        left_out: list[str] = []
        for index, value in enumerate(values):
            if value is None:
                continue
            name = self._ours.get(index, "")
            if name == "id":
                key = _bindable(value)
                cell = self.id_cell(value)
            else:
                cell = cell_of(value, self._zone, self._encoding)
            if cell == "":
                if size := bytes_left_out(value, cell):
                    left_out.append(f'the column "{self.headings[index]}" holds {size} bytes that are no text')
            elif name:
                ours[name] = cell
            else:
                others[self.headings[index]] = cell
        return TableRow(Row(place, ours, others), key, tuple(left_out))

    def mark(self, values: Sequence[Any]) -> tuple[Any, Cell, Cell]:
        """A row of `marks`: the id in its own type, the id, and the time of the last change."""
        key, updated = values
        return _bindable(key), self.id_cell(key), cell_of(updated, self._zone, self._encoding)

    def id_cell(self, value: Any) -> Cell:
        return id_cell(value, self._zone, self._encoding)

    def _described(self, database: Database) -> list[str]:
        from sqlalchemy import false, literal_column, select

        headings = database.names(select(literal_column("*")).select_from(self._sub(())).where(false()))
        twice = sorted({name for name in headings if headings.count(name) > 1})
        if twice:
            raise FeedError(
                f"{self.where}: the query gives two columns the name {', '.join(twice)}; name one with AS in "
                "`options.query`"
            )
        return headings

    def _missing(self, lacking: dict[str, str]) -> FeedError:
        named = ", ".join(
            f'"{heading}"' + ("" if heading == name else f" (for {name})") for name, heading in lacking.items()
        )
        there = ", ".join(f'"{heading}"' for heading in self.headings[:_SHOWN_COLUMNS])
        return FeedError(
            f"{self.where}: the query gives no column {named}; its columns are {there}; mend `columns` of the feed or "
            "`options.query`"
        )

    def _sub(self, names: Sequence[str]) -> Subquery:
        from sqlalchemy import column, text
        from sqlalchemy.types import NullType

        # A colon would begin a parameter; a line end closes a comment at the query's end.
        literal = self._query.replace(":", r"\:") + "\n"
        return text(literal).columns(*(column(name, NullType()) for name in names)).subquery("q")


def _bindable(key: Any) -> Any:
    return bytes(key) if isinstance(key, memoryview) else key
