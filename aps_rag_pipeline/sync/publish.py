"""Everything applied → a release.

A release is written last: tables are tagged, BM25 segments and marts hard-linked into a draft folder, the manifest
added, and the folder renamed into place. Until then readers see the one before.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.models import ModelDescription
from aps_rag_pipeline.stores import releases, sparse
from aps_rag_pipeline.stores.durable import write_through, write_through_all
from aps_rag_pipeline.stores.indexing import Kind
from aps_rag_pipeline.stores.releases import LEASE, MANIFEST, Manifest, ReleasedModel
from aps_rag_pipeline.stores.sql_models import load_models
from aps_rag_pipeline.stores.tables import EDGES, NODES, PASSAGES, RECORDS, chunks_table
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import freshness, names, scrub, state
from aps_rag_pipeline.sync.collection import collect, tag_of
from aps_rag_pipeline.sync.marts import mart_path, stage_name
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.workspace import StageReport, Workspace

#: Stages that must have applied a changeset before it is released; marts besides.
_NEEDED = (names.OCR, names.PASSAGES, names.CHUNKS, names.EMBEDDINGS, names.DENSE, names.SPARSE, names.GRAPH)
#: Columns that filters and look-ups use, by table, and the kind of index each gets once a table is large.
_ORIGIN: dict[str, Kind] = {"rid": "BTREE", "source": "BITMAP", "feed": "BITMAP", "access": "LABEL_LIST"}
_LOOKUPS: dict[str, dict[str, Kind]] = {
    RECORDS: {**_ORIGIN, "key": "BTREE", "created_at": "BTREE"},
    PASSAGES: {**_ORIGIN, "passage_id": "BTREE", "key": "BTREE", "created_at": "BTREE"},
    NODES: {"node_id": "BTREE", "access": "LABEL_LIST"},
    EDGES: {"rid": "BTREE", "edge_id": "BTREE", "src": "BTREE", "dst": "BTREE"},
}
_CHUNK_LOOKUPS: dict[str, Kind] = {**_ORIGIN, "chunk_id": "BTREE", "created_at": "BTREE", "vector": "VECTOR"}


class NotReadyError(RuntimeError):
    """A stage has not applied the newest changeset: nothing is published."""


def publish(workspace: Workspace, configured: ConfiguredModel) -> StageReport:
    """Cut a release of the newest changeset, unless the newest release is that already.

    Raises:
        NotReadyError: a stage is behind.
    """
    catalog, home = workspace.catalog, workspace.home
    target = catalog.changeset()
    report = StageReport(names.RELEASE, names.RELEASE_VERSION, target)
    report.counts["changed"] = 0
    newest = releases.latest(home)
    versions = _demand_applied(workspace, target)
    if newest is not None and (newest.changeset, newest.token, newest.versions) == (target, catalog.token(), versions):
        _note(workspace, target)
        report.counts.update(collect(workspace))
        return report
    scrubbing = scrub.wanted(catalog)
    if scrubbing:
        scrub.rewrite_tables(workspace)
    number = newest.number + 1 if newest else 1
    pinned = _pin(workspace, configured.description, number)
    tables = LanceTables(home)
    tables.carry(*tables.names())  # what was settled since their stages, and the tags
    _write(workspace, _manifest(workspace, configured.description, number, target, pinned, versions))
    report.counts["changed"] = 1
    report.counts["number"] = number
    _note(workspace, target)
    report.counts.update(collect(workspace, at_once=scrubbing))
    if scrubbing:
        scrub.finish(workspace)
    return report


def _demand_applied(workspace: Workspace, target: int) -> dict[str, str]:
    catalog = workspace.catalog
    marts = [stage_name(model) for model in load_models().values() if model.layer != "tests"]
    needed = [*_NEEDED, *marts]
    found = {row["stage"]: row for row in catalog.rows("select * from stages")}
    behind = [stage for stage in needed if stage not in found or found[stage]["applied"] < target]
    if behind and target:
        raise NotReadyError(f"changeset {target} has not passed {', '.join(behind)}; run the whole job")
    return {stage: found[stage]["version"] for stage in needed if stage in found}


def lookups(fingerprint: str) -> dict[str, dict[str, Kind]]:
    """The released tables of one embedding model, each with the columns that are indexed and how."""
    return {**_LOOKUPS, chunks_table(fingerprint): _CHUNK_LOOKUPS}


def _pin(workspace: Workspace, model: ModelDescription, number: int) -> dict[str, int]:
    """Settle each table and tag its version, so that no clean-up can drop it."""
    tables = LanceTables(workspace.home)
    pinned: dict[str, int] = {}
    for name, columns in lookups(model.fingerprint).items():
        passing("publish.settle.before")
        version = tables.settle(name, columns)
        passing("publish.settle.after")
        passing("publish.tag.before")
        tables.tag(name, tag_of(number), version)  # a draft that died before its manifest may have left one
        passing("publish.tag.after")
        pinned[name] = version
    return pinned


def _manifest(
    workspace: Workspace,
    model: ModelDescription,
    number: int,
    changeset: int,
    pinned: dict[str, int],
    versions: dict[str, str],
) -> Manifest:
    settings, catalog = workspace.settings, workspace.catalog
    tables = LanceTables(workspace.home)
    now = clock.now()
    marts = sorted(model.name for model in load_models().values() if model.layer == "marts")
    return Manifest(
        number=number,
        changeset=changeset,
        token=catalog.token(),
        published_at=now,
        facility=settings.facility,
        time_zone=settings.time_zone,
        several_feeds={source: settings.several(source) for source in settings.sources()},
        tables=pinned,
        model=ReleasedModel(
            name=model.name,
            fingerprint=model.fingerprint,
            dimensions=model.dimensions,
            max_tokens=model.max_tokens,
            query_prefix=model.query_prefix,
            passage_prefix=model.passage_prefix,
            pooling=model.pooling,
        ),
        counts={"chunks" if name.startswith("chunks_") else name: tables.table(name).count_rows() for name in pinned},
        feeds=freshness.of_feeds(workspace, releases.latest(workspace.home), now),
        versions=versions,
        marts=marts,
    )


def _write(workspace: Workspace, manifest: Manifest) -> None:
    home = workspace.home
    draft = home.releases / f".{manifest.number:08d}"
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "marts").mkdir(parents=True)
    passing("publish.link.before")
    _link_index(home.tantivy, draft / "tantivy")
    for name in manifest.marts:
        _link(mart_path(workspace, name), draft / "marts" / f"{name}.parquet")
    passing("publish.link.after")
    (draft / LEASE).touch(0o644)
    passing("publish.manifest.before")
    (draft / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest, order="deterministic")))
    passing("publish.manifest.after")
    write_through_all(draft)
    final = releases.folder_of(home, manifest.number)
    if final.exists():  # a newer numbering over a release that lost its manifest
        shutil.rmtree(final)
    passing("publish.rename.before")
    os.rename(draft, final)
    passing("publish.rename.after")
    write_through(home.releases)


def _link_index(source: Path, target: Path) -> None:
    """A committed index by hard links: segments never change, the JSON files that name them do and so are copied."""
    target.mkdir()
    for file in sparse.committed_files(source):
        if file.suffix == ".json":
            shutil.copy2(file, target / file.name)
        else:
            _link(file, target / file.name)
    # Opening takes this lock; where the folder cannot be written by its reader it must be there already.
    lock = target / ".tantivy-meta.lock"
    lock.touch()
    lock.chmod(0o666)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _note(workspace: Workspace, target: int) -> None:
    passing("publish.note.before")
    found = state.read_pipeline(workspace.home)
    found.applied = found.released = target
    state.write_pipeline(workspace.home, found)
    passing("publish.note.after")
