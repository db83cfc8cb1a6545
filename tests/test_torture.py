"""Kill the pipeline at every place and at random moments: the next run completes what was begun, no reader notices.

`make test` kills a few times; `APS_RAG_KILLS=200` at every place, on a cold build and on an increment, and so many
times at random moments (`APS_RAG_SEED` repeats a run).
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aps_rag_pipeline import failpoints
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.lock import HomeTakenError, WriterLock
from tests.torture import ring as rings
from tests.torture.forking import Forks
from tests.torture.ring import Ring, Twin, content

KILLS = int(os.environ.get("APS_RAG_KILLS", "0"))
SEED = int(os.environ.get("APS_RAG_SEED") or random.SystemRandom().randrange(10**6))
#: Random kills of one home.
_SERIES = 10
#: How many states a place may take to be come to: a reader's lease can put a collection off.
_TRIES = 8

#: Places that no sync of a small home comes to.
_NO_SYNC = (*failpoints.LARGE, *(name for name in failpoints.NAMES if name.startswith(("purge.", "restore."))))
#: Tables are made once, with the first release of a model: readers of a later one would miss a table that had to be.
_FIRST = tuple(name for name in failpoints.NAMES if name.startswith("lance.create"))
#: Places of a home that has something to collect or to write anew.
_LATER = tuple(name for name in failpoints.NAMES if name.startswith(("collect.", "stage.redo", "bm25.rewrite")))


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


@contextmanager
def second_writer(home: Home) -> Iterator[list[str]]:
    """Tries the whole time to take the home without waiting: it gets it, or is told who has it."""
    ended, told = threading.Event(), []

    def insist() -> None:
        home.root.mkdir(parents=True, exist_ok=True)
        while not ended.wait(0.01):
            try:
                with WriterLock(home, 0, "second writer"):
                    told.append("taken")
            except HomeTakenError as error:
                told.append(str(error))

    thread = threading.Thread(target=insist)
    thread.start()
    try:
        yield told
    finally:
        ended.set()
        thread.join()


@contextmanager
def watched(forks: Forks, ring: Ring, folder: Path, *, holds: bool = False) -> Iterator[None]:
    home = Home(ring.root / "home")
    with second_writer(home) as told, forks.reader(ring, folder, holds=holds) as seen:
        yield
    assert seen["problems"] == []
    assert [text for text in told if text != "taken" and '"purpose"' not in text] == []


def complete(forks: Forks, ring: Ring, number: int) -> None:
    outcome = forks.sync(ring, number)
    assert outcome.said == "done"


def test_whatever_was_killed_is_completed_by_the_next_run(forks: Forks, tmp_path: Path) -> None:
    ring = rings.new(tmp_path / "ring")
    twin = Twin(ring, tmp_path / "twin")
    places = {
        1: ("apply.commit.after", "lance.add.before:2"),
        2: ("lance.delete.after:2", "bm25.commit.after", "mart.rename.after"),
        3: ("publish.tag.after:3", "publish.rename.after"),
        4: ("collect.rename.after",),
    }
    chance = random.Random(SEED)
    with watched(forks, ring, tmp_path / "reader"):
        for number, names in places.items():
            ring.at(number)
            for name in names:
                assert forks.sync(ring, number, failpoint=name).killed or name.startswith("collect"), name
            if number > 1:
                forks.sync(ring, number, kill_after=chance.uniform(0.01, 0.5))
            complete(forks, ring, number)
            assert content(ring.at(number)) == twin.content(number), f"seed {SEED}"


every_place = [(mode, name) for mode in ("cold", "increment") for name in failpoints.NAMES if name not in _NO_SYNC]
every_place = [(mode, name) for mode, name in every_place if name not in (_LATER if mode == "cold" else _FIRST)]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    folder = tmp_path_factory.mktemp("twin")
    ring = rings.new(folder / "ring", pictures=True)
    return Twin(ring, folder / "ring")


def copy_of(twin: Twin, number: int, root: Path, tmp: Path) -> Ring:
    """The twin's facility as it was after a state."""
    kept = twin.root.with_name(f"after-{number}")
    if not kept.exists():
        made = Twin(twin.ring, kept)
        made.content(number)
    shutil.copytree(kept, root)
    return Ring(root, twin.ring.began, True)


@pytest.mark.skipif(not KILLS, reason="APS_RAG_KILLS is not set: `make torture`")
@pytest.mark.parametrize(("mode", "place"), every_place)
def test_every_place(forks: Forks, twin: Twin, tmp_path: Path, mode: str, place: str) -> None:
    if mode == "cold":
        ring, number = Ring(tmp_path / "ring", twin.ring.began, True), 1
        ring.root.mkdir()
    else:
        ring, number = copy_of(twin, 2, tmp_path / "ring", tmp_path), 3
    ring.at(number)
    if place.startswith(("stage.redo", "bm25.")) and mode == "increment":
        shutil.rmtree(ring.root / "home" / "tantivy")
    with watched(forks, ring, tmp_path / "reader"):
        for _ in range(_TRIES):
            if forks.sync(ring, number, failpoint=place).killed:
                break
            number += 1
            ring.at(number)
        else:
            pytest.fail(f"never came to {place}")
        complete(forks, ring, number)
        assert content(ring.at(number)) == twin.content(number)


@pytest.mark.skipif(not KILLS, reason="APS_RAG_KILLS is not set: `make torture`")
@pytest.mark.parametrize("series", range(-(-KILLS // _SERIES)))
def test_random_moments(forks: Forks, twin: Twin, tmp_path: Path, series: int) -> None:
    """Half of the kills hit a run that completes what another kill has left."""
    chance = random.Random(f"{SEED} {series}")
    print(f"APS_RAG_SEED={SEED}, series {series}")
    ring = Ring(tmp_path / "ring", twin.ring.began, True)
    ring.root.mkdir()
    number, kills, longest = 1, 0, 2.0
    with watched(forks, ring, tmp_path / "reader", holds=bool(series % 2)):
        while kills < _SERIES and number < 12:
            ring.at(number)
            for _ in range(chance.choice((1, 1, 2, 3))):
                outcome = forks.sync(ring, number, kill_after=chance.uniform(0.005, longest))
                kills += outcome.killed
                if not outcome.killed:
                    longest = max(outcome.seconds, 0.1)
            complete(forks, ring, number)
            assert content(ring.at(number)) == twin.content(number), f"APS_RAG_SEED={SEED}, series {series}"
            number += 1
    assert kills
