"""Released tables → SQL models → Parquet files, each written beside its old version and renamed into place."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.stores.durable import write_through
from aps_rag_pipeline.stores.sql_models import INPUTS, SqlModel, in_order, load_models
from aps_rag_pipeline.stores.tables import EDGES, RECORDS
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync.names import MARTS
from aps_rag_pipeline.sync.workspace import StageReport, Workspace

#: The layers that are built for readers; of the third, `tests`, the rows that were found are kept.
LAYERS = ("staging", "marts")

#: Gives a released table by name.
Read = Callable[[str], pa.Table]


def mart_path(workspace: Workspace, name: str) -> Path:
    return workspace.home.marts / f"{name}.parquet"


def stage_name(model: SqlModel) -> str:
    return f"{MARTS}:{model.name}"


def version_of(model: SqlModel) -> str:
    """Of the model and of every model below it: a changed staging query redoes the marts that read it."""
    models = load_models()
    below = [version_of(models[name]) for name in model.references if name not in INPUTS]
    return ".".join([model.code_version, *below])


def build_mart(workspace: Workspace, model: SqlModel) -> StageReport:
    """Run one model over the newest changeset; nothing is done when it has been."""
    catalog = workspace.catalog
    version, target = version_of(model), catalog.changeset()
    report = StageReport(stage_name(model), version, target)
    report.counts["changed"] = 0
    path = mart_path(workspace, model.name)
    if path.is_file() and catalog.applied(report.stage, version) == target:
        return report
    draft = path.with_name(f".{path.name}")
    passing("mart.write.before")
    report.counts["rows"] = write_model(model, draft, read_working(workspace), path.parent)
    report.counts["changed"] = 1
    write_through(draft)
    passing("mart.rename.before")
    os.replace(draft, path)
    passing("mart.rename.after")
    write_through(path.parent)  # the note would outlive the renaming
    with catalog.transaction():
        catalog.set_applied(report.stage, version, target)
    return report


def read_working(workspace: Workspace) -> Read:
    """Reads the working tables."""
    tables = LanceTables(workspace.home)
    return lambda name: tables.table(name).to_arrow()


def write_model(model: SqlModel, path: Path, read: Read, below: Path) -> int:
    """Run one model over released tables, and over other models' files in the folder `below`; gives the rows."""
    with _database(model, read, below) as connection:
        # A single thread and the model's own order: equal tables give equal bytes.
        connection.execute("set threads = 1")
        connection.execute(f"copy ({model.sql}) to '{_quoted(path)}' (format parquet, compression zstd)")
        row = connection.execute(f"select count(*) from '{_quoted(path)}'").fetchone()
        return row[0] if row else 0


def build_marts(workspace: Workspace) -> StageReport:
    """All models in order, as one report."""
    total: Counter[str] = Counter(changed=0)
    for model in in_order(load_models()):
        if model.layer in LAYERS:
            total.update(build_mart(workspace, model).counts)
    return StageReport("marts", "sql", workspace.catalog.changeset(), total)


def failing_rows(workspace: Workspace, test: SqlModel, limit: int = 20) -> list[dict[str, Any]]:
    """Rows that a data test objects to; none when it passes. It is run once for a changeset, as the models are."""
    import pyarrow.parquet as pq

    build_mart(workspace, test)
    found: list[dict[str, Any]] = pq.ParquetFile(mart_path(workspace, test.name)).read().slice(0, limit).to_pylist()
    return found


def _database(model: SqlModel, read: Read, below: Path) -> Any:
    """An in-memory database that knows what the model selects from."""
    import duckdb

    connection = duckdb.connect()
    for name in model.references:
        if name in INPUTS:
            connection.register(name, read({"records": RECORDS, "edges": EDGES}[name]))
        else:
            connection.execute(f"create view {name} as select * from '{_quoted(below / f'{name}.parquet')}'")
    return connection


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
