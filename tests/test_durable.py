"""What a name is given to is on the disk before: nothing that is published may be empty after a power failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.tables import EDGES, NODES, PASSAGES, RECORDS
from aps_rag_pipeline.sync import names, pipeline
from aps_rag_pipeline.sync.backup import back_up, restore, restoring
from tests.damaged_home import new_facility

Look = Callable[[Path, Path], None]


class Disk:
    """Knows which files and folders have been carried to the disk since each was last written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._carried: dict[int, tuple[int, int]] = {}
        self.renamed: list[str] = []
        self._fsync, self._renames = os.fsync, {"rename": os.rename, "replace": os.replace}
        monkeypatch.setattr(os, "fsync", self.fsync)
        for name in self._renames:
            monkeypatch.setattr(os, name, lambda a, b, name=name: self._rename(name, Path(a), Path(b)))

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        found = os.fstat(handle)
        self._carried[found.st_ino] = (found.st_size, found.st_mtime_ns)

    def lacks(self, path: Path) -> bool:
        found = path.stat()
        return self._carried.get(found.st_ino) != (found.st_size, found.st_mtime_ns)

    def _rename(self, name: str, draft: Path, path: Path) -> None:
        home = next((each for each in path.parents if each.name == "home"), None)
        part = path.relative_to(home).parts[0] if home is not None else ""
        if home is not None and (part in ("blobs", "marts") or path.parent.name == "releases"):
            self.renamed.append(part)
            tree = [draft, *draft.rglob("*")] if draft.is_dir() else [draft]
            if part == "releases" and not path.name.startswith("."):
                tree += [home / "marts", home / "lance", *(home / "lance").rglob("*"), *(home / "blobs").glob("**")]
            assert [each for each in tree if self.lacks(each)] == []
        self._renames[name](draft, path)


def test_what_is_published_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility = new_facility(tmp_path)
    disk = Disk(monkeypatch)
    facility.sync()
    assert disk.renamed.count("blobs") == 2
    assert disk.renamed.count("releases") == 1
    assert disk.renamed.count("marts") > 3
    facility.log["shift-1"][116] = "Entry 16: recovered"
    facility.write().sync()
    assert disk.renamed.count("releases") >= 2


def test_a_stage_is_noted_when_what_it_wrote_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facility = new_facility(tmp_path)
    disk, home, noted = Disk(monkeypatch), facility.home, []
    tables = {names.DENSE: (RECORDS, PASSAGES, "chunks_*"), names.GRAPH: (NODES, EDGES)}
    note = Catalog.set_applied

    def set_applied(catalog: Catalog, stage: str, *values: object) -> None:
        found = [path for name in tables.get(stage, ()) for path in home.lance.glob(f"{name}.lance")]
        written = [path for folder in found for path in (folder, *folder.rglob("*"))]
        if stage in tables:
            assert len(found) == len(tables[stage])
            written.append(home.lance)
        elif stage == names.SPARSE:
            written.append(home.tantivy)
        elif stage.startswith(f"{names.MARTS}:"):
            written += [home.marts, *home.marts.iterdir()]
        assert [path for path in written if disk.lacks(path)] == []
        noted.append(stage)
        note(catalog, stage, *values)

    monkeypatch.setattr(Catalog, "set_applied", set_applied)
    facility.sync()
    facility.log["shift-1"][116] = "Entry 16: recovered"
    facility.write().sync()
    assert [noted.count(stage) for stage in (names.DENSE, names.SPARSE, names.GRAPH)] == [2, 2, 2]
    assert sum(stage.startswith(f"{names.MARTS}:") for stage in noted) > 6


def test_a_backup_and_what_is_restored_are_on_the_disk_before_they_have_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility = new_facility(tmp_path)
    facility.sync()
    facility.log["shift-1"][116] = "Entry 16: recovered, see work request 20003"
    facility.write()
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "publish", _cut_off)
        with pytest.raises(InterruptedError):
            facility.sync()  # so that the backup has to bring its graph in line
    (tmp_path / "backups").mkdir()
    backup, disk, exchange = tmp_path / "backups" / "first", Disk(monkeypatch), restoring._move_out

    def rename(draft: Path, path: Path) -> None:
        if path == backup:
            assert [each for each in (draft, *draft.rglob("*")) if disk.lacks(each)] == []
            disk.renamed.append("backup")
        os.replace(draft, path)

    def move_out(home: Home, staged: Home) -> None:
        assert [each for each in (staged.root, *staged.root.rglob("*")) if disk.lacks(each)] == []
        disk.renamed.append("exchange")
        exchange(home, staged)

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(restoring, "_move_out", move_out)
    back_up(facility.home, backup)
    assert not disk.lacks(backup.parent)
    restore(backup, Home(tmp_path / "elsewhere"), force=True)
    assert [each for each in disk.renamed if each in ("backup", "exchange")] == ["backup", "exchange"]


def _cut_off(*_: object) -> None:
    raise InterruptedError


def test_the_catalog_waits_for_the_disk_with_each_commit(tmp_path: Path) -> None:
    facility = new_facility(tmp_path)
    facility.home.create()
    with facility.workspace() as workspace:
        value = workspace.catalog.value
        assert (value("pragma journal_mode"), value("pragma synchronous")) == ("wal", 2)  # 2: full
