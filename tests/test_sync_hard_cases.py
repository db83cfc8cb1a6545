"""What reviewers found and nobody expects: reconciling, renaming, relabelling and dying at the wrong moment."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import dagster as dg
import pytest

from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import pipeline, spool, state
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import fetch
from aps_rag_pipeline.sync.purge import UnknownKeyError, purge
from aps_rag_pipeline.sync.removals import confirm_removals
from assets.processes import PROCESS_TAG, end_dead_runs
from tests.small_facility import Facility, bundle


@pytest.fixture
def facility(tmp_path: Path) -> Facility:
    made = Facility(tmp_path)
    made.log = {f"shift-{n}": {100 * n + i: f"Entry {i} of shift {n}" for i in range(4)} for n in range(1, 6)}
    made.requests = {"20000": {"title": "Pump", "description": "Replace it"}}
    return made.write()


def released(facility: Facility) -> dict[str, list[str]]:
    with releases.open_release(facility.home) as release:
        rows = release.table("records").to_arrow().select(["key", "access"]).to_pylist()
        return {row["key"]: row["access"] for row in rows}


def change_feed(facility: Facility, index: int, **values: object) -> None:
    feeds = facility.config["feeds"]
    feeds[index] = {**feeds[index], **values}
    facility.extra["feeds"] = feeds


def reconcile(facility: Facility) -> None:
    with facility.workspace() as workspace:
        fetch(workspace, workspace.settings.feeds, again=True)
        apply_spool(workspace)
        pipeline.complete(workspace)


def test_reconciling_finds_deletions_that_a_whole_read_would_forget(facility: Facility) -> None:
    facility.sync()
    (facility.root / "log" / "shift-1.json").unlink()
    reconcile(facility)
    assert not {f"BELY:{n}" for n in range(100, 104)} & set(released(facility))
    assert len(facility.live()) == 17


def test_another_setting_of_a_feed_removes_what_it_no_longer_admits(facility: Facility) -> None:
    facility.sync()
    change_feed(facility, 0, exclude=["shift-2.json"])
    facility.sync()
    assert not {f"BELY:{n}" for n in range(200, 204)} & set(released(facility))


def test_a_deletion_and_new_labels_in_one_sync_leave_nothing_behind(facility: Facility) -> None:
    facility.sync()
    (facility.root / "log" / "shift-1.json").unlink()
    change_feed(facility, 0, access=["ops"])
    facility.sync()
    found = released(facility)
    assert "BELY:100" not in found
    assert {tuple(access) for key, access in found.items() if key.startswith("BELY")} == {("ops",)}


def test_an_emptied_folder_is_an_outage_also_when_all_is_read_again(facility: Facility) -> None:
    facility.sync()
    for path in (facility.root / "log").iterdir():
        path.unlink()
    change_feed(facility, 0, date_order="dmy")
    fetched, _, _ = facility.sync()
    assert "20 records were read from it before" in next(r.error for r in fetched if r.feed == "logbook")
    assert len(facility.live()) == 21


def test_tighter_labels_hold_for_files_that_cannot_be_read_just_now(facility: Facility) -> None:
    facility.sync()
    (facility.root / "log" / "shift-1.json").write_text("{ damaged")
    change_feed(facility, 0, access=["vacuum"])
    facility.sync()
    assert {tuple(access) for key, access in released(facility).items() if key.startswith("BELY")} == {("vacuum",)}
    assert "BELY:100" in released(facility)


def test_a_feed_that_is_taken_out_and_put_back_comes_back_whole(facility: Facility) -> None:
    facility.sync()
    feeds = facility.config["feeds"]
    facility.extra["feeds"] = feeds[1:]
    facility.sync()
    assert set(released(facility)) == {"WRQ:20000"}
    assert state.read_feed(facility.home, "bely", "logbook").held_removals == 20
    facility.extra["feeds"] = feeds
    facility.log["shift-1"][100] = "edited meanwhile"
    facility.write().sync()
    assert len(released(facility)) == 21
    facility.sync()
    assert len(facility.live()) == 21


def test_a_renamed_feed_serves_its_records_under_the_same_keys(facility: Facility) -> None:
    facility.sync()
    before = set(released(facility))
    change_feed(facility, 0, name="main-log")
    _, applied, _ = facility.sync()
    assert set(released(facility)) == before
    (held,) = [feed for feed in applied.feeds if feed.held]
    with facility.workspace() as workspace:
        assert confirm_removals(workspace, held.held_digest) == 20
    facility.sync()
    assert set(released(facility)) == before
    assert all(found == before for found in facility.everywhere().values())


def test_a_purged_record_stays_out_when_its_feed_is_renamed(facility: Facility) -> None:
    facility.sync()
    with facility.workspace() as workspace:
        purge(workspace, "BELY:100")
        with pytest.raises(UnknownKeyError, match="already"):
            purge(workspace, "BELY:100")
    change_feed(facility, 0, name="main-log")
    facility.sync()
    assert "BELY:100" not in released(facility)
    assert "BELY:101" in released(facility)


def test_a_record_in_two_files_lives_as_long_as_one_of_them_has_it(facility: Facility) -> None:
    facility.sync()
    copy = facility.root / "log" / "copy.jsonl"  # `write` minds files of its own kind
    copy.write_text(json.dumps(bundle("shift-1", {100: facility.log["shift-1"][100]})))
    facility.sync()
    with facility.workspace() as workspace:
        assert workspace.catalog.rows("select * from dead_letters") == []
    del facility.log["shift-1"][100]
    facility.write().sync()
    assert "BELY:100" in released(facility)
    copy.unlink()
    facility.sync()
    assert "BELY:100" not in released(facility)


def test_of_two_fetches_from_one_cursor_the_second_waits_for_its_turn(facility: Facility) -> None:
    facility.sync()
    with facility.workspace() as workspace:
        facility.log["shift-9"] = {900: "came and went"}
        facility.write()
        fetch(workspace, workspace.settings.feeds)
        del facility.log["shift-9"]
        facility.log["shift-1"][100] = "edited"
        facility.write()
        fetch(workspace, workspace.settings.feeds)
        apply_spool(workspace)
        pipeline.sync(workspace)
    assert "BELY:900" not in facility.live()
    assert len(facility.live()) == 21


def test_a_damaged_spool_file_costs_another_fetch_and_nothing_else(facility: Facility) -> None:
    with facility.workspace() as workspace:
        fetch(workspace, workspace.settings.feeds)
        first, *_ = spool.waiting(workspace.home.spool)
        first.write_bytes(first.read_bytes()[:30])
        (workspace.home.spool / "00000000000000000001-logbook.jsonl.zst").write_bytes(b"")
        apply_spool(workspace)
        pipeline.sync(workspace)
    assert len(facility.live()) == 21


def _open_catalog(root: str) -> None:
    Catalog(Home(Path(root))).close()


def test_processes_that_open_a_new_home_together_do_not_disturb_each_other(tmp_path: Path) -> None:
    Home(tmp_path).create()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_open_catalog, args=(str(tmp_path),)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4


def test_a_restored_catalog_publishes_again_although_numbers_repeat(facility: Facility) -> None:
    facility.sync()
    kept = facility.home.catalog.read_bytes()
    facility.log["shift-1"][100] = "version two"
    facility.write().sync()
    facility.home.catalog.write_bytes(kept)
    facility.log["shift-1"][100] = "version three"
    facility.write().sync()
    with releases.open_release(facility.home) as release:
        texts = release.table("passages").to_arrow()["text"].to_pylist()
    assert any("version three" in text for text in texts)
    assert not any("version two" in text for text in texts)


def test_a_half_dropped_release_is_none(facility: Facility) -> None:
    facility.sync()
    facility.log["shift-1"][100] = "edited"
    facility.extra["limits"] = {"retention_hours": 48}
    facility.write().sync()
    (releases.folder_of(facility.home, 1) / releases.MANIFEST).unlink()
    facility.log["shift-1"][100] = "edited again"
    facility.write().sync()
    assert releases.numbers(facility.home) == [2, 3]


def test_a_run_whose_process_was_killed_does_not_count_as_running() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for pid in (os.getpid(), 2**22 + 1):

            @dg.job
            def empty() -> None:
                pass

            import socket

            import psutil

            created = f"{psutil.Process().create_time():.2f}"
            tags = {PROCESS_TAG: f"{socket.gethostname()}:{pid}:{created}"}
            instance.create_run_for_job(empty, tags=tags, status=dg.DagsterRunStatus.STARTED)
        (ended,) = end_dead_runs(instance)
        assert instance.get_run_by_id(ended).status == dg.DagsterRunStatus.FAILURE
        running = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        assert [run.tags[PROCESS_TAG].split(":")[1] for run in running] == [str(os.getpid())]


def test_settings_refuse_what_could_never_be_read(tmp_path: Path) -> None:
    feed = {"name": "a", "source": "wiki", "location": "x"}
    for wrong, told in (({"encoding": "latin-99"}, "latin-99"), ({"url_template": "https://x"}, "{id}")):
        with pytest.raises(ValueError, match=told):
            Settings.build({"feeds": [{**feed, **wrong}]}, tmp_path / "facility.yaml")


def test_the_facilitys_own_secrets_are_masked_where_a_source_repeats_them(facility: Facility) -> None:
    facility.extra["graph"] = {"uri": None, "password": "amberquail7"}
    facility.log["shift-1"][100] = "someone typed amberquail7 into the log"
    facility.write().sync()
    with releases.open_release(facility.home) as release:
        texts = "".join(release.table("passages").to_arrow()["text"].to_pylist())
    assert "amberquail7" not in texts
    assert "someone typed [masked credential] into the log" in texts
