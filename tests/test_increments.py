"""What a small increment costs grows with the increment, not with what has been collected over years."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import preparation
from tests.damaged_home import new_facility
from tests.small_facility import Facility


@pytest.fixture
def facility(tmp_path: Path) -> Facility:
    made = new_facility(tmp_path)
    made.sync()
    return made


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Everything that is asked of SQLite."""
    told: list[str] = []
    connect = sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*arguments, **options)
        made.set_trace_callback(told.append)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connected)
        yield told


@pytest.mark.parametrize("begins", ["select r.feed, r.modified_at", "delete from versions where"])
def test_only_records_that_moved_are_looked_at(
    facility: Facility, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    facility.log["shift-1"][100] = "Entry 0: recovered"
    facility.write()
    with statements(monkeypatch) as told:
        facility.sync()
    (asked,) = {statement for statement in told if statement.startswith(begins)}
    with facility.workspace() as workspace:
        plan = " / ".join(row["detail"] for row in workspace.catalog.rows(f"explain query plan {asked}"))
    assert "records_changeset (changeset>?)" in plan
    assert "SCAN" not in plan


def test_versions_that_were_replaced_go_with_each_collection(facility: Facility) -> None:
    for said in ("recovered", "tripped again", "recovered again"):
        facility.log["shift-1"][100] = f"Entry 0: {said}"
        facility.write().sync()
    with facility.workspace() as workspace:
        rows = workspace.catalog.rows("select rid, count(*) as n from versions group by rid having n > 1")
        assert [row["rid"] for row in rows] == []
        assert workspace.catalog.value("select count(*) from versions") == 75


def test_vectors_are_looked_through_when_enough_records_have_moved(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_SMALL", 0)

    def vectors_after(entries: int, said: str) -> int:
        for number in range(entries):
            facility.log["shift-1"][100 + number] = f"Entry {number}: {said}"
        facility.write().sync()
        with facility.workspace() as workspace:
            return int(workspace.catalog.value("select count(*) from embeddings"))

    assert vectors_after(1, "recovered") == 75  # the first look
    assert vectors_after(1, "tripped again") == 76  # that of the text before stays for now
    assert vectors_after(1, "tripped a third time") == 77
    assert vectors_after(10, "recovered once more") == 75
    assert vectors_after(1, "quiet") == 76


def test_a_table_is_written_anew_without_being_held_in_memory(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = LanceTables(facility.home)
    before = tables.table("passages").to_arrow()
    tables.table("passages").delete("key = 'BELY:100'")
    with monkeypatch.context() as patched:
        patched.delattr(type(tables.table("passages")), "to_arrow")
        tables.rewrite("passages")
    after = tables.table("passages").to_arrow()
    kept = before.filter([key != "BELY:100" for key in before["key"].to_pylist()])
    assert after.schema == before.schema
    assert after.sort_by("passage_id").equals(kept.sort_by("passage_id"))
    assert all(b"BELY:100#0" not in path.read_bytes() for path in _newest_files(tables))


def _newest_files(tables: LanceTables) -> list[Path]:
    import lance

    dataset = lance.dataset(str(tables.folder("passages")))
    return [
        tables.folder("passages") / "data" / file.path
        for fragment in dataset.get_fragments()
        for file in fragment.data_files()
    ]
