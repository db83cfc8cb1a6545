"""Processes that read what nobody vouches for: they can be killed, and what they take along is one file.

A child is a module of this package run by itself. Both sides exchange frames, stretches of bytes that begin with their
length; the first frame of a child, an empty one, says that it is ready.
"""

from __future__ import annotations

import math
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, Literal

import psutil

_LENGTH = struct.Struct(">Q")
#: How often a watched child's memory is looked at; at a few gigabytes a second this is what it may overshoot.
_LOOK_S = 0.05
_TURN_S = 1.0
_START_S = 180.0
#: Nobody answers with more; a length beyond it is no length.
_MAX_FRAME = 1 << 31
#: Variables that a child needs. Others stay behind: among them are the credentials of feeds.
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TZ")
_KEPT_PREFIXES = ("LC_", "TESS", "OMP_", "OPENBLAS_", "COVERAGE_")

#: Signals by which others end a process; a parser that crashes ends by another.
_FROM_OUTSIDE = (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM), getattr(signal, "SIGHUP", signal.SIGTERM))

#: What ended a watched child: its time, or its memory.
Strike = Literal["", "time", "memory"]


class ChildError(Exception):
    """The child does not answer: it could not be started, or it has ended."""


def child_environment(**more: str) -> dict[str, str]:
    """The variables of a child that reads what nobody vouches for, with `more` of them."""
    kept = {n: value for n, value in os.environ.items() if n in _KEPT or n.startswith(_KEPT_PREFIXES)}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


class Child:
    """A process with a group of its own, so that what it starts dies with it. Not for several threads at a time."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Start `python -m module` and wait until it is ready.

        Raises:
            ChildError: it cannot be started.
        """
        try:
            # A module of our own, not multiprocessing: nothing of the caller's main module is imported again.
            self._process = subprocess.Popen(
                # Nor what lies in the folder where a command happens to run: `-m` alone would look there first.
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=child_environment(**(environment or {})),
                start_new_session=True,
            )
        except OSError as error:
            raise ChildError(f"no process could be started ({error.strerror or error})") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._seen = psutil.Process(self._process.pid)
        with Watch(self, _START_S):
            ready = read_frame(self._from)
        if ready is None:
            code = self.end()
            raise ChildError(f"the process {module} does not start (code {code})")
        #: Bytes that it holds before its first work.
        self.first_memory = self.memory()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def memory(self) -> int:
        """Bytes of memory that it holds at present; none once it has ended."""
        try:
            return int(self._seen.memory_info().rss)
        except psutil.Error:
            return 0

    def send(self, frame: bytes) -> None:
        """Raises ChildError: it has ended."""
        try:
            write_frame(self._to, frame)
        except (OSError, ValueError) as error:
            raise ChildError("the process takes nothing any more") from error

    def receive(self) -> bytes:
        """The next frame. Raises ChildError: it has ended."""
        try:
            frame = read_frame(self._from)
        except (OSError, ValueError) as error:
            raise ChildError("the process says nothing any more") from error
        if frame is None:
            raise ChildError("the process has ended")
        return frame

    def kill(self) -> None:
        """End it and whatever it has started, at once."""
        with suppress(ProcessLookupError, PermissionError):  # it has ended by itself
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def end(self) -> int:
        """Kill it and what it has started, and give what it held back to the system; its exit code is returned."""
        self.kill()  # what it has started runs on where it has ended by itself
        code = self._process.wait()
        for stream in (self._to, self._from):
            with suppress(OSError):  # what was still to be written has nobody to read it
                stream.close()
        return code


class Watch:
    """Kills a child that takes more than `seconds`, or more than `memory` bytes, while the block runs."""

    def __init__(self, child: Child, seconds: float, memory: int = 0) -> None:
        self.struck: Strike = ""
        self._child = child
        self._seconds = seconds
        self._memory = memory
        self._over = threading.Event()
        self._deadline = time.monotonic() + seconds
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def feed(self) -> None:
        """A sign of life: the time begins anew."""
        self._deadline = time.monotonic() + self._seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time that passes in this block is not the child's."""
        left = self._deadline - time.monotonic()
        self._deadline = math.inf
        try:
            yield
        finally:
            self._deadline = time.monotonic() + left

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while (left := self._deadline - time.monotonic()) > 0:
            if self._over.wait(min(left, _LOOK_S if self._memory else _TURN_S)):
                return
            if self._memory and self._child.memory() > self._memory:
                self._strike("memory")
                return
        self._strike("time")

    def _strike(self, why: Strike) -> None:
        self.struck = why
        self._child.kill()


def ending(code: int) -> tuple[str, bool]:
    """In words how a child ended that was not ended here, and whether others on this machine did it."""
    if -code in _FROM_OUTSIDE:
        return f"was ended from outside ({signal.Signals(-code).name})", True
    return f"crashed ({signal.Signals(-code).name if -code in signal.valid_signals() else f'code {code}'})", False


def own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """In a child: where frames come from and where they go, after saying that it is ready. What a library prints goes
    elsewhere from here on, and the child ends with its parent."""
    threading.Thread(target=_end_with, args=(os.getppid(),), name="parent", daemon=True).start()
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    write_frame(target, b"")
    return source, target


def _end_with(parent: int) -> None:
    """End this child and what it has started when its parent was killed, which could not do it any more."""
    while os.getppid() == parent:
        time.sleep(_TURN_S)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def write_frame(stream: IO[bytes], frame: bytes) -> None:
    stream.write(_LENGTH.pack(len(frame)))
    stream.write(frame)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None where there is none, or only the beginning of one."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > _MAX_FRAME:
        return None
    frame = stream.read(length)
    return frame if len(frame) == length else None
