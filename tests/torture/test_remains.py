"""What a run that died leaves behind is found and completed by the next one: each way in which it once was not."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aps_rag_pipeline import failpoints
from aps_rag_pipeline.audit.run import audit
from aps_rag_pipeline.sources.base import Complete, Cursor, Upsert
from aps_rag_pipeline.stores import lock, releases, sparse
from aps_rag_pipeline.stores.home import HomeError
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import pipeline, spool, state
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.collection import collect
from aps_rag_pipeline.sync.fetch import fetch
from aps_rag_pipeline.sync.model import configured_model
from aps_rag_pipeline.sync.projection import project
from aps_rag_pipeline.sync.purge import purge
from tests.small_facility import Facility, tree


class Killed(BaseException):
    """Nothing in the pipeline handles it."""


@pytest.fixture
def facility(tmp_path: Path) -> Facility:
    made = Facility(tmp_path)
    made.log = {"shift": {n: f"Klystron K{n} tripped, supply S{n}A:H1:CurrentAO looked at" for n in range(100, 112)}}
    made.requests = {str(n): {"title": f"Pump P{n}", "description": "It draws current"} for n in range(20000, 20006)}
    return made.write()


@contextmanager
def killed_at(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What runs within ends when it comes to a place."""
    assert name in failpoints.NAMES
    real = failpoints.passing

    def passing(place: str) -> None:
        if place == name:
            raise Killed(name)

    with monkeypatch.context() as patch:
        for module in list(sys.modules.values()):
            if getattr(module, "passing", None) is real:
                patch.setattr(module, "passing", passing)
        with pytest.raises(Killed):
            yield


def demand_agreement(facility: Facility) -> None:
    keys = set(facility.live())
    assert all(found == keys for found in facility.everywhere().values())
    with facility.workspace() as workspace:
        assert audit(workspace, configured_model(workspace.settings, workspace.home)).listed == []
    with releases.open_release(facility.home) as release:
        assert set(release.table("records").to_arrow()["key"].to_pylist()) == keys


