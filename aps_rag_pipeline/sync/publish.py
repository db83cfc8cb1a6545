"""Everything applied → a release; and the collection of releases that nobody needs any more.

A release is written last: tables are tagged, BM25 segments and marts hard-linked into a draft folder, the manifest
added, and the folder renamed into place. Until then readers see the one before.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from datetime import UTC, timedelta
from pathlib import Path

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.models import ModelDescription
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.catalog import from_iso, unpack_json
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.releases import LEASE, MANIFEST, FeedFreshness, Manifest, ReleasedModel
from aps_rag_pipeline.stores.sql_models import load_models
from aps_rag_pipeline.stores.tables import EDGES, NODES, PASSAGES, RECORDS, chunks_table
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import names, state
from aps_rag_pipeline.sync.marts import mart_path, stage_name
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.workspace import StageReport, Workspace

#: Stages that must have applied a changeset before it is released; marts besides.
_NEEDED = (names.OCR, names.PASSAGES, names.CHUNKS, names.EMBEDDINGS, names.DENSE, names.SPARSE, names.GRAPH)
#: Columns that filters and look-ups use, by table; indexed once a table is large.
_LOOKUPS = {
    RECORDS: ["rid", "key"],
    PASSAGES: ["rid", "passage_id"],
    NODES: ["node_id"],
    EDGES: ["edge_id", "src", "dst"],
}
#: Lance counts a version's age to the moment it cleans up, a little later than it is asked to.
_MARGIN = timedelta(seconds=5)
_CHUNK_LOOKUPS = ["rid", "chunk_id"]


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
        return report
    number = newest.number + 1 if newest else 1
    pinned = _pin(workspace, configured.description, number)
    _write(workspace, _manifest(workspace, configured.description, number, target, pinned, versions))
    report.counts["changed"] = 1
    report.counts["number"] = number
    _note(workspace, target)
    report.counts.update(collect(workspace))
    return report


def collect(workspace: Workspace, *, at_once: bool = False) -> Counter[str]:
    """Drop releases that a newer one has replaced for long enough and that no reader holds, then what only they needed.

    `at_once` ignores the grace period and the leases: a purge must not wait.
    """
    home, catalog = workspace.home, workspace.catalog
    counts: Counter[str] = Counter(releases_collected=0)
    numbers = releases.numbers(home)
    grace = timedelta(hours=workspace.settings.limits.retention_hours)
    for number, newer in itertools.pairwise(numbers):
        replaced_at = releases.read_manifest(home, newer).published_at
        folder = releases.folder_of(home, number)
        if at_once or (clock.now() - replaced_at >= grace and not releases.leased(folder)):
            _drop(home, number)
            counts["releases_collected"] += 1
    _drop_drafts(home)
    if counts["releases_collected"] or at_once:
        _forget_versions(workspace)
        with catalog.transaction() as connection:
            dropped = connection.execute(
                "delete from embeddings where not exists (select 1 from chunks c where c.hash = embeddings.hash)"
            )
            counts["vectors_collected"] = dropped.rowcount
            connection.execute("delete from attachments where rid in (select rid from records where removed = 1)")
            connection.execute("delete from ocr where sha256 not in (select sha256 from attachments)")
        counts["blobs_collected"] = _collect_blobs(workspace, timedelta(0) if at_once else grace)
    return counts


def _demand_applied(workspace: Workspace, target: int) -> dict[str, str]:
    catalog = workspace.catalog
    marts = [stage_name(model) for model in load_models().values() if model.layer != "tests"]
    needed = [*_NEEDED, *marts]
    found = {row["stage"]: row for row in catalog.rows("select * from stages")}
    behind = [stage for stage in needed if stage not in found or found[stage]["applied"] < target]
    if behind and target:
        raise NotReadyError(f"changeset {target} has not passed {', '.join(behind)}; run the whole job")
    return {stage: found[stage]["version"] for stage in needed if stage in found}


def _pin(workspace: Workspace, model: ModelDescription, number: int) -> dict[str, int]:
    """Settle each table and tag its version, so that no clean-up can drop it."""
    tables = LanceTables(workspace.home)
    lookups = {**_LOOKUPS, chunks_table(model.fingerprint): _CHUNK_LOOKUPS}
    pinned: dict[str, int] = {}
    for name, columns in lookups.items():
        version = tables.settle(name, columns)
        tags = tables.table(name).tags
        tag = _tag(number)
        if tag in tags.list():  # of a draft that died before its manifest
            tags.delete(tag)
        tags.create(tag, version)
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
    feeds = [
        FeedFreshness(r["source"], r["feed"], r["records"], from_iso(r["newest"]))
        for r in catalog.rows(
            "select source, feed, count(*) as records, max(coalesce(modified_at, seen_at)) as newest "
            "from records where removed = 0 group by source, feed"
        )
    ]
    marts = sorted(model.name for model in load_models().values() if model.layer == "marts")
    return Manifest(
        number=number,
        changeset=changeset,
        token=catalog.token(),
        published_at=clock.now(),
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
        feeds=feeds,
        versions=versions,
        marts=marts,
    )


def _write(workspace: Workspace, manifest: Manifest) -> None:
    home = workspace.home
    draft = home.releases / f".{manifest.number:08d}"
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "marts").mkdir(parents=True)
    _link_index(home.tantivy, draft / "tantivy")
    for name in manifest.marts:
        _link(mart_path(workspace, name), draft / "marts" / f"{name}.parquet")
    (draft / LEASE).touch(0o644)
    (draft / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest, order="deterministic")))
    _sync_to_disk(draft / MANIFEST)
    _sync_to_disk(draft)
    final = releases.folder_of(home, manifest.number)
    if final.exists():  # a newer numbering over a release that lost its manifest
        shutil.rmtree(final)
    os.rename(draft, final)
    _sync_to_disk(home.releases)


def _link_index(source: Path, target: Path) -> None:
    """A committed index by hard links: segments never change, the JSON files that name them do and so are copied."""
    target.mkdir()
    for file in source.iterdir():
        if file.name.endswith(".lock"):
            continue
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


def _sync_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _note(workspace: Workspace, target: int) -> None:
    state.write_pipeline(workspace.home, state.PipelineState(applied=target, released=target))


def _tag(number: int) -> str:
    return f"release-{number:08d}"


def _drop(home: Home, number: int) -> None:
    """Tags before versions; the rename decides, so that a half-dropped release is none."""
    folder = releases.folder_of(home, number)
    tables = LanceTables(home)
    for name in releases.read_manifest(home, number).tables:
        if tables.exists(name) and _tag(number) in (tags := tables.table(name).tags).list():
            tags.delete(_tag(number))
    gone = home.releases / f".gone-{number:08d}"
    os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _drop_drafts(home: Home) -> None:
    for path in home.releases.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


def _forget_versions(workspace: Workspace) -> None:
    """Drop table versions older than the oldest kept release, and chunk tables of models that no release uses."""
    home = workspace.home
    kept = [releases.read_manifest(home, number) for number in releases.numbers(home)]
    if not kept:
        return
    tables = LanceTables(home)
    for name in tables.names():
        pins = [manifest.tables[name] for manifest in kept if name in manifest.tables]
        if not pins:
            tables.drop(name)
            continue
        oldest = min(pins)
        written = next(v["timestamp"] for v in tables.table(name).list_versions() if v["version"] == oldest)
        tables.forget_versions(name, written.astimezone(UTC) - _MARGIN)


def _collect_blobs(workspace: Workspace, grace: timedelta) -> int:
    wanted = {row["sha256"] for row in workspace.catalog.rows("select distinct sha256 from attachments")}
    for row in workspace.catalog.rows("select cursor from feeds"):
        cursor = unpack_json(row["cursor"])  # live feeds keep files there that they need not fetch again
        for files in (cursor.get("files", {}) if isinstance(cursor, dict) else {}).values():
            wanted.update(files.values())
    blobs, newest = workspace.home.blobs, clock.now().timestamp() - grace.total_seconds()
    gone = [sha for sha in blobs if sha not in wanted and blobs.path(sha).stat().st_mtime <= newest]
    for sha256 in gone:
        blobs.remove(sha256)
    return len(gone)
