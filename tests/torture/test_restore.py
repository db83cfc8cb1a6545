"""Kill a restore at every place of its exchange: the next one finishes it, and what was purged stays out of both."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aps_rag_pipeline import failpoints
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.home import Home, HomeError
from aps_rag_pipeline.sync.backup import back_up, restore
from aps_rag_pipeline.sync.purge import purge
from query import Corpus
from tests.small_facility import Facility, tree

#: Reads lines of a place, a backup and a home; forks a process for each that restores and is killed there.
_RESTORES = """
import os, sys
from pathlib import Path
from aps_rag_pipeline import failpoints
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync.backup import restore

assert "lancedb" not in sys.modules
for line in sys.stdin:
    place, backup, home = line.rstrip().split("\\t")
    pid = os.fork()
    if pid == 0:
        failpoints.arm(place)
        restore(Path(backup), Home(Path(home)), force=True)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
#: Some come to several times.
_PLACES = [name for name in failpoints.NAMES if name.startswith("restore.")]
_PLACES += ["restore.out.after:3", "restore.in.after:2", "restore.in.after:4"]
if "APS_RAG_KILLS" not in os.environ:  # the short form: one before the mark, some in the middle, one near the end
    _PLACES = [
        "restore.mark.before",
        "restore.out.after:3",
        "restore.catalog.after",
        "restore.in.after:2",
        "restore.unmark.before",
    ]

Kill = Callable[[str, Path, Home], int]


@pytest.fixture(scope="module")
def kill() -> Iterator[Kill]:
    command = [sys.executable, "-c", _RESTORES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        asks, told = child.stdin, child.stdout
        assert asks is not None
        assert told is not None

        def killed(place: str, backup: Path, home: Home) -> int:
            asks.write(f"{place}\t{backup}\t{home.root}\n")
            asks.flush()
            return int(told.readline())

        yield killed
        asks.close()


@pytest.fixture(scope="module")
def purged_since(tmp_path_factory: pytest.TempPathFactory) -> Facility:
    """A home from which a record was purged that its backup, beside it, still holds."""
    folder = tmp_path_factory.mktemp("restores")
    made = Facility(folder / "facility")
    made.log = {"shift": {n: f"Entry {n}: klystron K{n} tripped" for n in range(1, 7)}}
    made.log["shift"][2] = "Entry 2: the klystron's passphrase is wintergreen"
    made.write().sync()
    back_up(made.home, folder / "backup")
    with made.workspace() as workspace:
        purge(workspace, "BELY:2")
    del made.log["shift"][3]
    made.write().sync()
    return made


def served(home: Home) -> set[str] | None:
    """Keys in the release that a reader finds; None where it finds none."""
    try:
        with Corpus.open(home, None) as corpus:
            return {hit.key for hit in corpus.search("klystron tripped passphrase").hits}
    except releases.NoReleaseError:
        return None


@pytest.mark.parametrize("place", _PLACES)
def test_a_restore_killed_anywhere_is_finished_by_the_next(
    purged_since: Facility, tmp_path: Path, kill: Kill, place: str
) -> None:
    backup = purged_since.root.parent / "backup"
    facility = Facility(tmp_path / "facility", purged_since.log)
    shutil.copytree(purged_since.root, facility.root)
    home, before = facility.home, served(purged_since.home)
    if place == "restore.damaged.before":
        home.catalog.write_bytes(b"is none any more")
    assert kill(place, backup, home) == -signal.SIGKILL
    assert served(home) in (before, None)
    assert before is not None
    if place not in ("restore.mark.before", "restore.unmark.after"):
        for use in (facility.sync, lambda: back_up(home, tmp_path / "second")):
            with pytest.raises(HomeError, match="is being restored, or that was cut off"):
                use()
    elif place == "restore.mark.before":
        assert tree(home.root, without=(".restoring.part", "writer.lock")) == tree(
            purged_since.home.root, without=("writer.lock",)
        )
    restored = restore(backup, home, force=True)
    assert [path.name for path in home.root.iterdir() if path.name.startswith(".")] == []
    if place == "restore.damaged.before":  # nobody knows of the purge any more
        assert restored.purged == []
        return
    assert restored.purged == ["BELY:2"]
    assert served(home) is None
    with closing(sqlite3.connect(home.catalog)) as catalog:
        assert catalog.execute("select key from records where removed = 1 or body is null").fetchall() == [("BELY:2",)]
        assert catalog.execute("select id from purged").fetchall() == [("2",)]


def test_a_home_that_was_restored_in_two_goes_is_synced_as_ever(
    purged_since: Facility, tmp_path: Path, kill: Kill
) -> None:
    facility = Facility(tmp_path / "facility", purged_since.log)
    shutil.copytree(purged_since.root, facility.root)
    backup = purged_since.root.parent / "backup"
    for place in ("restore.out.after", "restore.in.after:2", "restore.sweep.after"):
        assert kill(place, backup, facility.home) == -signal.SIGKILL
    restore(backup, facility.home, force=True)
    facility.sync()
    assert served(facility.home) == served(purged_since.home)
    assert all(keys == set(facility.live()) for keys in facility.everywhere().values())
    assert not [path for path in facility.home.root.rglob("*") if path.is_file() and b"winterg" in path.read_bytes()]
