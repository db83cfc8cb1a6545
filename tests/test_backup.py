"""A backup of a home in use is whole, is believed only as it was written, and goes on where it was made."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.home import Home, HomeError
from aps_rag_pipeline.stores.lock import HomeTakenError, WriterLock
from aps_rag_pipeline.stores.tables import EDGES, NODES
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.backup import BackupError, back_up, restore, restoring, verify, writing
from query import Corpus
from tests.small_facility import Facility, tree
from tests.test_cli import aps_rag

#: Syncs the facility of a settings file and, with the writer lock held, waits for a line at a stage.
_HELD_SYNC = """
import sys
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores.lock import WriterLock
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import fetch

config, at = sys.argv[1], int(sys.argv[2])

def hold(workspace, model):
    print("held", flush=True)
    sys.stdin.readline()
    return None

pipeline.STAGES = (*pipeline.STAGES[:at], hold, *pipeline.STAGES[at:])
settings = Settings.load(config)
with pipeline.open_workspace(settings) as workspace, WriterLock(workspace.home, 5, "held sync"):
    fetch(workspace, settings.feeds)
    apply_spool(workspace)
    pipeline.complete(workspace)
print("published", flush=True)
"""


class Movable(Facility):
    """A facility whose home lies where its settings say."""

    @property
    def home(self) -> Home:
        return Home(self.root / str(self.config["home"]))


def written(made: Facility) -> Facility:
    """Eight entries, which refer to requests, and nine requests."""
    made.log = {"shift-1": {n: f"Entry {n}: klystron K{n} tripped, see WRQ 2000{n}" for n in range(1, 9)}}
    made.requests = {f"2000{n}": {"title": f"Pump P{n}", "description": f"Replace the ion pump P{n}"} for n in range(9)}
    return made.write()


@pytest.fixture
def facility(tmp_path: Path) -> Facility:
    return written(Movable(tmp_path / "facility"))


@contextmanager
def held_sync(facility: Facility, at: int) -> Iterator[None]:
    """While the block runs, another process holds the writer lock, all stages before number `at` done."""
    command = [sys.executable, "-c", _HELD_SYNC, str(facility.config_path), str(at)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield
        out, _ = child.communicate("\n")
        assert out == "published\n"


def elsewhere(facility: Facility, backup: Path) -> Facility:
    """The same sources with a home restored from a backup."""
    other = Movable(facility.root, facility.log, facility.requests, {**facility.extra, "home": "restored"})
    restore(backup, other.home)
    return other


def found(home: Home) -> list[tuple[str, str]]:
    with Corpus.open(home, None) as corpus:
        return [(hit.key, hit.snippet) for text in ("klystron tripped", "ion pump") for hit in corpus.search(text).hits]


def graph(facility: Facility) -> dict[str, list[tuple[str, ...]]]:
    """Working nodes and edges, as the tables have them."""
    tables = LanceTables(facility.home)
    columns = {NODES: ("node_id", "name", "access"), EDGES: ("edge_id", "key", "src", "dst")}
    return {
        name: sorted(tuple(map(str, row.values())) for row in tables.table(name).to_arrow().select(taken).to_pylist())
        for name, taken in columns.items()
    }


def test_a_restored_home_answers_the_same_and_its_next_sync_changes_nothing(facility: Facility, tmp_path: Path) -> None:
    facility.sync()
    before = tree(facility.home.root, without=())
    contents = back_up(facility.home, tmp_path / "backup", facility="Test ring")
    assert tree(facility.home.root, without=()) == before
    assert (contents.release, contents.changeset, contents.records) == (1, 1, 17)
    assert verify(tmp_path / "backup") == contents
    other = elsewhere(facility, tmp_path / "backup")
    shutil.move(facility.home.root, tmp_path / "gone")
    expected = found(Home(tmp_path / "gone"))
    assert len(expected) > 5
    assert found(other.home) == expected
    restored = tree(other.home.root)
    _, applied, reports = other.sync()
    assert applied.moved == 0
    assert {report.stage for report in reports if report.counts["changed"]} == set()
    assert tree(other.home.root) == restored
    assert state.read_feed(other.home, "bely", "logbook").records == 8
    other.log["shift-1"][2] = "The modulator of K2 was replaced"
    del other.log["shift-1"][3]
    other.write()
    _, applied, _ = other.sync()
    assert (applied.counts["changed"], applied.counts["removed"]) == (1, 1)
    assert all(keys == set(other.live()) for keys in other.everywhere().values())
    assert releases.numbers(other.home)[-1] == 2


@pytest.mark.parametrize("at", [5, 8])
def test_a_backup_waits_for_no_sync_and_a_restored_home_completes_it(
    facility: Facility, tmp_path: Path, at: int
) -> None:
    facility.sync()
    expected = found(facility.home)
    del facility.log["shift-1"][4]  # takes its node and edges along
    facility.log["shift-1"][5] = "Entry 5: nothing is said of requests any more"
    facility.log["shift-1"][99] = "Entry 99: klystron K99 tripped, see WRQ 20001"
    facility.write()
    with held_sync(facility, at):
        contents = back_up(facility.home, tmp_path / "backup")
        other = elsewhere(facility, tmp_path / "backup")
        assert (contents.release, contents.released_changeset, contents.changeset) == (1, 1, 2)
        assert state.read_pipeline(other.home) == state.PipelineState(applied=2, released=1)
        assert found(other.home) == expected
    _, applied, _ = other.sync()
    assert applied.moved == 0  # it had been applied; what was missing is its release
    assert found(other.home) == found(facility.home)
    assert other.everywhere() == facility.everywhere()
    assert graph(other) == graph(facility)
    manifest = releases.latest(other.home)
    assert manifest is not None
    assert (manifest.number, manifest.changeset) == (2, 2)
    again = tree(other.home.root)
    other.sync()
    assert tree(other.home.root) == again


def test_a_home_without_a_release_is_backed_up_and_built_from_there(facility: Facility, tmp_path: Path) -> None:
    with held_sync(facility, 7):
        contents = back_up(facility.home, tmp_path / "backup")
        other = elsewhere(facility, tmp_path / "backup")
    assert (contents.release, contents.records) == (None, 17)
    with pytest.raises(releases.NoReleaseError):
        Corpus.open(other.home, None)
    _, applied, reports = other.sync()
    assert applied.moved == 0
    assert next(report for report in reports if report.stage == "embeddings").counts["embedded"] == 0
    assert found(other.home) == found(facility.home)
    assert graph(other) == graph(facility)


def test_an_older_state_goes_over_a_newer_home_and_is_told_apart_from_it(facility: Facility, tmp_path: Path) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    original = dict(facility.log["shift-1"])
    overtaken = []
    for n in (1, 2):
        facility.log["shift-1"][n] = f"Edited after the backup, {n}"
        facility.write().sync()
        overtaken.append(releases.read_manifest(facility.home, n + 1))
    facility.log["shift-1"] = {**original, 3: "Edited after the restore"}
    facility.write()
    with pytest.raises(BackupError, match="--force"):
        restore(tmp_path / "backup", facility.home)
    assert releases.numbers(facility.home)[-1] == 3
    stranded = facility.home.spool / "00000000000000000001-logbook.jsonl.zst"
    stranded.write_bytes(b"fetched by the home that is replaced")
    with facility.workspace() as waiting:  # a run that has the catalog open and waits for the home
        restore(tmp_path / "backup", facility.home, force=True)
        assert waiting.catalog.changeset() == 1
    assert releases.numbers(facility.home) == [1]
    assert not stranded.exists()
    _, applied, _ = facility.sync()
    assert applied.counts["changed"] == 1
    manifest = releases.latest(facility.home)
    assert manifest is not None
    assert (manifest.number, manifest.changeset) == (2, 2)
    assert manifest.token not in {manifest.token for manifest in overtaken}
    with Corpus.open(facility.home, None) as corpus:
        assert "after the restore" in corpus.record("BELY:3").passages[0].text
        assert "klystron" in corpus.record("BELY:1").passages[0].text
    assert all(keys == set(facility.live()) for keys in facility.everywhere().values())


def test_what_a_cut_off_restore_replaced_stays_until_the_next_one_is_staged(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")

    def dies(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for step in ("_write_over", "_work_from"):
        with monkeypatch.context() as patched:
            patched.setattr(restoring, step, dies)
            with pytest.raises(BackupError):
                restore(tmp_path / "backup", facility.home, force=True)
        assert releases.numbers(Home(facility.home.root / ".replaced")) == [1], step
    restore(tmp_path / "backup", facility.home, force=True)
    assert not (facility.home.root / ".replaced").exists()


def test_where_a_backup_cannot_go_is_said_before_any_work(facility: Facility, tmp_path: Path) -> None:
    facility.sync()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "other").touch()
    (tmp_path / "file").touch()
    for place in (tmp_path / "taken", tmp_path / "file", facility.home.root / "in", tmp_path, tmp_path / "no" / "such"):
        with pytest.raises(BackupError) as caught:
            back_up(facility.home, place)
        assert str(place.parent if place.name == "such" else place) in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["facility", "file", "taken"]
    with pytest.raises(BackupError, match="aps-rag sync"):
        back_up(Home(tmp_path / "nowhere"), tmp_path / "backup")


def test_a_second_backup_to_the_same_folder_leaves_the_first_alone(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    real, said = writing._Writing._copy_catalog, []

    def meanwhile(first: writing._Writing) -> None:
        monkeypatch.undo()
        with pytest.raises(BackupError) as caught:
            back_up(facility.home, tmp_path / "backup")
        said.append(str(caught.value))
        real(first)

    monkeypatch.setattr(writing._Writing, "_copy_catalog", meanwhile)
    contents = back_up(facility.home, tmp_path / "backup")
    assert said == [
        f"{tmp_path / 'backup'}: another process is writing this backup just now; wait for it or name a new folder"
    ]
    assert verify(tmp_path / "backup") == contents


def test_a_draft_that_was_finished_while_another_looked_is_not_taken_for_its_own(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "whole")
    real = writing.fcntl.flock

    def finished(handle: int, how: int) -> None:
        real(handle, how)
        (tmp_path / ".backup.part").rmdir()
        (tmp_path / "whole").rename(tmp_path / "backup")
        (tmp_path / ".backup.part").mkdir()
        (tmp_path / ".backup.part" / "of a third").touch()

    with monkeypatch.context() as patched:
        patched.setattr(writing.fcntl, "flock", finished)
        with pytest.raises(BackupError, match="another process"):
            back_up(facility.home, tmp_path / "backup")
    verify(tmp_path / "backup")
    assert (tmp_path / ".backup.part" / "of a third").exists()


def test_too_little_room_is_said_before_any_work(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BackupError, match=r"are needed and 0\.0 MB are free"):
        back_up(facility.home, tmp_path / "second")
    with pytest.raises(BackupError, match="are needed"):
        restore(tmp_path / "backup", Home(tmp_path / "new"))
    assert not (tmp_path / "second").exists()
    assert not (tmp_path / ".second.part").exists()
    assert tree(tmp_path / "new", without=()) == {"writer.lock": tree(tmp_path / "new", without=())["writer.lock"]}


def test_a_backup_or_restore_that_dies_leaves_the_home_alone_or_says_so(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()

    def dies(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(writing._Writing, "_copy_catalog", dies)
        with pytest.raises(BackupError, match="no space left"):
            back_up(facility.home, tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["facility"]
    back_up(facility.home, tmp_path / "backup")
    before = tree(facility.home.root, without=())
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_work_from", dies)
        with pytest.raises(BackupError, match="no space left"):
            restore(tmp_path / "backup", facility.home, force=True)
    assert tree(facility.home.root, without=()) == before
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_write_over", dies)
        with pytest.raises(BackupError):
            restore(tmp_path / "backup", facility.home, force=True)
    with pytest.raises(HomeError, match="aps-rag restore"):
        facility.sync()
    restore(tmp_path / "backup", facility.home, force=True)
    _, applied, reports = facility.sync()
    assert applied.moved == 0
    assert {report.stage for report in reports if report.counts["changed"]} == set()
    assert sorted(path.name for path in facility.home.root.iterdir() if path.name.startswith(".")) == []


def test_a_home_in_the_middle_of_a_restore_is_not_backed_up(
    facility: Facility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    real = writing._Writing._copy_catalog

    def meanwhile(at_work: writing._Writing) -> None:
        restore(tmp_path / "backup", facility.home, force=True)
        real(at_work)

    with monkeypatch.context() as patched:
        patched.setattr(writing._Writing, "_copy_catalog", meanwhile)
        with pytest.raises(BackupError, match="was restored while it was copied"):
            back_up(facility.home, tmp_path / "second")
    facility.home.restoring.touch()
    with pytest.raises(BackupError, match="is being restored, or that was cut off"):
        back_up(facility.home, tmp_path / "second")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "facility"]


def test_a_home_that_is_written_is_not_replaced(facility: Facility, tmp_path: Path) -> None:
    facility.sync()
    back_up(facility.home, tmp_path / "backup")
    with WriterLock(facility.home, 1, "a long sync"), pytest.raises(HomeTakenError, match="a long sync"):
        restore(tmp_path / "backup", facility.home, force=True, timeout_s=0.05)


def test_attachments_come_along_and_missing_ones_are_counted(facility: Facility, tmp_path: Path) -> None:
    facility.sync()
    blobs = facility.home.blobs
    kept, lost = blobs.put(b"a picture"), blobs.put(b"another picture")
    with sqlite3.connect(facility.home.catalog) as catalog:
        catalog.executemany("insert into attachments values (1, ?)", [(kept,), (lost,)])
    blobs.remove(lost)
    assert back_up(facility.home, tmp_path / "backup").missing_blobs == 1
    assert elsewhere(facility, tmp_path / "backup").home.blobs.get(kept) == b"a picture"


def test_the_commands_tell_what_they_did(facility: Facility, tmp_path: Path) -> None:
    facility.sync()
    config = ("-c", str(facility.config_path))
    done = aps_rag("backup", str(tmp_path / "backup"), *config, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "release 1; 17 records" in done.stdout
    refused = aps_rag("restore", str(tmp_path / "backup"), *config, cwd=tmp_path)
    assert refused.returncode == 1
    assert "--force" in refused.stderr
