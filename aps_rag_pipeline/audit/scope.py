"""What an audit looks at row by row: everything, or what has moved since a changeset up to which all was proved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aps_rag_pipeline.audit.spans import Span, spans
from aps_rag_pipeline.stores.catalog import Catalog

#: Numbers of the records that moved, in a table of this connection alone.
_MOVED = "temp.moved_records"


class Scope:
    """`since` is that changeset; without one everything is in scope."""

    def __init__(self, catalog: Catalog, since: int | None = None) -> None:
        self._catalog = catalog
        self._since = since
        if since is not None:
            catalog.connection.execute(f"drop table if exists {_MOVED}")
            catalog.connection.execute(f"create table {_MOVED} (rid integer primary key)")
            for table in ("records", "edges"):  # an edge may move with the record that it leads to
                catalog.connection.execute(
                    f"insert or ignore into {_MOVED} select rid from {table} where changeset > ?", (since,)
                )
            for table in ("passages", "chunks", "mentions", "edges"):  # rows of records that there are not
                catalog.connection.execute(
                    f"insert or ignore into {_MOVED} select rid from {table} where rid not in (select rid from records)"
                )

    @property
    def whole(self) -> bool:
        return self._since is None

    def size(self) -> int:
        """How many records are in scope, removed ones too."""
        return int(self._catalog.value(f"select count(*) from {self._records}"))

    def records(self) -> Iterator[Span[int]]:
        """Stretches of the records in scope, removed ones too."""
        return spans("rid", self._column(f"select rid from {self._records} order by rid"), alone=not self.whole)

    def nodes(self) -> Iterator[Span[str]]:
        """Stretches of the nodes in scope."""
        if self.whole:
            return spans("node_id", self._column("select distinct node_id from mentions order by node_id"))
        moved = (
            f"select node_id from nodes where changeset > {self._since} "
            f"union select node_id from mentions where {self.of_these} order by node_id"
        )
        return spans("node_id", self._column(moved), alone=True)

    @property
    def of_these(self) -> str:
        """As a condition in the catalog on a column `rid`."""
        return "rid is not null" if self.whole else f"rid in (select rid from {_MOVED})"

    @property
    def _records(self) -> str:
        return "records" if self.whole else _MOVED

    def _column(self, query: str) -> Iterator[Any]:
        return (row[0] for row in self._catalog.connection.execute(query))
