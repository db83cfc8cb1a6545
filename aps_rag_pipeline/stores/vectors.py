"""The working side of LanceDB: tables that one writer changes record by record, compacted before a release is cut."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.lance import lancedb
from aps_rag_pipeline.stores.tables import sql_list

log = logging.getLogger(__name__)

#: Longest `in (...)` of one deletion.
_IDS_PER_DELETE = 5000
#: A table with more fragments than this is compacted before it is released.
_MANY_FRAGMENTS = 24
#: Compaction leaves old versions alone: the collector drops them when no release needs them.
_NEVER = timedelta(days=36_500)
#: Scalar indexes pay from this size on; below it a scan is as fast.
INDEX_FROM_ROWS = 20_000


class LanceTables:
    """The tables of a home. Concurrent writers would duplicate rows: the home's writer lock must be held."""

    def __init__(self, home: Home) -> None:
        self._connection = lancedb().connect(home.lance)
        self._open: dict[str, Any] = {}

    def exists(self, name: str) -> bool:
        return name in self.names()

    def names(self) -> list[str]:
        return list(self._connection.list_tables(limit=10_000).tables)

    def table(self, name: str, schema: pa.Schema | None = None) -> Any:
        if name not in self._open:
            if self.exists(name):
                self._open[name] = self._connection.open_table(name)
            elif schema is not None:
                self._open[name] = self._connection.create_table(name, schema=schema)
            else:
                raise KeyError(f"no table {name}")
        return self._open[name]

    def replace(
        self, name: str, schema: pa.Schema, column: str, values: Sequence[int | str], rows: Iterable[pa.RecordBatch]
    ) -> int:
        """Delete the rows whose `column` is one of `values` and append `rows`; gives how many were appended."""
        table = self.table(name, schema)
        if table.count_rows():
            for start in range(0, len(values), _IDS_PER_DELETE):
                table.delete(f"{column} in ({sql_list(values[start : start + _IDS_PER_DELETE])})")
        batches = [batch for batch in rows if batch.num_rows]
        if batches:
            table.add(pa.Table.from_batches(batches, schema=schema))
        return sum(batch.num_rows for batch in batches)

    def settle(self, name: str, index_columns: Sequence[str]) -> int:
        """Compact a table that has fallen into many pieces, keep its indexes whole, and give its version."""
        table = self.table(name)
        indexed = {column for index in table.list_indices() for column in index.columns}
        if table.count_rows() >= INDEX_FROM_ROWS:
            for column in set(index_columns) - indexed:
                table.create_scalar_index(column)
        if indexed or table.stats()["fragment_stats"]["num_small_fragments"] > _MANY_FRAGMENTS:
            table.optimize(cleanup_older_than=_NEVER)
        return int(table.version)

    def forget_versions(self, name: str, before: datetime) -> None:
        """Drop the versions written before a moment; none of them may be pinned by a tag."""
        age = datetime.now(UTC) - before
        self.table(name).optimize(cleanup_older_than=max(age, timedelta(0)), delete_unverified=False)

    def rewrite(self, name: str) -> None:
        """Write a table anew, so that deleted rows are in no file of it."""
        table = self.table(name)
        rows, schema = table.to_arrow(), table.schema
        self._open.pop(name)
        self._connection.drop_table(name)
        self._open[name] = self._connection.create_table(name, data=rows, schema=schema)

    def drop(self, name: str) -> None:
        self._open.pop(name, None)
        self._connection.drop_table(name)
