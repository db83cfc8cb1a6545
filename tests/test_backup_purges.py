"""What was purged from a home does not come back with an older backup of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.sync import pipeline, state
from aps_rag_pipeline.sync.backup import BackupError, back_up, restore
from aps_rag_pipeline.sync.purge import purge
from query import Corpus
from tests.small_facility import Facility
from tests.test_backup import written
from tests.test_cli import aps_rag


@pytest.fixture
def facility(tmp_path: Path) -> Facility:
    return written(Facility(tmp_path / "facility"))


def test_what_was_purged_since_stays_out(facility: Facility, tmp_path: Path) -> None:
    facility.log["shift-1"][2] = "Entry 2: the passphrase is wintergreen"
    facility.write().sync()
    back_up(facility.home, tmp_path / "backup")
    with facility.workspace() as workspace:
        purge(workspace, "BELY:2")
    done = aps_rag(
        "restore", str(tmp_path / "backup"), "--force", "-c", str(facility.config_path), "--json", cwd=facility.root
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["purged"] == ["BELY:2"]
    assert not [
        name for name in facility.home.root.rglob("*") if name.is_file() and b"wintergreen" in name.read_bytes()
    ]
    facility.sync()
    assert "BELY:2" not in facility.live()


@pytest.mark.parametrize("named", [True, False])
def test_the_command_carries_several_purges_over(facility: Facility, tmp_path: Path, named: bool) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    for n in (2, 3):
        with facility.workspace() as workspace:
            purge(workspace, f"BELY:{n}")
    place = ("--home", str(facility.home.root)) if named else ("-c", str(facility.config_path))
    done = aps_rag("restore", str(tmp_path / "backup"), "--force", *place, cwd=facility.root)
    assert done.returncode == 0, done.stderr
    assert "BELY:2, BELY:3" in done.stderr
    assert ("nothing is served" in done.stderr) == named
    assert releases.numbers(facility.home) == ([] if named else [1])


def test_no_release_with_what_was_purged_since_is_served_after_a_restore(facility: Facility, tmp_path: Path) -> None:
    for n in (2, 3):
        facility.log["shift-1"][n] = f"Entry {n}: the passphrase is wintergreen"
    facility.write().sync()
    back_up(facility.home, tmp_path / "backup")
    for n in (2, 3):
        with facility.workspace() as workspace:
            purge(workspace, f"BELY:{n}")
    restored = restore(tmp_path / "backup", facility.home, force=True)
    assert restored.purged == ["BELY:2", "BELY:3"]
    with pytest.raises(releases.NoReleaseError):
        Corpus.open(facility.home, None)
    with sqlite3.connect(facility.home.catalog) as catalog:
        sql = "select count(*) from records where key in ('BELY:2', 'BELY:3') and (removed = 0 or body is not null)"
        assert catalog.execute(sql).fetchone() == (0,)
        assert catalog.execute("select id from purged order by id").fetchall() == [("2",), ("3",)]
    pipeline_state = state.read_pipeline(facility.home)
    assert pipeline_state.applied > pipeline_state.released == 0
    facility.sync()
    with Corpus.open(facility.home, None) as corpus:
        assert corpus.search("wintergreen passphrase").hits
        assert not any("wintergreen" in hit.snippet for hit in corpus.search("wintergreen passphrase").hits)
    assert not [name for name in facility.home.root.rglob("*") if name.is_file() and b"winterg" in name.read_bytes()]
    assert all(keys == set(facility.live()) for keys in facility.everywhere().values())
    assert {"BELY:2", "BELY:3"}.isdisjoint(facility.live())


def test_a_purge_is_carried_to_a_record_that_only_the_backups_release_still_has(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.log["shift-1"][2] = "Entry 2: the passphrase is wintergreen"
    facility.write().sync()
    del facility.log["shift-1"][2]
    facility.write()

    def cut_off(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "complete", cut_off)
        with pytest.raises(KeyboardInterrupt):
            facility.sync()
    back_up(facility.home, tmp_path / "backup")  # the catalog is ahead of the release
    facility.sync()
    with facility.workspace() as workspace:
        purge(workspace, "BELY:2")
    assert restore(tmp_path / "backup", facility.home, force=True).purged == ["BELY:2"]
    assert releases.numbers(facility.home) == []
    facility.sync()
    assert not [
        path for path in facility.home.root.rglob("*") if path.is_file() and b"wintergreen" in path.read_bytes()
    ]


def test_a_purge_is_carried_to_the_record_as_it_was_called_when_the_backup_was_made(
    facility: Facility, tmp_path: Path
) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    with sqlite3.connect(facility.home.catalog) as catalog:
        unit = catalog.execute("select unit from records where key = 'WRQ:20003'").fetchone()[0]
        catalog.executemany(
            "insert into purged values (?, ?, ?, '2999-01-01T00:00:00+00:00', ?)",
            [("bely", "electronic_log", "4", ""), ("work_requests", "requests", "other", unit)],
        )
        catalog.execute("update feeds set feed = 'electronic_log' where feed = 'logbook'")
    restored = restore(tmp_path / "backup", facility.home, force=True)
    requests = [f"WRQ:2000{n}" for n in range(9)]  # all in the one unit
    assert restored.purged == ["BELY:4", *requests]


def test_purges_in_a_catalog_of_an_older_schema_are_carried_over(facility: Facility, tmp_path: Path) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    with sqlite3.connect(facility.home.catalog) as catalog:
        catalog.execute("insert into purged values ('bely', 'logbook', '2', '2999-01-01T00:00:00+00:00', '')")
        catalog.execute("alter table purged drop column unit")
        catalog.execute("pragma user_version = 1")
    assert restore(tmp_path / "backup", facility.home, force=True).purged == ["BELY:2"]
    assert "BELY:2" not in facility.live()


@pytest.mark.parametrize("why", ["strange", "locked"])
def test_a_home_whose_purges_cannot_be_told_is_not_replaced(facility: Facility, tmp_path: Path, why: str) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    with closing(sqlite3.connect(facility.home.catalog, isolation_level=None)) as catalog:
        if why == "strange":
            catalog.execute("alter table purged rename to forgotten")
            catalog.execute("pragma user_version = 3")
        catalog.execute("pragma journal_mode = delete")
        catalog.execute("begin exclusive")
        if why == "strange":
            catalog.execute("commit")
        with pytest.raises(BackupError, match="schema 3" if why == "strange" else "database is locked"):
            restore(tmp_path / "backup", facility.home, force=True)
    assert releases.numbers(facility.home) == [1]
    assert not facility.home.restoring.exists()


def test_a_damaged_catalog_is_replaced_and_its_purges_are_said_to_be_lost(
    facility: Facility, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    facility.home.catalog.write_bytes(b"no catalog " * 1000)
    assert restore(tmp_path / "backup", facility.home, force=True).purged == []
    assert "purged since the backup" in caplog.text
    assert len(facility.live()) == 17


def test_a_backup_in_the_middle_of_a_purge_is_refused(facility: Facility, tmp_path: Path) -> None:
    facility.sync()
    with facility.workspace() as workspace:
        workspace.catalog.connection.execute(
            "insert into purged values ('bely', 'logbook', '2', '2999-01-01T00:00:00+00:00', '')"
        )
    with pytest.raises(BackupError, match="purge is under way"):
        back_up(facility.home, tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["facility"]
