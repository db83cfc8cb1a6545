"""Releases: what a manifest names is there, pinned, and what the working state holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.rows import CHUNKS, Sides, open_bm25
from aps_rag_pipeline.audit.unreadable import name_of, note_damage
from aps_rag_pipeline.models import ModelDescription
from aps_rag_pipeline.stores import releases, sparse
from aps_rag_pipeline.stores.damage import DamagedStoreError, check_version, has_version
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.lance import lancedb
from aps_rag_pipeline.stores.releases import LEASE, Manifest
from aps_rag_pipeline.stores.sql_models import load_models
from aps_rag_pipeline.stores.tables import chunks_table
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync.collection import tag_of


class Pinned:
    """The tables of a release, as its readers open them."""

    def __init__(self, home: Home, manifest: Manifest) -> None:
        self._connection = lancedb().connect(home.lance)
        self.manifest = manifest

    def table(self, stored: str) -> Any:
        """A table at the pinned version.

        Raises:
            ValueError: the table or the version is not there any more.
        """
        table = self._connection.open_table(stored)
        table.checkout(self.manifest.tables[stored])
        return table


def kept_releases(home: Home, findings: Findings) -> list[Manifest]:
    """The manifests of the releases that are kept, oldest first; one that cannot be read is found damaged."""
    manifests = []
    for number in releases.numbers(home):
        try:
            manifests.append(releases.read_manifest(home, number))
        except (msgspec.MsgspecError, OSError) as error:
            findings.add("damaged_release", store_of(number), releases.MANIFEST, f"cannot be read ({error})")
            findings.damage.releases.add(number)
            findings.damage.republish = True
    return manifests


def store_of(number: int, part: str = "") -> str:
    return f"release {number} {part}".rstrip()


def check_pins(home: Home, tables: LanceTables, manifest: Manifest, findings: Findings) -> bool:
    """Whether the tags of a release name the versions of its manifest, and its folder is whole."""
    before = sum(findings.counts.values())
    number, tag = manifest.number, tag_of(manifest.number)
    for stored, version in manifest.tables.items():
        findings.checked["pins"] += 1
        if stored in findings.damage.stores:
            findings.add("damaged_release", store_of(number), stored, "its table is damaged")
            continue
        found = tables.tagged(stored, tag) if tables.exists(stored) else None
        if found is None:
            findings.add("missing_tag", store_of(number), f"{stored} {tag}", "its version may be dropped at any time")
        elif found != version:
            problem = f"names version {found}, the manifest says {version}"
            findings.add("wrong_pin", store_of(number), f"{stored} {tag}", problem)
        elif not has_version(tables.folder(stored), version):
            findings.add("wrong_pin", store_of(number), f"{stored} {tag}", f"version {version} is not there any more")
        else:
            _check_files(tables, manifest, stored, findings)
    folder = releases.folder_of(home, number)
    for part, problem in _damaged_parts(folder, manifest, findings):
        findings.add("damaged_release", store_of(number), part, problem)
    whole = sum(findings.counts.values()) == before
    if not whole:
        findings.damage.releases.add(number)
    return whole


def _check_files(tables: LanceTables, manifest: Manifest, stored: str, findings: Findings) -> None:
    try:
        check_version(tables.folder(stored), manifest.tables[stored])
    except DamagedStoreError as error:
        note_damage(findings, store_of(manifest.number, name_of(stored)), error)


def _damaged_parts(folder: Path, manifest: Manifest, findings: Findings) -> Iterator[tuple[str, str]]:
    if not (folder / LEASE).is_file():
        yield LEASE, "is not there: readers could not hold the release"
    index, problem = open_bm25(folder / "tantivy", findings.sums)
    if index is None:
        yield "tantivy", problem
    for name in manifest.marts:
        if not (folder / "marts" / f"{name}.parquet").is_file():
            yield f"marts/{name}.parquet", "is not there"


def check_manifest(manifest: Manifest, model: ModelDescription, findings: Findings) -> None:
    """Whether the newest release says of itself what the settings and its tables say."""
    store = store_of(manifest.number)
    before = sum(findings.counts.values())
    said = manifest.model
    for name in ("name", "fingerprint", "dimensions", "max_tokens", "query_prefix", "passage_prefix", "pooling"):
        if getattr(said, name) != getattr(model, name):
            problem = f"says {getattr(said, name)!r}, the model has {getattr(model, name)!r}"
            findings.add("wrong_model", store, f"model {name}", problem)
    marts = sorted(model.name for model in load_models().values() if model.layer == "marts")
    if manifest.marts != marts:
        findings.add("damaged_release", store, "marts", f"names {manifest.marts}, there are {marts}")
    findings.damage.republish |= sum(findings.counts.values()) != before


def check_counts(home: Home, manifest: Manifest, findings: Findings) -> None:
    """Whether a release has as many rows as it says."""
    pinned = Pinned(home, manifest)
    counts = {
        CHUNKS if stored.startswith("chunks_") else stored: pinned.table(stored).count_rows()
        for stored in manifest.tables
    }
    for name in sorted(counts.keys() | manifest.counts.keys()):
        if counts.get(name) != manifest.counts.get(name):
            problem = f"says {manifest.counts.get(name)} {name}, there are {counts.get(name)}"
            findings.add("wrong_count", store_of(manifest.number), name, problem)
            findings.damage.republish = True


def released_sides(home: Home, tables: LanceTables, manifest: Manifest, sides: Sides) -> None:
    """Add to `sides` those parts of a release that are not provably the working ones: another version of a table, other
    files of the BM25 index."""
    pinned, fingerprint = Pinned(home, manifest), manifest.model.fingerprint
    for stored, version in manifest.tables.items():
        name = CHUNKS if stored == chunks_table(fingerprint) else stored
        if name in sides.tables and int(tables.table(stored).version) != version:
            label = store_of(manifest.number, name)
            sides.tables[name].append((label, pinned.table(stored)))
            sides.released[label] = manifest.number
    folder = releases.folder_of(home, manifest.number) / "tantivy"
    if sides.indexes and not same_index(home.tantivy, folder):
        label = store_of(manifest.number, "bm25")
        sides.indexes.append((label, sparse.open_index(folder)))
        sides.released[label] = manifest.number


def same_index(working: Path, released: Path) -> bool:
    """Whether a released index consists of the files of the working one: hard links, and an equal list of them."""
    if (working / "meta.json").read_bytes() != (released / "meta.json").read_bytes():
        return False
    segments = [path for path in sparse.committed_files(working) if path.suffix != ".json"]
    return all((released / path.name).is_file() and os.path.samefile(path, released / path.name) for path in segments)
