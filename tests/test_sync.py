"""From feed to release: nothing lost, nothing invented, nothing stale, nothing done twice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.catalog import unpack
from aps_rag_pipeline.stores.lock import HomeTakenError, WriterLock
from aps_rag_pipeline.sync import pipeline, spool, state
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import fetch
from aps_rag_pipeline.sync.preview import preview
from aps_rag_pipeline.sync.purge import UnknownKeyError, purge
from aps_rag_pipeline.sync.removals import confirm_removals
from tests.small_facility import Facility, bundle, tree


@pytest.fixture
def facility(tmp_path: Path) -> Facility:
    made = Facility(tmp_path)
    made.log = {
        f"shift-{n}": {
            100 * n + i: f"Entry {i} of shift {n}: klystron K{n}{i} tripped on reflected power" for i in range(4)
        }
        for n in range(1, 6)
    }
    made.requests = {
        str(20000 + i): {"title": f"Replace pump P{i}", "description": f"The ion pump P{i} draws high current"}
        for i in range(15)
    }
    return made.write()


def counts(applied) -> dict[str, int]:
    return {name: applied.counts[name] for name in ("added", "changed", "relabelled", "removed")}


def test_the_second_sync_changes_no_row_no_file_and_no_release(facility: Facility) -> None:
    fetched, applied, reports = facility.sync()
    assert [report.error for report in fetched] == ["", ""]
    assert counts(applied) == {"added": 35, "changed": 0, "relabelled": 0, "removed": 0}
    before = tree(facility.home.root)
    fetched, applied, reports = facility.sync()
    assert applied.moved == 0
    assert {report.stage: report.counts["changed"] for report in reports if report.counts["changed"]} == {}
    assert tree(facility.home.root) == before
    assert releases.numbers(facility.home) == [1]


def test_every_index_follows_an_edit_a_deletion_and_a_revert(facility: Facility) -> None:
    facility.sync()
    original = facility.log["shift-1"][101]
    facility.log["shift-1"][101] = "The arc detector of K11 was dirty, cleaned it"
    del facility.log["shift-2"][200]
    _, applied, reports = facility.write().sync()
    assert counts(applied) == {"added": 0, "changed": 1, "relabelled": 0, "removed": 1}
    embedded = next(report for report in reports if report.stage == "embeddings").counts["embedded"]
    assert embedded == 1
    keys = set(facility.live())
    assert "BELY:200" not in keys
    assert len(keys) == 34
    assert all(found == keys for found in facility.everywhere().values())
    with releases.open_release(facility.home) as release:
        texts = release.table("passages").to_arrow()["text"].to_pylist()
    assert any("arc detector of K11" in text for text in texts)
    assert not any(original in text for text in texts)

    facility.log["shift-1"][101] = original
    _, applied, reports = facility.write().sync()
    assert counts(applied) == {"added": 0, "changed": 1, "relabelled": 0, "removed": 0}
    with releases.open_release(facility.home) as release:
        assert any(original in text for text in release.table("passages").to_arrow()["text"].to_pylist())


def test_a_relabelled_feed_changes_labels_everywhere_without_embedding(facility: Facility) -> None:
    facility.sync()
    feeds = facility.config["feeds"]
    feeds[1]["access"] = ["vacuum"]
    facility.extra["feeds"] = feeds
    _, applied, reports = facility.sync()
    assert counts(applied) == {"added": 0, "changed": 0, "relabelled": 15, "removed": 0}
    assert next(report for report in reports if report.stage == "embeddings").counts["embedded"] == 0
    with releases.open_release(facility.home) as release:
        for table in (release.table("records"), release.table("passages"), release.chunks()):
            rows = table.to_arrow().select(["source", "access"]).to_pylist()
            assert {tuple(r["access"]) for r in rows if r["source"] == "work_requests"} == {("vacuum",)}
            assert {tuple(r["access"]) for r in rows if r["source"] == "bely"} == {("public",)}


def test_a_damaged_file_keeps_its_records_is_remembered_and_mended(facility: Facility) -> None:
    facility.sync()
    whole = (facility.root / "log" / "shift-3.json").read_text()
    (facility.root / "log" / "shift-3.json").write_text(whole[: len(whole) // 2])
    _, applied, _ = facility.sync()
    assert applied.moved == 0
    assert len(facility.live()) == 35
    with facility.workspace() as workspace:
        (letter,) = workspace.catalog.rows("select * from dead_letters")
    assert letter["place"].startswith("shift-3.json")
    assert letter["reason"]
    assert state.read_feed(facility.home, "bely", "logbook").failures == 1
    (facility.root / "log" / "shift-3.json").write_text(whole)
    facility.sync()
    with facility.workspace() as workspace:
        assert workspace.catalog.rows("select * from dead_letters") == []
    assert len(facility.live()) == 35


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_an_outage_is_not_an_emptiness(facility: Facility, how: str) -> None:
    facility.sync()
    shutil.rmtree(facility.root / "log")
    if how == "empty":
        (facility.root / "log").mkdir()
    facility.requests["20000"]["title"] = "Replace pump P0 urgently"
    with facility.workspace() as workspace:
        facility.root.joinpath("requests", "requests.csv").write_text("id,title,description\r\n20000,Replaced,now\r\n")
        fetched, applied, _ = pipeline.sync(workspace)
    failed = next(report for report in fetched if report.feed == "logbook")
    assert str(facility.root / "log") in failed.error
    known = state.read_feed(facility.home, "bely", "logbook")
    assert known.error == failed.error
    assert known.failed_since is not None
    assert sum(key.startswith("BELY:") for key in facility.live()) == 20
    # The other feed went on: its edit was applied, its mass removal held.
    assert applied.counts["changed"] == 1
    assert sum(key.startswith("WRQ:") for key in facility.live()) == 15


def test_a_large_removal_is_held_until_exactly_that_set_is_confirmed(facility: Facility) -> None:
    facility.sync()
    for document in ("shift-1", "shift-2", "shift-3"):
        del facility.log[document]
    facility.log["shift-5"][599] = "A new entry in the same sync"
    _, applied, _ = facility.write().sync()
    assert counts(applied) == {"added": 1, "changed": 0, "relabelled": 0, "removed": 0}
    known = state.read_feed(facility.home, "bely", "logbook")
    assert known.held_removals == 12
    first = known.held_digest

    del facility.log["shift-5"][500]  # the set grows: the old confirmation lapses
    facility.write().sync()
    known = state.read_feed(facility.home, "bely", "logbook")
    assert known.held_removals == 13
    assert known.held_digest != first
    with facility.workspace() as workspace:
        with pytest.raises(ValueError, match=first):
            confirm_removals(workspace, first)
        assert confirm_removals(workspace, known.held_digest) == 13
    facility.sync()
    keys = set(facility.live())
    assert len(keys) == 35 + 1 - 13
    assert all(found == keys for found in facility.everywhere().values())


def test_records_that_come_back_leave_the_held_set(facility: Facility) -> None:
    facility.sync()
    gone = {document: facility.log.pop(document) for document in ("shift-1", "shift-2", "shift-3")}
    facility.write().sync()
    facility.log.update(gone)
    facility.write().sync()
    assert state.read_feed(facility.home, "bely", "logbook").held_removals == 0
    assert len(facility.live()) == 35


def test_small_removals_are_applied_at_once(facility: Facility) -> None:
    facility.sync()
    del facility.log["shift-4"]
    _, applied, _ = facility.write().sync()
    assert counts(applied) == {"added": 0, "changed": 0, "relabelled": 0, "removed": 4}


def test_two_items_of_one_id_are_told_apart_and_nothing_is_overwritten(facility: Facility) -> None:
    facility.sync()
    other = bundle("copy", {100: "Another text under an id that is taken"})
    (facility.root / "log" / "copy.json").write_text(json.dumps(other))
    _, applied, _ = facility.sync()
    assert applied.moved == 0
    with facility.workspace() as workspace:
        (letter,) = workspace.catalog.rows("select * from dead_letters")
        assert "100" in letter["reason"]
        assert "shift-1.json" in letter["reason"]
        (row,) = workspace.catalog.rows("select body from records where id = '100'")
        assert b"klystron K10" in unpack(row["body"])
    # The identical record at two places is one record and no failure.
    (facility.root / "log" / "copy.json").write_text(json.dumps(bundle("shift-1", facility.log["shift-1"])))
    facility.sync()
    assert len(facility.live()) == 35


def test_a_record_that_moves_to_another_file_is_neither_lost_nor_doubled(facility: Facility) -> None:
    facility.sync()
    facility.log["shift-2"][104] = facility.log["shift-1"].pop(103)
    facility.log["shift-2"][103] = facility.log["shift-2"].pop(104)
    _, applied, _ = facility.write().sync()
    assert counts(applied)["removed"] == 0
    assert len(facility.live()) == 35


def test_a_changeset_that_was_left_unfinished_is_completed_by_the_next_run(facility: Facility) -> None:
    facility.sync()
    facility.log["shift-1"][199] = "Entered just before the power failed"
    facility.write()
    with facility.workspace() as workspace:  # a run that died after its changeset
        fetch(workspace, workspace.settings.feeds)
        apply_spool(workspace)
    assert state.read_pipeline(facility.home).applied > state.read_pipeline(facility.home).released
    _, applied, _ = facility.sync()
    assert applied.moved == 0
    assert releases.numbers(facility.home)[-1] == 2
    assert all("BELY:199" in found for found in facility.everywhere().values())


def test_what_an_older_fetch_read_never_overwrites_what_a_newer_one_applied(facility: Facility) -> None:
    with facility.workspace() as workspace:
        fetch(workspace, workspace.settings.feeds)
        (old,) = [p for p in spool.waiting(workspace.home.spool) if "logbook" in p.name]
        kept = old.read_bytes()
        facility.log["shift-1"][100] = "Corrected text"
        facility.write()
        pipeline.sync(workspace)
        old.write_bytes(kept)
        pipeline.sync(workspace)
        (row,) = workspace.catalog.rows("select body from records where id = '100'")
    assert b"Corrected text" in unpack(row["body"])


def test_a_second_writer_is_told_who_holds_the_home(facility: Facility) -> None:
    facility.home.create()
    message = f"{os.getpid()}.*a long sync"
    with (
        WriterLock(facility.home, 1, "a long sync"),
        facility.workspace() as workspace,
        pytest.raises(HomeTakenError, match=message),
    ):
        pipeline.sync(workspace)
    facility.sync()


def test_a_preview_tells_what_would_happen_and_changes_nothing(facility: Facility) -> None:
    facility.sync()
    del facility.log["shift-1"][100]
    facility.log["shift-1"][101] = "edited"
    facility.log["shift-1"][198] = "new"
    facility.write()
    before = tree(facility.home.root)
    with facility.workspace() as workspace:
        found = {row["feed"]: row for row in preview(workspace, workspace.settings.feeds)}
    assert {k: found["logbook"][k] for k in ("added", "changed", "removed")} == {"added": 1, "changed": 1, "removed": 1}
    assert tree(facility.home.root) == before
    _, applied, _ = facility.sync()
    assert counts(applied) == {"added": 1, "changed": 1, "relabelled": 0, "removed": 1}


def test_a_feed_taken_out_of_the_configuration_is_held_then_gone(facility: Facility) -> None:
    facility.sync()
    facility.extra["feeds"] = facility.config["feeds"][:1]
    _, applied, _ = facility.sync()
    (held,) = [feed for feed in applied.feeds if feed.feed == "requests"]
    assert held.held == 15
    assert len(facility.live()) == 35
    with facility.workspace() as workspace:
        confirm_removals(workspace, held.held_digest)
    facility.sync()
    assert {key.partition(":")[0] for key in facility.live()} == {"BELY"}


def test_a_purged_record_is_nowhere_and_does_not_come_back(facility: Facility) -> None:
    secret = "zanzibarquartz"
    facility.log["shift-1"][100] = f"The word is {secret}, do not tell"
    facility.write().sync()
    facility.log["shift-2"][298] = "another release, so that an old one is there"
    facility.extra["limits"] = {"retention_hours": 48, "lock_timeout_s": 0.2}
    facility.write().sync()
    with facility.workspace() as workspace:
        with pytest.raises(UnknownKeyError):
            purge(workspace, "BELY:31415")
        assert purge(workspace, "bely:100") == 1
    _, applied, _ = facility.sync()
    assert applied.moved == 0
    facility.log["shift-1"][101] = "its neighbour is edited, so the file is read again"
    facility.write().sync()
    assert "BELY:100" not in facility.live()
    for path in facility.home.root.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    with facility.workspace() as workspace:
        for table, column in (("records", "body"), ("passages", "text"), ("chunks", "text")):
            for row in workspace.catalog.rows(f"select {column} as data from {table} where {column} is not null"):
                assert secret.encode() not in unpack(row["data"])
    assert all("BELY:100" not in found for found in facility.everywhere().values())


def test_adding_a_second_feed_names_the_feed_in_every_key(facility: Facility) -> None:
    facility.sync()
    (facility.root / "log2").mkdir()
    (facility.root / "log2" / "a.json").write_text(json.dumps(bundle("other", {100: "Same id in another log book"})))
    feeds = [*facility.config["feeds"], {"name": "beamline", "source": "bely", "location": "log2"}]
    facility.extra["feeds"] = feeds
    facility.sync()
    keys = set(facility.live())
    assert {"BELY:logbook/100", "BELY:beamline/100"} <= keys
    assert all(found == keys for found in facility.everywhere().values())


def test_another_chunking_redoes_chunks_and_keeps_every_record(facility: Facility) -> None:
    facility.log["shift-1"][100] = "A long entry. " + " ".join(f"word{i}" for i in range(400))
    facility.write().sync()
    facility.extra["chunking"] = {"chunk_tokens": 100, "overlap_tokens": 8}
    _, applied, reports = facility.sync()
    assert applied.moved == 0
    done = {report.stage: report.counts for report in reports}
    assert done["chunks"]["changed"] == 1  # only the long record falls into other pieces
    assert 0 < done["embeddings"]["embedded"] < 35
    keys = set(facility.live())
    assert all(found == keys for found in facility.everywhere().values())
    with releases.open_release(facility.home) as release:
        assert release.manifest.counts["chunks"] == release.chunks().count_rows() > 35


def edges_of(facility: Facility) -> set[tuple[str, str, str]]:
    with releases.open_release(facility.home) as release:
        rows = release.table("edges").to_arrow().select(["src", "relation", "dst"]).to_pylist()
        return {(row["src"], row["relation"], row["dst"]) for row in rows}


def test_references_follow_the_records_they_mean_as_those_come_and_go(facility: Facility) -> None:
    facility.log["shift-1"][100] = "Pump current high again, see WRQ:20999 and log 501"
    facility.write().sync()
    assert not {edge for edge in edges_of(facility) if edge[2] in ("WRQ:20999", "BELY:501") and edge[0] != edge[2]} - {
        ("BELY:100", "REFERENCES", "BELY:501")
    }
    facility.requests["20999"] = {"title": "Pump", "description": "entered after the log entry"}
    facility.write().sync()
    assert ("BELY:100", "REFERENCES", "WRQ:20999") in edges_of(facility)
    del facility.requests["20999"]
    _, applied, _ = facility.write().sync()
    assert counts(applied)["removed"] == 1
    assert ("BELY:100", "REFERENCES", "WRQ:20999") not in edges_of(facility)
    with releases.open_release(facility.home) as release:
        assert "WRQ:20999" not in release.table("nodes").to_arrow()["key"].to_pylist()
