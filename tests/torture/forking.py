"""Processes to be killed. What takes long is imported once, in a server that forks for each of them: all but LanceDB,
which starts threads when it is imported and must not be forked behind that."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.torture.ring import Ring

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: by itself, or killed; how long it ran, without its imports."""

    killed: bool
    said: str
    seconds: float


class Forks:
    """The client side."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.forking"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def sync(self, ring: Ring, number: int, *, failpoint: str = "", kill_after: float = 0) -> Outcome:
        """Bring the home to a state, in a process that is killed at a place or after some seconds."""
        return self._run(ring, do="sync", number=number, failpoint=failpoint, kill_after=kill_after)

    def purge(self, ring: Ring, number: int, key: str, *, failpoint: str = "") -> Outcome:
        return self._run(ring, do="purge", number=number, failpoint=failpoint, kill_after=0, key=key)

    @contextmanager
    def reader(self, ring: Ring, folder: Path, *, holds: bool = False) -> Iterator[dict[str, Any]]:
        """A reader at work; what it saw is in the dictionary afterwards."""
        folder.mkdir()
        self._ask(ring, do="read", folder=str(folder), holds=holds)
        seen: dict[str, Any] = {}
        try:
            yield seen
        finally:
            (folder / "stop").touch()
            while not (folder / "seen.json").exists():
                time.sleep(0.02)
            seen.update(json.loads((folder / "seen.json").read_text()))

    def _run(self, ring: Ring, **wanted: Any) -> Outcome:
        answer = self._ask(ring, **wanted)
        if answer["signal"] not in (0, signal.SIGKILL, signal.SIGALRM):
            raise AssertionError(f"died of signal {answer['signal']}: {answer['said']}")
        return Outcome(bool(answer["signal"]), answer["said"], answer["seconds"])

    def _ask(self, ring: Ring, **wanted: Any) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        asked = {"root": str(ring.root), "began": ring.began.isoformat(), "pictures": ring.pictures, **wanted}
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        answered = self._server.stdout.readline()
        assert answered, "the server died"
        return json.loads(answered)


# the server side


def serve() -> None:
    _import_most()
    for line in sys.stdin:
        asked = json.loads(line)
        ring = Ring(Path(asked["root"]), datetime.fromisoformat(asked["began"]), asked["pictures"])
        if asked["do"] == "read":
            if os.fork() == 0:
                _read(ring, asked)
            answer: dict[str, Any] = {}
        else:
            answer = _run(ring, asked)
        print(json.dumps(answer), flush=True)


def _import_most() -> None:
    for name in ("duckdb", "numpy", "tests.small_facility", "tests.torture.frozen", "tests.torture.reader"):
        importlib.import_module(name)
    assert "lancedb" not in sys.modules
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _run(ring: Ring, asked: dict[str, Any]) -> dict[str, Any]:
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _work(ring, asked, tells)
    os.close(tells)
    with os.fdopen(told) as stream:
        said = stream.read().splitlines()
    _, status = os.waitpid(pid, 0)
    began = float(said.pop(0)) if said and said[0].replace(".", "").isdigit() else time.monotonic()
    return {
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "said": "\n".join(said),
        "seconds": time.monotonic() - began,
    }


def _work(ring: Ring, asked: dict[str, Any], tells: int) -> None:
    """Of the forked process: do what was asked, say how it went, and end without a word to anybody else."""
    from aps_rag_pipeline import failpoints
    from aps_rag_pipeline.settings import Settings
    from aps_rag_pipeline.stores.lance import lancedb
    from aps_rag_pipeline.sync import pipeline
    from aps_rag_pipeline.sync.purge import purge
    from tests.torture.frozen import clock_at

    os.set_inheritable(tells, False)
    _leave_the_pipes()
    try:
        lancedb()
        settings = Settings.load(ring.root / "facility.yaml")
        os.write(tells, f"{time.monotonic()}\n".encode())
        failpoints.arm(asked["failpoint"])
        if asked["kill_after"]:
            signal.setitimer(signal.ITIMER_REAL, asked["kill_after"])  # nobody handles it: it kills
        with clock_at(ring.now(asked["number"])), pipeline.open_workspace(settings) as workspace:
            if asked["do"] == "purge":
                purge(workspace, asked["key"])
            else:
                fetched, _, _ = pipeline.sync(workspace)
                assert not any(report.error for report in fetched), [report.error for report in fetched]
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(tells, b"done")
    except BaseException as error:
        os.write(tells, f"{type(error).__name__}: {error}".encode())
    os._exit(0)


def _leave_the_pipes() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)


def _read(ring: Ring, asked: dict[str, Any]) -> None:
    from aps_rag_pipeline.stores.home import Home
    from tests.torture.reader import poll_until_stopped

    _leave_the_pipes()
    try:
        poll_until_stopped(Home(ring.root / "home"), Path(asked["folder"]), holds=asked["holds"])
    finally:
        os._exit(0)


if __name__ == "__main__":
    serve()
