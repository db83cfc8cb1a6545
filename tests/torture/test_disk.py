"""Edits and deletions leave nothing on the disk that a fresh build would not have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.sync.collection import collect
from tests.small_facility import Facility
from tests.torture.ring import disk

INCREMENTS = 30
_INDEXES = ("lance", "tantivy", "marts", "releases", "blobs")


def written(root: Path) -> Facility:
    """Entries of the length of a page, so that content weighs more than the blocks of small files."""
    made = Facility(root)
    made.log = {f"shift-{n}": {100 * n + i: text(n, i, 0) for i in range(40)} for n in range(1, 9)}
    made.requests = {str(20000 + i): {"title": f"Pump P{i}", "description": text(0, i, 0)} for i in range(40)}
    return made


def text(shift: int, number: int, turn: int) -> str:
    words = (f"klystron{(shift * 7919 + number * 104729 + turn * 1299709 + k * 15485863) % 9973}" for k in range(220))
    return f"Shift {shift} entry {number} turn {turn}: " + " ".join(words)


@pytest.mark.slow
def test_thirty_increments_weigh_what_a_fresh_build_weighs(tmp_path: Path) -> None:
    facility = written(tmp_path / "kept")
    facility.write().sync()
    for turn in range(1, INCREMENTS + 1):
        shift = 1 + turn % 8
        entries = facility.log[f"shift-{shift}"]
        for key in sorted(entries)[:4]:
            entries[key] = text(shift, key, turn)
        del entries[sorted(entries)[5]]
        entries[max(entries) + 1] = text(shift, max(entries) + 1, turn)
        facility.write().sync()
    with facility.workspace() as workspace:
        collect(workspace, at_once=True)  # also the versions of the last seconds, which a reader could be opening
    assert len(releases.numbers(facility.home)) == 1
    fresh = Facility(tmp_path / "fresh", facility.log, facility.requests).write()
    fresh.sync()
    homes = facility.home.root, fresh.home.root
    kept, new = (disk(*(root / name for name in _INDEXES)) for root in homes)
    weights = {name: [disk(root / name) for root in homes] for name in _INDEXES}
    catalogs = facility.home.catalog.stat().st_size, fresh.home.catalog.stat().st_size
    shutil.rmtree(tmp_path / "fresh")
    assert kept <= 1.2 * new, weights
    assert catalogs[0] <= 1.2 * catalogs[1], catalogs
