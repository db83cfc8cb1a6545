"""Run history over open connections: what is written is what Dagster's own storage reads, and the other way round."""

from __future__ import annotations

import threading
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy

from assets import history

OURS = """\
telemetry: {enabled: false}
storage:
  custom: {module: assets.history, class: History, config: {base_dir: {env: DAGSTER_HOME}}}
"""
DAGSTERS = "telemetry: {enabled: false}\n"


@dg.asset
def first() -> None: ...


@dg.asset(deps=[first], check_specs=[dg.AssetCheckSpec("whole", asset="second")])
def second() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": 3}, check_results=[dg.AssetCheckResult(passed=True)])


def instance(folder: Path, config: str) -> dg.DagsterInstance:
    (folder / "dagster.yaml").write_text(config)
    return dg.DagsterInstance.from_config(str(folder))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return tmp_path


def materialise(made: dg.DagsterInstance) -> str:
    result = dg.materialize([first, second], instance=made)
    assert result.success
    return result.run_id


def rows(made: dg.DagsterInstance) -> object:
    event = made.get_latest_materialization_event(dg.AssetKey("second"))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization.metadata["rows"].value


@pytest.mark.parametrize(("writing", "reading"), [(OURS, DAGSTERS), (DAGSTERS, OURS)])
def test_each_storage_reads_what_the_other_wrote(folder: Path, writing: str, reading: str) -> None:
    with instance(folder, writing) as writer:
        run_id = materialise(writer)
        events = len(writer.all_logs(run_id))
    with instance(folder, reading) as reader:
        assert [run.run_id for run in reader.get_runs()] == [run_id]
        assert len(reader.all_logs(run_id)) == events
        assert rows(reader) == 3


def test_a_reader_beside_the_writer_sees_each_run_as_it_ends(folder: Path) -> None:
    with instance(folder, OURS) as writer, instance(folder, OURS) as reader:
        for count in (1, 2):
            materialise(writer)
            assert len(reader.get_runs()) == count
            assert rows(reader) == 3


def test_threads_read_while_a_run_is_written(folder: Path) -> None:
    with instance(folder, OURS) as made:
        run_id = materialise(made)
        events, seen, ended = len(made.all_logs(run_id)), [], threading.Event()

        def look() -> None:
            while not ended.is_set():
                seen.append(len(made.all_logs(run_id)))

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        materialise(made)
        ended.set()
        for thread in threads:
            thread.join()
        assert set(seen) == {events}


def test_a_run_opens_few_engines_however_many_events_it_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    build = history._engine

    def counted(address: str) -> sqlalchemy.Engine:
        made.append(address)
        return build(address)

    monkeypatch.setattr(history, "_engine", counted)
    with instance(folder, OURS) as writer:
        for _ in range(3):
            materialise(writer)
    # One for the runs, one for the index, one for each run's own events.
    assert len(made) == len(set(made)) == 5


def test_it_has_all_that_dagsters_own_has(tmp_path: Path) -> None:
    ours, theirs = (made(str(tmp_path / made.__name__)) for made in (history.History, history.DagsterSqliteStorage))
    assert vars(ours).keys() == vars(theirs).keys()


def test_a_table_that_is_made_later_is_seen_later(folder: Path) -> None:
    with instance(folder, OURS) as made:
        events = made.event_log_storage
        assert events.has_table("event_logs")
        assert not events.has_table("of_tomorrow")
        with events.index_connection() as connection:
            connection.execute(sqlalchemy.text("create table of_tomorrow (n integer)"))
        assert events.has_table("of_tomorrow")


def test_a_database_that_was_cut_off_before_its_revision_is_made_whole(folder: Path) -> None:
    with instance(folder, OURS) as made:
        materialise(made)
        index = made.event_log_storage.path_for_shard("index")
    with sqlalchemy.create_engine(f"sqlite:///{index}").begin() as connection:
        connection.execute(sqlalchemy.text("delete from alembic_version"))
    with instance(folder, OURS) as made:
        assert rows(made) == 3
        with made.event_log_storage.index_connection() as connection:
            assert connection.execute(sqlalchemy.text("select count(*) from alembic_version")).scalar() == 1


def test_only_the_databases_in_use_stay_open(tmp_path: Path) -> None:
    engines = history.Engines()
    addresses = [f"sqlite:///{tmp_path / str(n)}.db" for n in range(20)]
    oldest = engines.get(addresses[0])
    with oldest.connect() as connection:
        connection.execute(sqlalchemy.text("create table here (n integer)"))
    for address in addresses[1:]:
        with engines.get(address).connect() as connection:
            connection.execute(sqlalchemy.text("select 1"))
    assert len(engines._engines) == 8
    assert oldest.pool.status().startswith("Pool size: 5  Connections in pool: 0")
    assert engines.get(addresses[0]) is not oldest
    engines.close()
