"""An audit of what has moved since a release that was proved: it looks at that alone, and misses none of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from aps_rag_pipeline import clock
from aps_rag_pipeline.audit import remembered
from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.remembered import LastAudit, proved_until, read_last, remember
from aps_rag_pipeline.audit.run import audit
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.sync import state
from tests import damaged_home
from tests.damaged_home import Bench, Case, copied, new_facility, said

MOVED = [f"BELY:{300 + entry}" for entry in range(3)]
UNMOVED = "BELY:100"


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two changesets: all, then three edits and a removal."""
    facility = new_facility(tmp_path_factory.mktemp("synced"))
    facility.sync()
    for entry in range(3):
        facility.log["shift-3"][300 + entry] += " once more"
    del facility.log["shift-2"][214]
    facility.write().sync()
    return facility.root


@pytest.fixture
def bench(synced: Path, tmp_path: Path) -> Bench:
    return copied(synced, tmp_path, MOVED[0])


def look(bench: Bench, since: int | None = 1) -> Findings:
    with bench.facility.workspace() as workspace:
        return audit(workspace, bench.model(), since=since)


def test_only_what_moved_is_looked_at(bench: Bench) -> None:
    found = look(bench)
    assert said(found) == set()
    assert not found.whole
    assert found.checked["records"] == found.checked["lance records"] == 3
    assert found.checked["chunks"] == found.checked["lance chunks"] == found.checked["bm25"] == 3
    assert 3 <= found.checked["nodes"] < 30
    everything = look(bench, since=None)
    assert everything.whole
    assert everything.checked["records"] == 74


def test_nothing_moved_is_nothing_to_look_at(bench: Bench) -> None:
    found = look(bench, since=2)
    assert said(found) == set()
    assert (found.checked["records"], found.checked["lance edges"], found.checked["bm25"]) == (0, 0, 0)


@pytest.mark.parametrize("case", damaged_home.IN_ROWS, ids=lambda case: "-".join(sorted(k for k, _, _ in case.found)))
def test_damage_to_what_moved_is_found_and_then_everything_is_looked_at(bench: Bench, case: Case) -> None:
    case.plant(bench)
    found = look(bench)
    assert found.counts
    assert found.whole


def drop(table: str) -> Callable[[Bench], None]:
    return lambda bench: bench.tables.table(table).delete(f"key = '{UNMOVED}'")


def twice(bench: Bench) -> None:
    table = bench.tables.table("edges")
    table.add(table.search().where(f"key = '{UNMOVED}'").limit(1).to_arrow())


def out_of_bm25(bench: Bench) -> None:
    damaged_home._bm25(gone=True)(replace(bench, key=UNMOVED))


@pytest.mark.parametrize(
    "plant", [drop("records"), drop("passages"), drop("nodes"), twice, out_of_bm25],
    ids=["record", "passage", "node", "edge twice", "document"],
)  # fmt: skip
def test_rows_of_others_that_went_or_came_show_in_the_numbers(bench: Bench, plant: Callable[[Bench], None]) -> None:
    plant(bench)
    found = look(bench)
    assert found.whole
    assert found.counts


# what was proved


@pytest.fixture
def proved(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(remembered, "WHOLE_BELOW", 0)
    remember(bench.facility.home, look(bench, since=None))
    return bench


def until(bench: Bench, **changes: object) -> int | None:
    last = read_last(bench.facility.home)
    assert last is not None
    state.write(bench.facility.home.state / "audit.json", replace_struct(last, **changes))
    with bench.facility.workspace() as workspace:
        return proved_until(bench.facility.home, workspace.catalog, read_last(bench.facility.home))


def replace_struct(last: LastAudit, **changes: object) -> LastAudit:
    return msgspec.structs.replace(last, **changes)


def test_a_clean_audit_proves_its_changeset(proved: Bench) -> None:
    assert until(proved) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"findings": 1}, {"token": "of another history"}, {"changeset": 7}, {"versions": {"chunks": "older"}},
        {"model": "another"}, {"whole_at": None}, {"whole_at": clock.now() - timedelta(days=8)},
    ],
    ids=lambda changes: "-".join(changes),
)  # fmt: skip
def test_everything_is_looked_at_where_that_proves_nothing(proved: Bench, changes: dict[str, object]) -> None:
    assert until(proved, **changes) is None


def test_small_releases_are_looked_at_as_a_whole(proved: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = releases.latest(proved.facility.home)
    assert newest is not None
    monkeypatch.setattr(remembered, "WHOLE_BELOW", newest.counts["chunks"] + 1)
    assert until(proved) is None


def test_what_was_looked_at_in_part_keeps_the_time_of_the_whole(proved: Bench) -> None:
    first = read_last(proved.facility.home)
    remember(proved.facility.home, look(proved))
    last = read_last(proved.facility.home)
    assert first is not None
    assert last is not None
    assert last.whole_at == first.whole_at
    assert last.at > first.at
