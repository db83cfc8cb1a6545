"""The working side of LanceDB: tables that one writer changes record by record, compacted before a release is cut."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.stores import indexing
from aps_rag_pipeline.stores.damage import DamagedStoreError, reading
from aps_rag_pipeline.stores.durable import write_through, write_through_all
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.indexing import Kind
from aps_rag_pipeline.stores.lance import lancedb
from aps_rag_pipeline.stores.releases import written_at
from aps_rag_pipeline.stores.tables import sql_list

log = logging.getLogger(__name__)

#: Of the folder of a table.
_SUFFIX = ".lance"
#: Longest `in (...)` of one deletion.
_IDS_PER_DELETE = 5000
#: Rows in memory while a table is written anew, a few times over.
_REWRITTEN_ROWS = 4096
#: A table with more fragments than this is compacted before it is released; a small one, where that takes no time and
#: the beginnings of files weigh, in any case.
_MANY_FRAGMENTS, _SMALL = 24, 5000
#: Nor one in which more than one row in so many has been deleted: its files keep them.
_DELETED_ONE_IN = 8


class LanceTables:
    """The tables of a home. Concurrent writers would duplicate rows: the home's writer lock must be held."""

    def __init__(self, home: Home) -> None:
        self._home, self._folder = home, home.lance
        self._open: dict[str, Any] = {}

    @cached_property
    def _connection(self) -> Any:
        # Importing LanceDB takes longer than finding out that a sync has nothing to do.
        return lancedb().connect(self._folder)

    def exists(self, name: str) -> bool:
        return _has_version(self.folder(name))

    def names(self) -> list[str]:
        return sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}") if _has_version(path))

    def table(self, name: str, schema: pa.Schema | None = None) -> Any:
        if name not in self._open:
            if self.exists(name):
                self._open[name] = self._connection.open_table(name)
            elif schema is not None:
                passing("lance.create.before")
                self._open[name] = self._connection.create_table(name, schema=schema)
                passing("lance.create.after")
            else:
                raise KeyError(f"no table {name}")
        return self._open[name]

    def replace(
        self, name: str, schema: pa.Schema, column: str, values: Sequence[int | str], rows: Iterable[pa.RecordBatch]
    ) -> int:
        """Delete the rows whose `column` is one of `values` and append `rows`; gives how many were appended."""
        table = self.table(name, schema)
        if table.count_rows():
            passing("lance.delete.before")
            for start in range(0, len(values), _IDS_PER_DELETE):
                table.delete(f"{column} in ({sql_list(values[start : start + _IDS_PER_DELETE])})")
            passing("lance.delete.after")
        batches = [batch for batch in rows if batch.num_rows]
        if batches:
            passing("lance.add.before")
            table.add(pa.Table.from_batches(batches, schema=schema))
            passing("lance.add.after")
        return sum(batch.num_rows for batch in batches)

    def carry(self, *names: str) -> None:
        """Carry to the disk what was written of these tables since the newest release: Lance does not wait for it."""
        since = written_at(self._home)
        for name in names:
            write_through_all(self.folder(name), since=since)
        write_through(self._folder)

    def settle(self, name: str, indexed: Mapping[str, Kind]) -> int:
        """Compact a table that has fallen into many pieces, build what indexes it is large enough for, keep those that
        it has whole, and give its version."""
        table = self.table(name)
        indexing.bring_up_to_date(table, indexed, compact=_in_pieces(table))
        return int(table.version)

    def forget_versions(self, name: str, older_than: timedelta) -> None:
        """Drop versions of this age but those that are tagged and the newest, and what a writer that died has left."""
        import lance

        dataset = lance.dataset(self.table(name).uri)
        # Files that no version names can be those of a writer at work: there is none but the one that calls this.
        dataset.cleanup_old_versions(older_than=older_than, delete_unverified=True, error_if_tagged_old_versions=False)
        for path in [*self.folder(name).glob("*/.tmp*"), *self.folder(name).glob("_versions/*#*")]:
            path.unlink(missing_ok=True)

    def rewrite(self, name: str) -> None:
        """Write a table anew as its next version, so that deleted rows are in no file of it. Rows are read as they are
        written: the files of the version before stay until it is forgotten."""
        import lance

        table = self.table(name)
        rows = lance.dataset(table.uri, version=int(table.version)).scanner(batch_size=_REWRITTEN_ROWS).to_reader()
        self._open[name] = self._connection.create_table(name, data=rows, schema=table.schema, mode="overwrite")

    def set_back(self, name: str, version: int) -> None:
        """Make the newest version of a table hold what an earlier one holds."""
        self.table(name).restore(version)

    def tags(self, name: str) -> list[str]:
        """Names of the tags of a table, sorted; also of those that cannot be read."""
        return sorted(path.stem for path in self._tag_file(name, "*").parent.glob("*.json"))

    def _tag_file(self, name: str, tag: str) -> Path:
        return self.folder(name) / "_refs" / "tags" / f"{tag}.json"

    def tagged(self, name: str, tag: str) -> int | None:
        """The version that a tag names; None where there is no such tag, or none that can be read."""
        if not self._tag_file(name, tag).exists():
            return None
        try:
            with reading(self.folder(name)):
                return int(self.table(name).tags.get_version(tag))
        except DamagedStoreError:
            return None

    def tag(self, name: str, tag: str, version: int) -> None:
        """Set a tag to a version, whatever it named before."""
        self.untag(name, tag)
        self.table(name).tags.create(tag, version)

    def untag(self, name: str, tag: str) -> None:
        if self._tag_file(name, tag).exists():
            self.table(name).tags.delete(tag)

    def drop(self, name: str) -> None:
        """Drop a table, at once or not at all: files are deleted one by one, and half a table could not be read."""
        self._open.pop(name, None)
        gone = self._folder / f".gone-{name}"
        shutil.rmtree(gone, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.folder(name), gone)
        shutil.rmtree(gone, ignore_errors=True)

    def drop_remains(self) -> None:
        """Of tables whose dropping was cut off."""
        for path in self._folder.glob(".gone-*"):
            shutil.rmtree(path, ignore_errors=True)

    def folder(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"


def _has_version(folder: Path) -> bool:
    """A writer that died while it made a table leaves a folder without one."""
    return any((folder / "_versions").glob("*.manifest"))


def _in_pieces(table: Any) -> bool:
    pieces = table.stats()["fragment_stats"]["num_small_fragments"]
    if pieces > (1 if table.count_rows() < _SMALL else _MANY_FRAGMENTS):
        return True
    newest = max(table.list_versions(), key=lambda version: version["version"])["metadata"]
    return int(newest["total_deletion_file_rows"]) * _DELETED_ONE_IN > int(newest["total_data_file_rows"])
