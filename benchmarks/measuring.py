"""A process, and what it took: wall and CPU seconds, peak memory, disk.

Two figures of memory are taken, since each says half: `process_mib` is the largest resident set of any single process
(`ru_maxrss` of the child and of its children that it waited for, as the kernel keeps it), `tree_mib` the largest sum
over the child and all that live below it, sampled twice a second. Pages that processes share count once for each.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

MIB = 2**20
_SAMPLE_S, _HEARTBEAT_S = 0.5, 1.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Measured:
    """`result` is what the process wrote to its `--out` file; `earlier_s` what attempts took that were broken off."""

    wall_s: float
    cpu_s: float
    process_mib: float
    tree_mib: float
    result: dict[str, Any]
    earlier_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class StepError(Exception):
    """A measured process failed; the end of its log is in the message."""


def measure(
    command: Sequence[str | Path],
    log: Path,
    *,
    out: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    heartbeat: Path | None = None,
    result_from_stdout: bool = False,
) -> Measured:
    """Run a command to its end. Its error output, and its output unless that is the result, go to `log`.

    `heartbeat` is a file that keeps the seconds spent, so that a resumed step knows what its first attempts took.

    Raises:
        StepError: it ended with another status than 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if out is not None:
        out.unlink(missing_ok=True)
    earlier = _seconds(heartbeat)
    target = log.with_suffix(".out") if result_from_stdout else None
    with log.open("wb") as errors, (target or Path(os.devnull)).open("wb") as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=output if target else errors,
            stderr=errors,
            env=None if env is None else dict(env),
            cwd=cwd,
            preexec_fn=_end_with_parent,
        )
        sampler = _Sampler(process.pid, heartbeat, earlier)
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        sampler.finish()
    if process.returncode != 0:
        said = [path.read_text(errors="replace") for path in (target, log) if path is not None]
        end = "\n".join(said).strip()[-1500:]
        raise StepError(f"{command[0]} … ended with {process.returncode}: {end}")
    if heartbeat is not None:
        heartbeat.unlink(missing_ok=True)
    found = target if target is not None else out
    result = json.loads(found.read_bytes()) if found is not None and found.exists() else {}
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(wall, cpu, usage.ru_maxrss * 1024 / MIB, sampler.peak / MIB, result, earlier)


def _end_with_parent() -> None:
    """In the child: ask Linux for its end when the benchmark is killed, or it goes on beside the one that resumes."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Sampler(threading.Thread):
    def __init__(self, pid: int, heartbeat: Path | None, earlier: float) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._pid, self._heartbeat, self._earlier = pid, heartbeat, earlier
        self._over = threading.Event()

    def run(self) -> None:
        started = noted = time.perf_counter()
        try:
            root = psutil.Process(self._pid)
        except psutil.NoSuchProcess:
            return
        while not self._over.wait(_SAMPLE_S):
            self.peak = max(self.peak, _tree_bytes(root))
            now = time.perf_counter()
            if self._heartbeat is not None and now - noted > _HEARTBEAT_S:
                self._heartbeat.write_text(json.dumps(self._earlier + now - started))
                noted = now

    def finish(self) -> None:
        self._over.set()
        self.join()


def _tree_bytes(root: psutil.Process) -> int:
    total = 0
    try:
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    for process in family:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue  # it ended between the listing and the look
    return total


def _seconds(heartbeat: Path | None) -> float:
    if heartbeat is None or not heartbeat.exists():
        return 0.0
    return float(json.loads(heartbeat.read_text() or "0"))


def disk_mib(folder: Path, without: Sequence[str] = ()) -> tuple[float, int]:
    """(MiB on disk, files) below a folder; hard links count once. `without` names folders to leave out, from it."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if (Path(root) / name).relative_to(folder).as_posix() not in without]
        for name in names:
            found = os.lstat(os.path.join(root, name))
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total / MIB, len(seen)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds: median, 95th percentile and mean; an empty sequence gives none."""
    if not seconds:
        return {}
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return ordered[min(round(share * (len(ordered) - 1)), len(ordered) - 1)] * 1000

    return {"p50_ms": at(0.5), "p95_ms": at(0.95), "mean_ms": sum(ordered) / len(ordered) * 1000, "n": len(ordered)}
