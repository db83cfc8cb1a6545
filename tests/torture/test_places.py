"""The named places: each is in the code, and a short life of a home comes to each."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aps_rag_pipeline import failpoints
from aps_rag_pipeline.sync.backup import back_up, restore
from aps_rag_pipeline.sync.purge import purge
from tests.torture import ring as rings

PACKAGE = Path(failpoints.__file__).parent


def places_in_code() -> list[str]:
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("passing"):
                (place,) = node.args
                assert isinstance(place, ast.Constant), f"{path}:{node.lineno}"
                found.append(place.value)
    return found


def test_the_tuple_names_every_place_in_the_code_once() -> None:
    assert sorted(places_in_code()) == sorted(failpoints.NAMES)


def test_a_short_life_comes_to_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: set[str] = set()
    real = failpoints.passing
    for module in list(sys.modules.values()):
        if getattr(module, "passing", None) is real:
            monkeypatch.setattr(module, "passing", passed.add)
    ring = rings.new(tmp_path, pictures=True)
    ring.at(1).sync()
    orphan = ring.at(1).home.blobs.put(b"nobody refers to this")
    os.utime(ring.at(1).home.blobs.path(orphan), (0, 0))
    ring.at(2).sync()
    shutil.rmtree(tmp_path / "home" / "tantivy")
    ring.at(2).sync()
    with ring.at(2).workspace() as workspace:
        purge(workspace, "BELY:109")
    home = ring.at(2).home
    back_up(home, tmp_path / "backup")
    restore(tmp_path / "backup", home, force=True)
    home.catalog.write_bytes(b"is none any more")
    restore(tmp_path / "backup", home, force=True)
    assert sorted(set(failpoints.NAMES) - set(failpoints.LARGE) - passed) == []


def test_a_place_that_is_asked_for_kills_at_the_wanted_passage(tmp_path: Path) -> None:
    code = (
        "from aps_rag_pipeline.failpoints import passing\n"
        "for turn in range(4):\n"
        "    print(turn, flush=True)\n"
        "    passing('apply.unlink.before')\n"
        "    passing('apply.unlink.after')\n"
    )
    environment = {**os.environ, failpoints.VARIABLE: "apply.unlink.before:3"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (-9, ["0", "1", "2"])
    environment[failpoints.VARIABLE] = "apply.unlnik.before"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "there is no such place" in done.stderr
