"""A backup is believed only in what a home has, and only as it was written."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.sync.backup import BackupError, back_up, restore, restoring, verify
from aps_rag_pipeline.sync.backup import contents as contents_of_backup
from tests.small_facility import Facility, tree
from tests.test_backup import written


@pytest.fixture
def facility(tmp_path: Path) -> Facility:
    return written(Facility(tmp_path / "facility"))


def home_without_release(facility: Facility, backup: Path) -> None:
    with Catalog(facility.home.create()):
        pass
    back_up(facility.home, backup)


@pytest.mark.parametrize("how", ["cut", "altered", "missing", "contents", "empty", "escape"])
def test_a_damaged_backup_is_refused_by_the_name_of_the_file(facility: Facility, tmp_path: Path, how: str) -> None:
    facility.sync()
    backup = tmp_path / "backup"
    back_up(facility.home, backup)
    victim = next((backup / "lance").rglob("data/*.lance"))
    whole = victim.read_bytes()
    if how == "cut":
        victim.write_bytes(whole[:-1])
    elif how == "altered":
        victim.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    elif how == "missing":
        victim.unlink()
    elif how == "empty":
        shutil.rmtree(backup)
        backup.mkdir()
    else:
        victim = backup / "backup.json"
        text = victim.read_text()
        victim.write_text(text[:-9] if how == "contents" else text.replace('"catalog.sqlite"', '"../catalog.sqlite"'))
    before = tree(facility.home.root, without=())
    with pytest.raises(BackupError) as caught:
        restore(backup, facility.home, force=True)
    assert str(backup if how == "empty" else victim) in str(caught.value)
    assert tree(facility.home.root, without=()) == before


def rewritten(backup: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = backup / "backup.json"
    contents = json.loads(path.read_text())
    change(contents)
    path.write_text(json.dumps(contents))


@pytest.mark.parametrize(
    "name",
    [
        "catalog.sqlite/../../x", "state//x", "./state/x", "state/./x", "state", "/etc/x", "", "\u001b[2J/x",
        "state/\n/x", "dagster/x", "writer.lock", ".restoring", "catalog.sqlite/x",
        "catalog.sqlite-wal", "releases/00000009/x",
    ],
)  # fmt: skip
def test_names_that_are_no_file_of_a_home_are_refused(facility: Facility, tmp_path: Path, name: str) -> None:
    backup = tmp_path / "backup"
    home_without_release(facility, backup)
    rewritten(backup, lambda told: told["files"].update({name: {"size": 1, "sha256": "0" * 64}}))
    with pytest.raises(BackupError) as caught:
        verify(backup)
    assert f"names {name!r}" in str(caught.value)


def test_a_backup_that_tells_less_or_other_than_it_holds_is_refused(facility: Facility, tmp_path: Path) -> None:
    facility.sync()
    whole, before = tmp_path / "whole", tree(facility.home.root, without=())
    back_up(facility.home, whole)
    cases: dict[str, Callable[[dict[str, Any]], object]] = {
        "'catalog.sqlite', so it is not whole": lambda told: told["files"].pop("catalog.sqlite"),
        "manifest.json', so it is not whole": lambda told: told["files"].pop("releases/00000001/manifest.json"),
        "schema 99": lambda told: told.update(schema=99),
        "has schema 2, not 1": lambda told: told.update(schema=1),
        "is another release": lambda told: told.update(released_changeset=7),
        "of another release than its own": lambda told: told.update(release=None),
        ">= 0": lambda told: told["files"]["catalog.sqlite"].update(size=-1),
    }
    for said, change in cases.items():
        backup = tmp_path / "backup"
        shutil.copytree(whole, backup)
        rewritten(backup, change)
        with pytest.raises(BackupError, match=re.escape(said)):
            restore(backup, facility.home, force=True)
        shutil.rmtree(backup)
    assert tree(facility.home.root, without=()) == before


@pytest.mark.parametrize("kind", ["link", "pipe", "linked folder", "linked list", "longer"])
def test_only_plain_files_of_the_told_size_are_read(
    facility: Facility, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    home_without_release(facility, backup)
    monkeypatch.setattr(contents_of_backup, "digest", lambda path: pytest.fail(f"{path} is read"))
    victim = backup / ("backup.json" if kind == "linked list" else "catalog.sqlite")
    if kind == "linked folder":
        rewritten(backup, lambda told: told["files"].update({"state/x": {"size": 0, "sha256": "0" * 64}}))
        (tmp_path / "away").mkdir()
        (tmp_path / "away" / "x").touch()
        victim = backup / "state"
        shutil.rmtree(victim, ignore_errors=True)
        victim.symlink_to(tmp_path / "away")
    elif kind in ("link", "linked list"):
        victim.rename(tmp_path / "away")
        victim.symlink_to(tmp_path / "away")
    elif kind == "pipe":
        victim.unlink()
        os.mkfifo(victim)
    else:
        os.truncate(victim, victim.stat().st_size + 1)
    with pytest.raises(BackupError) as caught:
        verify(backup)
    assert str(victim) in str(caught.value)


def test_a_catalog_that_is_locked_is_not_thrown_away(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    monkeypatch.setattr(restoring, "_WAIT_S", 0.01)
    with closing(sqlite3.connect(facility.home.catalog, isolation_level=None)) as other:
        other.execute("begin immediate")
        other.execute("delete from purged")
        with pytest.raises(BackupError, match="locked"):
            restore(tmp_path / "backup", facility.home, force=True)
        other.execute("commit")
        restore(tmp_path / "backup", facility.home, force=True)
        assert other.execute("select count(*) from records").fetchone() == (17,)
        with sqlite3.connect(facility.home.catalog) as catalog:
            catalog.execute("delete from records")
        assert other.execute("select count(*) from records").fetchone() == (0,)  # it is the same file still
