"""Damage of every kind: the audit finds and names exactly it, a repair mends it, and the records are found again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from aps_rag_pipeline.audit.findings import MOST_LISTED
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import fetch
from aps_rag_pipeline.sync.purge import purge
from tests import damaged_home
from tests.damaged_home import Bench, Case, Found, copied, expected, new_facility, said

KEYS = [f"BELY:{100 * shift + entry}" for shift in range(4, 0, -1) for entry in range(15)]


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facility = new_facility(tmp_path_factory.mktemp("synced"))
    facility.sync()
    return facility.root


@pytest.fixture
def bench(synced: Path, tmp_path: Path) -> Bench:
    return copied(synced, tmp_path)


def plant(bench: Bench, cases: Iterable[Case]) -> dict[str, Case]:
    """A record for each damage."""
    chosen = dict(zip(KEYS, cases, strict=False))
    for key, case in chosen.items():
        case.plant(replace(bench, key=key))
    return chosen


def matches(found: Found, wanted: Found) -> None:
    """Every finding is one of those wanted, and every one wanted was found; `*` stands for any id."""
    exact = {each for each in wanted if each[2] != "*"}
    loose = {each[:2] for each in wanted if each[2] == "*"}
    assert {each for each in found if each[:2] not in loose or each in exact} == exact
    assert loose <= {each[:2] for each in found}


def test_a_clean_home_gives_no_finding(bench: Bench) -> None:
    found = bench.look(deep=True)
    assert said(found) == set()
    assert found.checked["records"] == found.checked["lance records"] == 75
    assert found.checked["chunks"] == found.checked["lance chunks"] == found.checked["bm25"]
    assert found.checked["blobs"] == 2
    assert bench.finds("BELY:100")


def test_damage_in_rows_is_found_named_and_mended(bench: Bench) -> None:
    chosen = plant(bench, damaged_home.IN_ROWS)
    matches(said(bench.look()), expected(chosen))
    before, done, left = bench.repair()
    matches(said(before), expected(chosen))
    assert "published release 2" in done
    assert said(left) == set()
    assert said(bench.look(deep=True)) == set()
    assert [key for key in chosen if not bench.finds(key)] == []


def test_what_is_cut_otherwise_is_found_by_a_close_look(bench: Bench) -> None:
    chosen = plant(bench, damaged_home.IN_DEPTH)
    matches(said(bench.look(deep=True)), expected(chosen))
    _, _, left = bench.repair(deep=True)
    assert said(left) == set()
    assert [key for key in chosen if not bench.finds(key)] == []


def test_what_is_lost_is_read_again_from_its_source(bench: Bench) -> None:
    chosen = plant(bench, damaged_home.IN_SOURCES)
    matches(said(bench.look(deep=True)), expected(chosen))
    _, done, left = bench.repair(deep=True)
    assert done == ["2 items of feed logbook will be read again by the next sync: aps-rag sync"]
    assert all("then aps-rag sync" in finding.remedy for finding in left.listed)
    assert state.read_nudge(bench.facility.home, "logbook") is not None
    _, applied, _ = bench.facility.sync()
    assert applied.counts["changed"] == 2
    assert applied.counts["relabelled"] == 1
    assert said(bench.look(deep=True)) == set()
    assert [key for key in chosen if not bench.finds(key)] == []


@pytest.mark.parametrize("name", damaged_home.IN_STORES)
def test_damage_to_stores_and_releases_is_found_named_and_mended(bench: Bench, name: str) -> None:
    case = damaged_home.IN_STORES[name]
    case.plant(bench)
    before, done, left = bench.repair()
    matches(said(before), expected({bench.key: case}))
    assert done
    assert said(left) == set()
    assert bench.finds(bench.key)


def test_a_home_stays_clean_through_edits_deletions_new_labels_and_a_purge(bench: Bench) -> None:
    facility = bench.facility
    facility.log["shift-1"][101] = "The arc detector of K11 was dirty, cleaned it"
    del facility.log["shift-2"][200]
    facility.write().sync()
    assert said(bench.look(deep=True)) == set()
    feeds = facility.config["feeds"]
    feeds[1]["access"] = ["vacuum"]
    facility.extra["feeds"] = feeds
    facility.sync()
    assert said(bench.look(deep=True)) == set()
    with facility.workspace() as workspace:
        purge(workspace, "BELY:102")
    assert said(bench.look(deep=True)) == set()


def test_a_changeset_that_was_left_unfinished_is_named_and_the_release_proved_in_itself(bench: Bench) -> None:
    facility = bench.facility
    facility.log["shift-1"][101] = "Entered just before the power failed"
    facility.write()
    with facility.workspace() as workspace:
        fetch(workspace, workspace.settings.feeds)
        apply_spool(workspace)
    found = bench.look()
    assert {kind for kind, _, _ in said(found)} == {"behind"}
    assert ("behind", "stages", "passages") in said(found)
    assert found.listed[0].remedy == "aps-rag sync"
    assert found.checked["release 1 bm25"] == found.checked["release 1 chunks"] == 75

    wanted = {
        ("different_row", "release 1 passages", "BELY:100#0"),
        ("surplus_row", "release 1 chunks", "BELY:103#0.0"),
        ("surplus_row", "release 1 edges", "*"),
    }
    damaged_home.damage_the_released(bench)
    matches({each for each in said(bench.look()) if each[0] != "behind"}, wanted)
    _, _, left = bench.repair()
    assert said(left) == set()
    with facility.workspace() as workspace:
        assert workspace.catalog.value("select title from records where key = 'BELY:101'")


def test_every_finding_is_counted_and_only_some_of_a_kind_are_listed(bench: Bench) -> None:
    bench.chunks.delete("true")
    found = bench.look()
    assert found.counts["missing_row"] == 75
    assert len(found.listed) == MOST_LISTED
    _, _, left = bench.repair()
    assert said(left) == set()


def test_an_index_without_seals_is_behind_and_written_anew_by_the_next_sync(bench: Bench) -> None:
    damaged_home.unseal(bench)
    found = bench.look()
    assert said(found) == {("behind", "stages", "sparse_index")}
    _, done, left = bench.repair()  # another version may take hours: a repair leaves it alone
    assert done == ["stages ran with another model, cut or version than they would now: `aps-rag sync` runs them again"]
    assert said(left) == said(found)
    bench.facility.sync()
    assert said(bench.look()) == set()
    assert bench.finds(bench.key)


def test_a_catalog_whose_file_is_damaged_is_named_and_left_alone(bench: Bench) -> None:
    path = bench.facility.home.catalog
    with bench.facility.workspace() as workspace:
        workspace.catalog.connection.execute("pragma wal_checkpoint(truncate)")
        page = int(workspace.catalog.value("select rootpage from sqlite_master where name = 'passages'"))
        size = int(workspace.catalog.value("pragma page_size"))
    with path.open("r+b") as stream:
        stream.seek((page - 1) * size)
        stream.write(b"\xff" * size)
    before, done, left = bench.repair()
    assert said(before) == said(left) == {("damaged_catalog", "catalog", "catalog.sqlite")}
    assert done == []
    assert left.listed[0].remedy == "aps-rag restore"
