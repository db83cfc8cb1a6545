"""Files of LanceDB and Tantivy that are cut short, garbled or gone: a finding that names them, and a repair."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aps_rag_pipeline.cli import app
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.damage import DamagedStoreError, reading
from aps_rag_pipeline.stores.home import HomeError
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import fetch
from tests.damaged_home import Bench, copied, new_facility, said, trip


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facility = new_facility(tmp_path_factory.mktemp("synced"))
    facility.sync()
    return facility.root


@pytest.fixture
def bench(synced: Path, tmp_path: Path) -> Bench:
    return copied(synced, tmp_path)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


def garble_some(path: Path) -> None:
    size, held = path.stat().st_size, path.read_bytes()
    path.write_bytes(held[: size // 4] + b"\xff" * (size // 4) + held[size // 2 :])


def remove(path: Path) -> None:
    path.unlink()


def file_of(bench: Bench, pattern: str) -> Path:
    """The newest file of a table."""
    return max(bench.facility.home.lance.glob(pattern), key=lambda path: path.stat().st_mtime_ns)


TABLES = {
    "data cut short": ("passages.lance/data/*", cut_short),
    "data garbled": ("chunks_*.lance/data/*", garble),
    "some of the data garbled": ("passages.lance/data/*", garble_some),
    "data gone": ("nodes.lance/data/*", remove),
    "version cut short": ("edges.lance/_versions/*.manifest", cut_short),
    "version garbled": ("records.lance/_versions/*.manifest", garble),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_damaged_file_of_a_table_is_named_and_the_table_built_anew(bench: Bench, name: str) -> None:
    pattern, damage = TABLES[name]
    path = file_of(bench, pattern)
    damage(path)
    stored = path.parent.parent.stem
    label = "chunks" if stored.startswith("chunks_") else stored
    named = ("damaged_store", f"lance {label}", path.relative_to(bench.facility.home.lance).as_posix())
    found = said(bench.look())
    assert named in found
    assert found <= {named, ("damaged_release", "release 1", stored)}
    _, done, left = bench.repair()
    assert done[0] == f"dropped the damaged table {stored}"
    assert done[1:] == ["published release 2", "dropped release 1, which could not be mended"]
    assert said(left) == said(bench.look(deep=True)) == set()
    assert bench.finds(bench.key)


def test_an_older_version_that_nothing_pins_would_stop_every_clean_up(bench: Bench) -> None:
    oldest = min(bench.facility.home.lance.glob("passages.lance/_versions/*"), key=lambda path: path.stat().st_mtime_ns)
    garble(oldest)
    assert ("damaged_store", "lance passages", f"passages.lance/_versions/{oldest.name}") in said(bench.look())
    _, _, left = bench.repair()
    assert said(left) == set()
    bench.facility.log["shift-1"][116] = "Entry 16: recovered"
    bench.facility.write().sync()
    assert said(bench.look()) == set()


@pytest.mark.parametrize("damage", [cut_short, garble])
def test_a_tag_that_cannot_be_read_counts_as_missing(bench: Bench, damage: Callable[[Path], None]) -> None:
    damage(file_of(bench, "passages.lance/_refs/tags/*.json"))
    assert said(bench.look()) == {("missing_tag", "release 1", "passages release-00000001")}
    _, done, left = bench.repair()
    assert done == ["pinned again in release 1: passages"]
    assert said(left) == set()


@pytest.mark.parametrize(("suffix", "damage"), [("pos", remove), ("store", garble_some), ("idx", cut_short)])
def test_a_segment_of_a_released_bm25_index_is_missed(
    bench: Bench, suffix: str, damage: Callable[[Path], None]
) -> None:
    folder = releases.folder_of(bench.facility.home, 1) / "tantivy"
    (path,) = folder.glob(f"*.{suffix}")
    held = path.read_bytes()
    path.unlink()
    path.write_bytes(held)  # no link to the working index any more
    damage(path)
    assert said(bench.look()) == {("damaged_release", "release 1", "tantivy")}
    _, done, left = bench.repair()
    assert done == ["published release 2", "dropped release 1, which could not be mended"]
    assert said(left) == set()
    assert bench.finds(bench.key)


def test_the_working_bm25_index_is_read_to_its_last_byte(bench: Bench) -> None:
    (path,) = bench.facility.home.tantivy.glob("*.pos")
    garble_some(path)
    assert said(bench.look()) == {("missing_store", "bm25", "tantivy")}
    _, _, left = bench.repair()
    assert said(left) == set()
    assert bench.finds(bench.key)


def test_a_table_is_read_to_its_end_where_its_stage_is_behind_and_nothing_is_compared(bench: Bench) -> None:
    facility = bench.facility
    facility.log["shift-1"][101] = "Entered just before the power failed"
    facility.write()
    with facility.workspace() as workspace:
        fetch(workspace, workspace.settings.feeds)
        apply_spool(workspace)
    garble_some(file_of(bench, "passages.lance/data/*"))
    assert "damaged_store" in {kind for kind, _, _ in said(bench.look())}
    _, _, left = bench.repair()
    assert said(left) == set()
    assert bench.finds(bench.key)


def test_a_version_that_only_a_release_has_costs_the_release_alone(bench: Bench) -> None:
    facility = bench.facility
    facility.extra["limits"] = {"lock_timeout_s": 0.2, "retention_hours": 48}
    first = file_of(bench, "passages.lance/data/*")
    passages = bench.tables.table("passages")
    rows = passages.to_arrow()
    passages.delete("true")
    passages.add(rows)  # as a compaction does: the same rows in another file
    facility.log["shift-1"][116] = "Entry 16: recovered"
    facility.write().sync()
    garble_some(first)
    cut_short(first)
    name = f"passages.lance/data/{first.name}"
    assert said(bench.look()) == {("damaged_store", "release 1 passages", name)}
    _, done, left = bench.repair()
    assert "dropped release 1, which could not be mended" in done
    assert not any("table" in line for line in done)
    assert said(left) == set()


@pytest.mark.parametrize("stored", ["records", "edges"])
def test_a_release_serves_on_while_a_damaged_table_waits_for_the_sync_that_it_needs(bench: Bench, stored: str) -> None:
    facility = bench.facility
    known = set(facility.home.lance.rglob("data/*"))
    facility.log["shift-1"][116] = f"Entry 16: {trip(116)}, see work request 20003"
    facility.write()
    with facility.workspace() as workspace:
        fetch(workspace, workspace.settings.feeds)
        apply_spool(workspace)
        for stage in pipeline.STAGES:
            stage(workspace, bench.model())
    (path,) = set(facility.home.lance.glob(f"{stored}.lance/data/*")) - known
    cut_short(path)
    bench.run("update stages set version = 'of before' where stage = 'chunks'")
    _, done, left = bench.repair()
    assert done == [
        f"set the damaged table {stored} back to what is released",
        "stages ran with another model, cut or version than they would now: `aps-rag sync` runs them again",
    ]
    assert {kind for kind, _, _ in said(left)} == {"behind"}
    assert bench.finds(bench.key)
    facility.sync()
    assert said(bench.look(deep=True)) == set()
    assert bench.finds("BELY:116")


@pytest.mark.parametrize("damage", [cut_short, lambda path: path.write_bytes(b"")])
def test_a_table_whose_newest_version_cannot_be_opened_serves_nobody_and_goes(
    bench: Bench, damage: Callable[[Path], None]
) -> None:
    bench.tables.table("records").add(bench.tables.table("records").to_arrow())
    damage(file_of(bench, "records.lance/_versions/*.manifest"))
    bench.run("update stages set version = 'of before' where stage = 'chunks'")
    _, done, _ = bench.repair()
    assert done[0] == "dropped the damaged table records"
    bench.facility.sync()
    assert bench.finds(bench.key)


def test_the_command_tells_of_damaged_files_and_repairs_them(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APS_RAG_CONFIG", str(bench.facility.config_path))
    garble(file_of(bench, "passages.lance/_versions/*.manifest"))
    looked = CliRunner().invoke(app, ["audit"])
    assert looked.exit_code == 1
    assert "damaged_store" in looked.stdout
    repaired = CliRunner().invoke(app, ["audit", "--repair"])
    assert repaired.exit_code == 0, repaired.output


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        RuntimeError("lance error: LanceError(IO): No space left on device (os error 28)"),
        RuntimeError("lance error: Too many open files (os error 24)"),
        OSError(errno.EIO, "Input/output error"),
        KeyboardInterrupt(),
    ],
)
def test_what_the_disk_or_its_rights_do_is_no_damage(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), reading(tmp_path):
        raise error
    with pytest.raises(DamagedStoreError, match="cannot be read \\(lance error: not a manifest\\)"), reading(tmp_path):
        raise RuntimeError("lance error: not a manifest, /src/lance/manifest.rs:12:3")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ESTALE, "Stale file handle"),
        OSError(errno.ENOTCONN, "Transport endpoint is not connected"),
        RuntimeError("lance error: LanceError(IO): Unable to open file /x: Stale file handle (os error 116)"),
        RuntimeError("lance error: Interrupted system call (os error 4)"),
        RuntimeError("Cannot allocate memory (os error 12)"),
        ValueError("IoError { io_error: Os { code: 110, kind: TimedOut, message: 'Connection timed out' } }"),
        RuntimeError("The dataset cannot be read by this version of Lance. Please upgrade Lance. Flags: 64"),
    ],
)
def test_what_passes_is_told_in_a_line_and_costs_no_table(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    import lance

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(lance, "dataset", fails)
    with pytest.raises(HomeError, match=r"chunks_\w+.lance: cannot be read .*; (see to the|a newer version)") as told:
        bench.repair()
    assert "\n" not in str(told.value)
    monkeypatch.undo()
    assert said(bench.look()) == set()


def test_a_server_that_went_away_is_no_damage_of_a_file_either(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path.stat

    def stale(path: Path, **options: bool) -> os.stat_result:
        if path.parent.name == "data":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", stale)
    with pytest.raises(HomeError, match="Stale file handle"):
        bench.repair()
    monkeypatch.undo()
    assert said(bench.look()) == set()


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        RuntimeError("lance error: Object at location /x not found: No such file or directory (os error 2)"),
        ValueError("IoError { io_error: Os { code: 2, kind: NotFound, message: 'No such file or directory' } }"),
        RuntimeError("lance error: Invalid argument (os error 22)"),
        OSError("Couldn't deserialize thrift"),
    ],
)
def test_what_a_file_that_is_gone_or_garbled_makes_the_system_say_is_damage(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(DamagedStoreError, match="cannot be read"), reading(tmp_path):
        raise error
