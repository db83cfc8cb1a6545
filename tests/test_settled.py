"""A sync that would find nothing to do is not started, and anything that could give it something to do starts it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aps_rag_pipeline import clock
from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.remembered import remember
from aps_rag_pipeline.audit.run import audit
from aps_rag_pipeline.cli.job import look_first
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.lock import HomeTakenError, WriterLock
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import scrub, settled, state
from aps_rag_pipeline.sync.fetch import fetch
from aps_rag_pipeline.sync.model import configured_model
from aps_rag_pipeline.sync.pipeline import STAGES
from aps_rag_pipeline.sync.purge import purge
from aps_rag_pipeline.sync.settled import begin, note_settled, still_settled
from tests.small_facility import Facility, kicker_facility

STEPS = ("passages", "release")


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Facility:
    made = kicker_facility(tmp_path_factory.mktemp("synced"))
    made.sync()
    note_settled(made.settings, STEPS, begin(made.settings))
    return made


@pytest.fixture
def facility(synced: Facility, tmp_path: Path) -> Facility:
    """A copy of one that has settled; `copy2` keeps the times of its files, and the change time is looked at anew."""
    shutil.copytree(synced.root, tmp_path / "ring")
    made = Facility(tmp_path / "ring", synced.log, synced.requests)
    made.sync()  # takes over the times of change
    note_settled(made.settings, STEPS, begin(made.settings))
    assert still_settled(made.settings) is not None
    return made


def test_feeds_are_noted_as_looked_at_and_nothing_else_is_written(facility: Facility) -> None:
    before = {path: path.stat().st_mtime_ns for path in facility.home.root.rglob("*") if path.is_file()}
    first = state.read_feed(facility.home, "bely", "logbook")
    note = still_settled(facility.settings)
    assert note is not None
    assert (note.steps, note.release) == (STEPS, 1)
    found = state.read_feed(facility.home, "bely", "logbook")
    assert found.succeeded_at is not None
    assert first.succeeded_at is not None
    assert found.succeeded_at > first.succeeded_at
    assert found.attempted_at == found.succeeded_at
    after = {path: path.stat().st_mtime_ns for path in facility.home.root.rglob("*") if path.is_file()}
    moved = {path.name for path in after if before.get(path) != after[path]}
    assert moved - {"catalog.sqlite-wal", "catalog.sqlite-shm"} == {
        "feed-logbook.json", "feed-requests.json", "writer.lock"
    }  # fmt: skip


def edit(facility: Facility) -> None:
    path = facility.root / "log" / "shift-1.json"
    before = path.stat()
    path.write_text(path.read_text().replace("tripped", "TRIPPED"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # of the same size and time as before


def add(facility: Facility) -> None:
    shutil.copy(facility.root / "log" / "shift-1.json", facility.root / "log" / "shift-2.json")


def delete(facility: Facility) -> None:
    (facility.root / "requests" / "requests.csv").unlink()


def fetched_only(facility: Facility) -> None:
    edit(facility)
    with facility.workspace() as workspace:
        fetch(workspace, facility.settings.feeds)


def hold(facility: Facility) -> None:
    known = state.read_feed(facility.home, "bely", "logbook")
    known.held_removals = 3
    state.write_feed(facility.home, known)


def fail(facility: Facility) -> None:
    known = state.read_feed(facility.home, "bely", "logbook")
    known.error = "no such folder"
    state.write_feed(facility.home, known)


def letter_due(facility: Facility) -> None:
    known = state.read_feed(facility.home, "bely", "logbook")
    known.retry_at = clock.now() - timedelta(minutes=1)
    state.write_feed(facility.home, known)


def picture_due(facility: Facility) -> None:
    known = state.read_pipeline(facility.home)
    known.pictures_retry_at = clock.now() - timedelta(minutes=1)
    state.write_pipeline(facility.home, known)


def other_limits(facility: Facility) -> None:
    facility.extra = {"limits": {"lock_timeout_s": 0.2, "retention_hours": 0, "max_pages": 7}}


def other_model(facility: Facility) -> None:
    facility.extra = {"models": {"embedding": "test:hash-64"}}


def feed_gone(facility: Facility) -> None:
    facility.extra = {"feeds": facility.config["feeds"][:1]}


def graph_server(facility: Facility) -> None:
    facility.extra = {"graph": {"uri": "bolt://127.0.0.1:1"}}


def purged(facility: Facility) -> None:
    with facility.workspace() as workspace:
        purge(workspace, "BELY:2")


def purge_cut_off(facility: Facility) -> None:
    with facility.workspace() as workspace, workspace.catalog.transaction():
        scrub.want(workspace.catalog)


def collection_cut_off(facility: Facility) -> None:
    (facility.home.releases / f"{releases.GONE}00000001").mkdir()


def collection_due(facility: Facility) -> None:
    shutil.copytree(releases.folder_of(facility.home, 1), releases.folder_of(facility.home, 0))


def release_lost(facility: Facility) -> None:
    shutil.rmtree(releases.folder_of(facility.home, 1))


def index_lost(facility: Facility) -> None:
    shutil.rmtree(facility.home.tantivy)


def table_lost(facility: Facility) -> None:
    shutil.rmtree(facility.home.lance / "passages.lance")


def mart_lost(facility: Facility) -> None:
    (facility.home.marts / "source_freshness.parquet").unlink()


def released_index_lost(facility: Facility) -> None:
    shutil.rmtree(releases.folder_of(facility.home, 1) / "tantivy")


def run_begun(facility: Facility) -> None:
    begin(facility.settings)  # and never ended


def a_week_gone(facility: Facility) -> None:
    path = facility.home.state / "settled.json"
    note = msgspec.json.decode(path.read_bytes(), type=settled.Settled)
    state.write(path, msgspec.structs.replace(note, at=clock.now() - timedelta(days=7)))


def note_lost(facility: Facility) -> None:
    (facility.home.state / "settled.json").write_bytes(b"{")


def feed_unreadable(facility: Facility) -> None:
    shutil.rmtree(facility.root / "log")


@pytest.mark.parametrize(
    "happen",
    [
        edit, add, delete, fetched_only, hold, fail, letter_due, picture_due, other_limits, other_model, feed_gone,
        graph_server, purged, purge_cut_off, collection_cut_off, collection_due, release_lost, note_lost,
        feed_unreadable, index_lost, table_lost, mart_lost, released_index_lost, run_begun, a_week_gone,
    ],
    ids=lambda happen: happen.__name__,
)  # fmt: skip
def test_whatever_could_give_a_run_something_to_do_starts_it(
    facility: Facility, happen: Callable[[Facility], None]
) -> None:
    happen(facility)
    before = state.read_feed(facility.home, "bely", "logbook")
    assert still_settled(facility.settings) is None
    assert state.read_feed(facility.home, "bely", "logbook") == before


def test_after_an_audit_that_found_something_a_run_says_so_again(facility: Facility) -> None:
    def look() -> Findings:
        with facility.workspace() as workspace:
            found = audit(workspace, configured_model(facility.settings, facility.home))
        remember(facility.home, found)
        return found

    assert look_first(facility.settings) is None  # it was never audited
    assert not look().counts
    assert look_first(facility.settings) is not None
    LanceTables(facility.home).table("passages").delete("key = 'BELY:3'")
    assert look().counts
    assert look_first(facility.settings) is None


def test_an_event_that_a_source_told_starts_a_run(facility: Facility) -> None:
    state.write_nudge(facility.home, "logbook", clock.now())
    assert still_settled(facility.settings) is None


def test_another_reader_of_pictures_starts_a_run(facility: Facility, monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in ("tesseract 9 reader 1", None):
        monkeypatch.setattr(settled, "engine_version", lambda engine=engine: engine)
        assert still_settled(facility.settings) is None


def test_another_version_of_the_program_runs_once(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "program" / "assets"
    package.mkdir(parents=True)
    (package / "marts.sql").write_text("select 1")
    monkeypatch.setattr(settled, "_TOP", tmp_path / "program")
    assert still_settled(facility.settings) is None
    note_settled(facility.settings, STEPS, begin(facility.settings))
    assert still_settled(facility.settings) is not None
    (package / "marts.sql").write_text("select 2, 3")
    assert still_settled(facility.settings) is None


def test_a_program_that_was_replaced_during_a_run_runs_again(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "program" / "assets"
    package.mkdir(parents=True)
    (package / ".#marts.sql").symlink_to("nobody@nowhere")  # as an editor leaves it
    (package / "marts.sql").write_text("select 1")
    monkeypatch.setattr(settled, "_TOP", tmp_path / "program")
    program = begin(facility.settings)
    (package / "marts.sql").write_text("select 2, 3")
    note_settled(facility.settings, STEPS, program)
    assert still_settled(facility.settings) is None


def test_what_others_note_during_the_looks_is_not_written_over(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = settled.due.moved

    def moved(*arguments: Any) -> str:
        fail(facility)
        return looked(*arguments)

    monkeypatch.setattr(settled.due, "moved", moved)
    assert still_settled(facility.settings) is None
    assert state.read_feed(facility.home, "bely", "logbook").error == "no such folder"


def test_nothing_is_noted_before_the_first_release(tmp_path: Path) -> None:
    made = kicker_facility(tmp_path)
    assert still_settled(made.settings) is None
    note_settled(made.settings, STEPS, begin(made.settings))
    assert still_settled(made.settings) is None


def test_while_another_writes_nobody_knows_whether_all_is_settled(facility: Facility) -> None:
    with WriterLock(facility.home, 0.0, "another"), pytest.raises(HomeTakenError, match="another"):
        still_settled(facility.settings)


def test_after_a_run_that_did_something_it_is_settled_again(facility: Facility) -> None:
    edit(facility)
    assert still_settled(facility.settings) is None
    _, _, reports = facility.sync()
    assert len(reports) == len(STAGES) + 1
    facility.sync()  # collects the release before
    note_settled(facility.settings, STEPS, begin(facility.settings))
    assert still_settled(facility.settings) is not None