@pytest.mark.parametrize("lost", ["lance/passages.lance", "lance/nodes.lance", "tantivy"])
def test_an_index_put_up_anew_by_a_run_that_died_is_filled(
    facility: Facility, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    shutil.rmtree(facility.home.root / lost)
    place = "bm25.create.after" if lost == "tantivy" else "lance.create.after"
    with killed_at(place, monkeypatch):
        facility.sync()
    facility.sync()
    demand_agreement(facility)


def test_half_an_index_and_half_a_table_are_none(facility: Facility) -> None:
    facility.sync()
    (facility.home.tantivy / "meta.json").unlink()  # what the dropping of an index takes first
    for manifest in (facility.home.lance / "records.lance" / "_versions").iterdir():
        manifest.unlink()  # what the making of a table puts last
    facility.sync()
    demand_agreement(facility)


def test_nodes_that_went_in_a_run_that_died_go_from_the_table(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    facility.log["shift"][100] = "Nothing was named here"
    with killed_at("graph.commit.after", monkeypatch):
        facility.write().sync()
    facility.sync()
    with facility.workspace() as workspace:
        live = {row["node_id"] for row in workspace.catalog.rows("select node_id from nodes where removed = 0")}
    with releases.open_release(facility.home) as release:
        assert set(release.table("nodes").to_arrow()["node_id"].to_pylist()) == live


@pytest.mark.parametrize(
    "place", ["purge.commit.after", "bm25.create.before", "purge.rewrite.before", "publish.rename.after",
              "collect.rename.after", "purge.scrub.before"],
)  # fmt: skip
def test_a_purge_that_died_is_carried_through_by_the_next_sync(
    facility: Facility, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.log["shift"][105] = "The password of the console is zanzibarquagga"
    facility.write().sync()
    with killed_at(place, monkeypatch), facility.workspace() as workspace:
        purge(workspace, "BELY:105")
    facility.sync()
    for path in facility.home.root.rglob("*"):
        if path.is_file():
            assert b"zanzibarquagga" not in path.read_bytes(), path
    assert len(releases.numbers(facility.home)) == 1
    demand_agreement(facility)


def test_a_purge_that_died_can_be_asked_for_again(facility: Facility, monkeypatch: pytest.MonkeyPatch) -> None:
    facility.sync()
    with killed_at("purge.commit.after", monkeypatch), facility.workspace() as workspace:
        purge(workspace, "BELY:105")
    with facility.workspace() as workspace:
        assert purge(workspace, "BELY:105") == 1
    assert releases.latest(facility.home).counts["records"] == 17


def test_a_collection_that_died_is_ended_by_a_sync_without_news(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    facility.log["shift"][100] = "Another text"
    with killed_at("collect.tags.before", monkeypatch):
        facility.write().sync()
    assert list(facility.home.releases.glob(".gone-*"))
    facility.sync()
    assert [path.name for path in facility.home.releases.iterdir()] == ["00000002"]
    assert list(LanceTables(facility.home).table("records").tags.list()) == ["release-00000002"]
    before = tree(facility.home.root)
    facility.sync()
    assert tree(facility.home.root) == before


def test_a_release_that_a_reader_held_is_collected_by_a_sync_without_news(facility: Facility) -> None:
    facility.sync()
    facility.log["shift"][100] = "Another text"
    with releases.open_release(facility.home) as held:
        facility.write().sync()
        assert releases.numbers(facility.home) == [1, 2]
        assert held.table("passages").count_rows() == 18  # opened only now
        assert "Another text" not in str(held.chunks().to_arrow()["text"].to_pylist())
    facility.sync()
    assert releases.numbers(facility.home) == [2]


def test_a_feed_whose_run_died_behind_its_commit_tells_of_its_held_removals(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    facility.log["shift"] = {100: facility.log["shift"][100]}
    with killed_at("apply.commit.after", monkeypatch):
        facility.write().sync()
    assert state.read_feed(facility.home, "bely", "logbook").held_digest == ""
    facility.sync()
    known = state.read_feed(facility.home, "bely", "logbook")
    assert known.held_removals == 11
    assert known.held_digest
    assert not spool.waiting(facility.home.spool)


def test_a_damaged_spool_file_takes_no_changeset_from_another_feed(facility: Facility) -> None:
    facility.sync()
    facility.log["shift"][100] = "Another text"
    facility.requests["20000"]["title"] = "Another title"
    facility.write()
    with facility.workspace() as workspace:
        fetch(workspace, workspace.settings.feeds)
        first = next(path for path in spool.waiting(facility.home.spool) if "logbook" in path.name)
        header, entries = spool.read(first)
        writer = spool.SpoolWriter(facility.home.spool, header)
        for entry in entries:
            if isinstance(entry.change, Upsert):
                writer.write(entry)
        writer.keep()
        whole = first.read_bytes()
        first.write_bytes(whole[: len(whole) - 4])
        os.rename(first, first.with_name(first.name.replace("0", "0", 1)))
        apply_spool(workspace)
        moved = workspace.catalog.rows("select distinct changeset from records order by 1")
        assert [row[0] for row in moved] == [1, workspace.catalog.changeset()]
        assert isinstance(Complete("x"), Complete)
        assert isinstance(Cursor(None), Cursor)


def test_a_reader_that_meets_a_collection_looks_again(facility: Facility, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release goes between every look at the folder and what is done with it."""
    facility.sync()
    facility.log["shift"][100] = "Another text"
    facility.extra = {"limits": {"retention_hours": 24}}
    facility.write().sync()
    home, real = facility.home, releases.numbers

    def one_behind(home: object) -> list[int]:
        monkeypatch.setattr(releases, "numbers", real)
        found = real(facility.home)
        assert releases.retire(facility.home, 1)
        return found[:1]

    monkeypatch.setattr(releases, "numbers", one_behind)
    assert releases.latest(home).number == 2


def test_no_reader_gets_a_release_while_it_is_retired(facility: Facility, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is held until the rename, so a reader that was late finds that the release has gone."""
    facility.sync()
    facility.log["shift"][100] = "Another text"
    facility.extra = {"limits": {"retention_hours": 24}}
    facility.write().sync()
    held_until_renamed = []

    def passing(place: str) -> None:
        if place == "collect.rename.before":
            held_until_renamed.append(releases.leased(releases.folder_of(facility.home, 1)))

    monkeypatch.setattr(releases, "passing", passing)
    assert releases.retire(facility.home, 1)
    assert held_until_renamed == [True]
    with releases.open_release(facility.home) as held:
        assert held.manifest.number == 2
        assert not releases.retire(facility.home, 2)
        monkeypatch.undo()
        assert releases.retire(facility.home, 2, whoever_reads=True)


def test_a_release_without_its_lease_is_an_error_not_an_endless_search(facility: Facility) -> None:
    facility.sync()
    (releases.folder_of(facility.home, 1) / releases.LEASE).unlink()
    with pytest.raises(HomeError, match="lease"):
        releases.open_release(facility.home)


def test_a_collection_leaves_what_a_fetch_under_way_has_seen(facility: Facility) -> None:
    facility.sync()
    blobs, folder = facility.home.blobs, facility.home.spool
    old = blobs.put(b"nobody refers to this")
    os.utime(blobs.path(old), (0, 0))
    time_ns = time.time_ns() - 10**9
    writer = spool.SpoolWriter(folder, spool.Header("logbook", "bely", "", None, time_ns, datetime.now(UTC)))
    new = blobs.put(b"a picture that will be applied later")
    facility.log["shift"][100] = "Another text"
    facility.write().sync()
    assert (old in blobs, new in blobs) == (False, True)
    assert [path.name[0] for path in folder.iterdir()] == ["."]  # the fetch that lives keeps its draft
    writer.discard()
    facility.log["shift"][100] = "A third text"
    facility.write().sync()
    assert new not in blobs


def test_a_blob_that_is_seen_again_while_it_is_collected_stays(facility: Facility) -> None:
    facility.sync()
    blobs = facility.home.blobs
    sha256 = blobs.put(b"seen twice")
    now = time.time()
    os.utime(blobs.path(sha256), (now, now))
    assert not blobs.remove(sha256, now - 1)
    assert blobs.get(sha256) == b"seen twice"
    assert blobs.remove(sha256, now)
    assert blobs.put(b"seen twice") == sha256
    assert sha256 in blobs


def test_what_dead_writers_left_is_swept(facility: Facility) -> None:
    facility.sync()
    root = facility.home.root
    litter = [
        root / "spool" / ".00000000000000000001-logbook.jsonl.zst",
        root / "state" / ".feed-logbook.json.999999",
        root / "blobs" / "ab" / ".0123",
        root / "releases" / ".00000009" / "manifest.json",
        root / "lance" / "records.lance" / "data" / "0123.lance",
        root / "lance" / "records.lance" / "data" / ".tmpABCD",
        root / "lance" / "records.lance" / "_versions" / "18446744073709551000.manifest#1",
        root / "lance" / ".gone-chunks_old" / "data" / "0.lance",
    ]
    for path in litter:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"cut off")
        os.utime(path, (0, 0))
    facility.log["shift"][100] = "Another text"
    facility.write().sync()
    assert [path for path in litter if path.exists()] == []


def test_when_a_picture_is_due_again_is_still_known_after_a_release(facility: Facility) -> None:
    facility.sync()
    due = datetime(2100, 1, 1, tzinfo=UTC)
    with facility.workspace() as workspace, workspace.catalog.transaction() as connection:
        connection.execute("insert into attachments values (1, 'ab')")
        row = ("ab", 0, "eng", "engine", "", 0.0, "busy", due.isoformat())
        connection.execute("insert into ocr values (?, ?, ?, ?, ?, ?, ?, ?)", row)
    facility.sync()
    assert state.read_pipeline(facility.home).pictures_retry_at == due


def test_tombstones_of_the_graph_go_without_a_server(facility: Facility) -> None:
    facility.sync()
    with facility.workspace() as workspace:
        assert project(workspace).notices  # no server
        with workspace.catalog.transaction():
            workspace.catalog.set_applied("neo4j_projection", "projection:1", 1)
    for n in range(100, 109):
        facility.log["shift"][n] = "No device is named"
    facility.write().sync()
    with facility.workspace() as workspace:
        assert workspace.catalog.value("select count(*) from nodes where removed = 1") == 0
        assert workspace.catalog.value("select count(*) from edges where removed = 1") == 0
        assert workspace.catalog.applied("neo4j_projection", "projection:1") == 0  # it is built anew


def test_deleted_documents_do_not_stay_in_the_index(facility: Facility) -> None:
    facility.sync()
    for turn in range(6):
        for n in range(100, 104):
            facility.log["shift"][n] = f"Turn {turn} of entry {n}"
        facility.write().sync()
        assert not sparse.mostly_deleted(facility.home.tantivy) or turn % 2 == 0
    with facility.workspace() as workspace:
        assert collect(workspace)["releases_collected"] == 0
        pipeline.complete(workspace)
    demand_agreement(facility)


def test_a_holder_that_has_not_said_yet_who_it_is_is_waited_for(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between taking the lock and its note there is a moment, and another between clearing the note and letting go."""
    home = facility.home.create()
    with lock.WriterLock(home, 0, "a night-long sync"):
        note = home.writer_lock.read_bytes()
        os.truncate(home.writer_lock, 0)
        monkeypatch.setattr(lock.time, "sleep", lambda _: home.writer_lock.write_bytes(note))
        with pytest.raises(lock.HomeTakenError, match="a night-long sync"):
            lock.WriterLock(home, 0, "second writer").acquire()
