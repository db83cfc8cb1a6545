"""What can be wrong with a home is one line with a remedy; nothing is damaged, and the next sync makes all right."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aps_rag_pipeline.failpoints import VARIABLE
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.catalog import SCHEMA_VERSION, Catalog, CatalogError
from aps_rag_pipeline.stores.home import HomeError
from aps_rag_pipeline.stores.releases import DamagedReleaseError, NoReleaseError
from aps_rag_pipeline.stores.trouble import told
from query import Corpus
from tests.small_facility import Facility, tree
from tests.test_cli import aps_rag

#: What is left to a root without the right to read and write everything: the home is then another user's.
_POWERS = "-dac_override,-dac_read_search,-fowner,-chown,-setuid"


@pytest.fixture
def facility(tmp_path: Path) -> Facility:
    made = Facility(tmp_path / "facility")
    made.log = {"shift": {n: f"Entry {n}: klystron K{n} tripped. " + f"word{n} " * 400 for n in range(1, 30)}}
    made.requests = {"20001": {"title": "Pump P1", "description": "Replace the ion pump P1"}}
    return made.write()


def keys_found(facility: Facility) -> list[str]:
    with Corpus.open(facility.home, None) as corpus:
        return [hit.key for hit in corpus.search("klystron tripped", k=50).hits]


def read_all(facility: Facility) -> None:
    with Corpus.open(facility.home, None) as corpus:
        corpus.status()
        corpus.search("klystron")


def demand_whole(facility: Facility) -> None:
    """Every index holds what the sources hold, once, and a reader finds it."""
    expected = {f"BELY:{n}" for entries in facility.log.values() for n in entries}
    expected |= {f"WRQ:{n}" for n in facility.requests}
    assert set(facility.live()) == expected
    assert all(keys == expected for keys in facility.everywhere().values())
    with releases.open_release(facility.home) as release:
        assert release.table("records").count_rows() == len(expected)
    assert len(keys_found(facility)) >= 29


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of its own for a folder, of so many bytes."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def room_left(folder: Path, size: int) -> Iterator[None]:
    ballast, found = folder / "ballast", os.statvfs(folder)
    ballast.write_bytes(bytes(max(found.f_bavail * found.f_frsize - size, 0)))
    try:
        yield
    finally:
        ballast.unlink()


def errors_of(facility: Facility) -> list[Exception]:
    try:
        facility.sync()
    except Exception as error:
        return [error]
    return []


def test_a_full_disk_stops_a_sync_anywhere_without_harm(facility: Facility) -> None:
    home, stopped = facility.home.root, set()
    with small_disk(home, 16_000_000):
        for left in range(0, 1_000_000, 200_000):
            for path in home.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            with room_left(home, left):
                for error in errors_of(facility):
                    line = told(error) or str(error)
                    assert "make room" in line or "see to it" in line, (left, repr(error))
                    assert "\n" not in line
                    stopped |= {Path(frame.filename).stem for frame in traceback.extract_tb(error.__traceback__)}
            facility.sync()
            demand_whole(facility)
            before = tree(home)
            facility.sync()
            assert tree(home) == before
        with room_left(home, 40_000):
            before = keys_found(facility)
            facility.log["shift"] = {n: f"{text} edited" for n, text in facility.log["shift"].items()}
            assert facility.write().config_path.is_file()
            done = aps_rag("sync", cwd=facility.root)
            assert done.returncode == 1
            assert "make room" in done.stdout + done.stderr
            assert "Traceback" not in done.stdout + done.stderr
            assert keys_found(facility) == before
        facility.sync()
        demand_whole(facility)
    assert "catalog" in stopped  # at its opening
    assert stopped & {"fetch", "spool", "apply", "workspace", "indexes", "vectors", "publish"}  # and on the way


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (OSError(28, "No space left on device", "/home/x/a.lance"), "/home/x/a.lance: no space is left"),
        (
            RuntimeError("lance error: LanceError(IO): No space left on device (os error 28), /c/writer.rs:1"),
            "no space",
        ),
        (sqlite3.OperationalError("database or disk is full"), "make room"),
        (OSError(122, "Disk quota exceeded"), "make room"),
        (OSError(27, "File too large"), "ulimit -f"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "is read-only here"),
        (ValueError("Failed to open: Permission denied (os error 13)"), "as the owner"),
        (sqlite3.DatabaseError("database disk image is malformed"), "aps-rag restore"),
        (OSError(5, "Input/output error"), "failing"),
    ],
)
def test_each_store_is_understood(said: Exception, line: str) -> None:
    assert line in told(said)
    outer = KeyError("of something else")
    outer.__cause__ = said
    assert line in told(outer)


def test_other_errors_are_not_taken_for_trouble_with_the_disk() -> None:
    assert told(ValueError("no such mode")) == ""
    assert told(OSError(61, "Connection refused")) == ""


def test_a_read_only_home_answers_and_refuses_to_be_written(facility: Facility) -> None:
    facility.sync()
    home = str(facility.home.root)
    bind = subprocess.run(["mount", "--bind", home, home], capture_output=True).returncode
    if bind:
        pytest.skip("file systems cannot be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True)
        before = tree(facility.home.root, without=())
        with Corpus.open(facility.home, None) as corpus:
            assert corpus.status().records == 30
            assert len(corpus.search("klystron tripped", k=50).hits) >= 29
            assert corpus.ask("Which klystron tripped?").evidence
            assert corpus.record("WRQ:20001").title == "Pump P1"
        assert facility.config_path.is_file()
        shown = aps_rag("status", cwd=facility.root)
        assert shown.returncode == 0, shown.stderr
        with pytest.raises(HomeError, match="is not writable"):
            facility.sync()
        assert tree(facility.home.root, without=()) == before
    finally:
        subprocess.run(["umount", home], check=True)
    facility.sync()
    demand_whole(facility)


@contextmanager
def of_another_user(home: Path) -> Iterator[list[str]]:
    """The home belongs to somebody else while the block runs; gives what to put before a command."""
    if os.getuid():
        yield []
        return
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv to run commands without the rights of root")
    subprocess.run(["chown", "-R", "65534:65534", str(home)], check=True)
    try:
        yield ["setpriv", f"--bounding-set={_POWERS}"]
    finally:
        subprocess.run(["chown", "-R", "0:0", str(home)], check=True)


_READING = """
import sys
from aps_rag_pipeline.cli import app, _explain
for command in (["search", "klystron", "-k", "3"], ["status"], ["show", "WRQ:20001"], ["sync"], ["backup", "copy"]):
    print(">", *command, flush=True)
    try:
        app(command, standalone_mode=False)
    except Exception as error:
        try:
            _explain(error)
        except SystemExit as end:
            print("exit", end.code, flush=True)
