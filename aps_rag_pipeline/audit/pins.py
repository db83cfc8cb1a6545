"""Mending releases: tags that are gone or name something else, leases, and releases that are past mending."""

from __future__ import annotations

import msgspec

from aps_rag_pipeline.audit.findings import Damage
from aps_rag_pipeline.audit.releases import Pinned
from aps_rag_pipeline.audit.rows import open_bm25
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.damage import DamagedStoreError, check_version, reading
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.releases import LEASE, Manifest
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync.collection import tag_of


def mend_releases(home: Home, damage: Damage) -> tuple[list[str], list[int]]:
    """Put tags back where the pinned version still exists; gives what was done, and the releases that cannot be served
    any more, also since a table of theirs is about to be built anew. Of these, one whose manifest is damaged goes at
    once: it would hide those before it."""
    done: list[str] = []
    lost: list[int] = []
    for number in releases.numbers(home):
        try:
            manifest = releases.read_manifest(home, number)
        except (msgspec.MsgspecError, OSError):
            retire(home, number)
            done.append(f"dropped release {number}, whose manifest cannot be read")
            continue
        if damage.stores.intersection(manifest.tables):
            lost.append(number)
            continue
        if number not in damage.releases:
            continue
        if not _is_whole(home, manifest):
            lost.append(number)
            continue
        lease = releases.folder_of(home, number) / LEASE
        if not lease.is_file():
            lease.touch(0o644)
            done.append(f"made the lease of release {number} again")
        mended = _mend_tags(home, manifest)
        if mended:
            done.append(f"pinned again in release {number}: {', '.join(mended)}")
    return done, lost


def retire(home: Home, number: int) -> None:
    """No reader finds this release from now on; the collection of the next sync takes its files."""
    if releases.folder_of(home, number).is_dir():  # it may have been collected meanwhile
        releases.retire(home, number, whoever_reads=True)


def whole_versions(home: Home, stored: set[str]) -> dict[str, int]:
    """Of damaged tables those that a release which can be read pins, and the newest such version of each. Every
    manifest must be readable."""
    found: dict[str, int] = {}
    for number in reversed(releases.numbers(home)):
        manifest = releases.read_manifest(home, number)
        missing = stored.intersection(manifest.tables) - found.keys()
        if missing and _is_served(home, manifest) and _is_whole(home, manifest):
            found |= {name: manifest.tables[name] for name in missing}
    return found


def _is_served(home: Home, manifest: Manifest) -> bool:
    """Whether readers can open the tables: where the newest version of one cannot be, they cannot have another."""
    try:
        with reading(home.lance):
            pinned = Pinned(home, manifest)
            for stored in manifest.tables:
                pinned.table(stored)
    except DamagedStoreError:
        return False
    return True


def _is_whole(home: Home, manifest: Manifest) -> bool:
    try:
        for stored, version in manifest.tables.items():
            check_version(LanceTables(home).folder(stored), version, close=True)
    except DamagedStoreError:
        return False
    folder = releases.folder_of(home, manifest.number)
    marts = all((folder / "marts" / f"{name}.parquet").is_file() for name in manifest.marts)
    return marts and open_bm25(folder / "tantivy", {})[0] is not None


def _mend_tags(home: Home, manifest: Manifest) -> list[str]:
    tables, tag, mended = LanceTables(home), tag_of(manifest.number), []
    for stored, version in manifest.tables.items():
        if tables.tagged(stored, tag) != version:
            tables.tag(stored, tag, version)
            mended.append(stored)
    return mended
