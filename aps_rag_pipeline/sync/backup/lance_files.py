"""The files of one version of a Lance table, and tables of a backup brought in line with its catalog."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.releases import Manifest
from aps_rag_pipeline.stores.tables import EDGES, NODES, SCHEMAS
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import rows
from aps_rag_pipeline.sync.backup.contents import BackupError, files_below
from aps_rag_pipeline.sync.graph import edges_after, nodes_after

#: Lance names the manifest of a version so that the newest comes first.
_NEWEST_FIRST = 2**64 - 1


def of_version(home: Home, name: str, version: int) -> list[Path]:
    """Files that a version of a table consists of, and the tags that name it.

    Data files are written once, and a version's manifest names its own. Of the marks of deleted rows, which it does not
    name, all older ones are taken; they are small.

    Raises:
        BackupError: the version is not there.
    """
    folder = home.lance / f"{name}.lance"
    manifest = _manifest(folder, version)
    named = manifest.read_bytes()
    data = files_below(folder / "data")
    found = [path for path in data if path.name.encode() in named] or data
    found += [path for path in files_below(folder / "_transactions") if path.name.encode() in named]
    for index in _folders(folder / "_indices"):
        if uuid.UUID(index.name).bytes in named or index.name.encode() in named:
            found += files_below(index)
    found += [path for path in files_below(folder / "_deletions") if int(path.name.split("-")[1]) < version]
    found += [path for path in (folder / "_refs" / "tags").glob("*.json") if _tags(path, version)]
    return [*found, manifest]


def _manifest(folder: Path, version: int) -> Path:
    for number in (f"{_NEWEST_FIRST - version:020d}", str(version)):
        if (path := folder / "_versions" / f"{number}.manifest").is_file():
            return path
    raise BackupError(
        f"{folder}: version {version}, which the release names, is not there; `aps-rag audit` tells what else is wrong"
    )


def _folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.is_dir())


def _tags(path: Path, version: int) -> bool:
    return bool(json.loads(path.read_bytes()).get("version") == version)


def level_graph(home: Home, catalog: Catalog, changeset: int) -> None:
    """Bring the working nodes and edges, copied as of a changeset, to those of the catalog.

    The graph's stage writes what a record states now. Of what it stated at the release and no longer does, the catalog
    may hold nothing any more, so a repeated stage would not find it.
    """
    tables = LanceTables(home)
    for name, column, after in ((NODES, "node_id", nodes_after), (EDGES, "edge_id", edges_after)):
        live, gone = after(catalog, changeset)
        table = tables.table(name)
        there = set(table.search().select([column]).limit(table.count_rows() + 1).to_arrow()[column].to_pylist())
        known = {row[0] for row in catalog.connection.execute(f"select {column} from {name} where removed = 0")}
        stale = {row[column] for row in live} | set(gone) | (there - known)
        if stale:
            tables.replace(name, SCHEMAS[name], column, sorted(stale), [rows.batch(live, SCHEMAS[name])])


def demand_rows(home: Home, manifest: Manifest) -> None:
    """Raises:
    BackupError: a released table cannot be read to its end, or has another number of rows than the release says.
    """
    tables = LanceTables(home)
    for name, version in manifest.tables.items():
        table = tables.table(name)
        table.checkout(version)
        column = SCHEMAS[name].names[0] if name in SCHEMAS else "rid"
        count = table.count_rows()
        read = table.search().select([column]).limit(count + 1).to_arrow().num_rows
        wanted = manifest.counts.get("chunks" if name.startswith("chunks_") else name, count)
        if not count == read == wanted:
            raise BackupError(f"{home.lance / name}: has {read} rows, the release says {wanted}; run `aps-rag audit`")