"""


@pytest.mark.parametrize("readable", [False, True])
def test_a_home_of_another_user_is_read_as_far_as_its_modes_allow(facility: Facility, readable: bool) -> None:
    facility.sync()
    home = facility.home.root
    assert facility.config_path.is_file()
    subprocess.run(["chmod", "-R", "u=rX,go=rX" if readable else "go=", str(home)], check=True)
    if not readable:
        home.chmod(0o700 if os.getuid() == 0 else 0)
    try:
        with of_another_user(home) as before:
            done = subprocess.run(
                [*before, sys.executable, "-c", _READING],
                cwd=facility.root,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
                capture_output=True,
                text=True,
            )
    finally:
        home.chmod(0o700)
        subprocess.run(["chmod", "-R", "u=rwX", str(home)], check=True)
    assert done.returncode == 0, done.stderr
    answers = dict(part.partition("\n")[::2] for part in done.stdout.split("> ")[1:])
    assert "Traceback" not in done.stderr
    wrong = [name for name, text in answers.items() if text.startswith("exit 1")]
    if readable:
        assert wrong == ["sync", "backup copy"]
        assert "BELY:" in answers["search klystron -k 3"]
        assert "Pump P1" in answers["show WRQ:20001"]
    else:
        assert wrong == list(answers)
    lines = [line for line in done.stderr.splitlines() if line.startswith("aps-rag: ")]
    assert len(lines) == len(wrong)
    assert all(str(home) in line and ("owner" in line or "read-only" in line) for line in lines), lines
    facility.sync()
    demand_whole(facility)


def test_a_home_that_is_a_file_is_named(facility: Facility) -> None:
    facility.home.root.write_text("not a folder")
    with pytest.raises(HomeError, match=r"home: is a file; set `home` to a folder"):
        facility.sync()
    assert facility.home.root.read_text() == "not a folder"


def test_a_catalog_of_a_later_version_is_left_as_it_is(facility: Facility) -> None:
    facility.sync()
    with sqlite3.connect(facility.home.catalog) as connection:
        connection.execute(f"pragma user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = tree(facility.home.root, without=())
    with pytest.raises(CatalogError, match=f"has schema {SCHEMA_VERSION + 1}, this version reads {SCHEMA_VERSION}"):
        facility.sync()
    assert tree(facility.home.root, without=()) == before
    assert len(keys_found(facility)) >= 29  # readers have releases


@pytest.mark.parametrize("where", ["catalog.commit.before", "catalog.commit.after"])
def test_a_migration_that_is_killed_half_way_is_whole_afterwards(facility: Facility, where: str) -> None:
    facility.sync()
    with sqlite3.connect(facility.home.catalog) as connection:  # as version 1 left it
        connection.execute("alter table purged drop column unit")
        connection.execute("pragma user_version = 1")
    connection.close()
    code = "import sys; from pathlib import Path; from aps_rag_pipeline.stores import catalog, home; "
    code += "catalog.Catalog(home.Home(Path(sys.argv[1])))"
    environment = {**os.environ, VARIABLE: where, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code, str(facility.home.root)], env=environment)
    assert done.returncode == -9
    with sqlite3.connect(facility.home.catalog) as connection:
        columns = [row[1] for row in connection.execute("pragma table_info(purged)")]
        version = connection.execute("pragma user_version").fetchone()[0]
    connection.close()
    assert (version, "unit" in columns) in ((1, False), (SCHEMA_VERSION, True))
    with Catalog(facility.home) as catalog:
        assert catalog.rows("select unit from purged") == []
    facility.sync()
    demand_whole(facility)


@pytest.mark.parametrize("how", ["text", "half", "empty", "missing"])
def test_a_damaged_catalog_is_named_with_what_helps(facility: Facility, how: str) -> None:
    facility.sync()
    path = facility.home.catalog
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes({"text": b"not a database at all " * 300, "half": whole[: len(whole) // 2], "empty": b""}[how])
    before = tree(facility.home.root)
    with pytest.raises((CatalogError, sqlite3.DatabaseError)) as caught:
        facility.sync()
    line = str(caught.value) if isinstance(caught.value, HomeError) else told(caught.value)
    assert "aps-rag restore" in line
    assert {k: v for k, v in tree(facility.home.root).items() if not k.startswith("catalog")} == {
        k: v for k, v in before.items() if not k.startswith("catalog")
    }
    assert len(keys_found(facility)) >= 29
    for rest in facility.home.root.glob("catalog.sqlite*"):
        rest.unlink()
    path.write_bytes(whole)
    facility.sync()
    demand_whole(facility)


def test_a_release_that_is_gone_is_published_again(facility: Facility) -> None:
    facility.sync()
    shutil.rmtree(releases.folder_of(facility.home, 1))
    with pytest.raises(NoReleaseError, match="aps-rag sync"):
        Corpus.open(facility.home, None)
    facility.sync()
    demand_whole(facility)


@pytest.mark.parametrize("part", ["manifest.json", "tantivy", "lance"])
def test_a_damaged_release_is_named_with_what_helps(facility: Facility, part: str) -> None:
    facility.sync()
    place = releases.folder_of(facility.home, 1) / part
    if part == "manifest.json":
        place.write_text(place.read_text()[:40])
    elif part == "lance":
        place = facility.home.lance / "records.lance"
        shutil.rmtree(place)
    else:
        shutil.rmtree(place)
    with pytest.raises(DamagedReleaseError) as caught:
        read_all(facility)
    assert str(place) in str(caught.value)
    assert "aps-rag audit --repair" in str(caught.value)
    if part == "manifest.json":
        with pytest.raises(DamagedReleaseError):
            facility.sync()


def test_where_there_are_no_hard_links_copies_are_made(facility: Facility, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    facility.sync()
    demand_whole(facility)
    facility.log["shift"][1] = "klystron K1 tripped once more"
    facility.write().sync()
    demand_whole(facility)
    with releases.open_release(facility.home) as release:
        assert all(path.stat().st_nlink == 1 for path in release.tantivy.iterdir())
