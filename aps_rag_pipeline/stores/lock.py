"""One writer per home: a file lock that the system frees when its holder dies, and that names the holder meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime

from aps_rag_pipeline.stores.home import Home, HomeError
from aps_rag_pipeline.stores.trouble import told

_POLL_S = 0.1
#: How often a holder is looked for that has the lock and has not said yet who it is.
_LOOKS = 10
#: Exit status of a command that found the home taken (EX_TEMPFAIL).
EXIT_TAKEN = 75


class HomeTakenError(HomeError):
    """Another writer holds the home."""


class WriterLock:
    """Held from `acquire` to `release`; acquiring twice in one process is harmless."""

    def __init__(self, home: Home, timeout_s: float, purpose: str) -> None:
        self._path = home.writer_lock
        self._timeout_s = timeout_s
        self._purpose = purpose
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        return self._handle is not None

    def acquire(self) -> WriterLock:
        """Wait for the home.

        Raises:
            HomeTakenError: it did not become free in time; the message names the holder.
            HomeError: this user may not write the home.
        """
        if self._handle is not None:
            return self
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise HomeError(told(error) or f"{self._path}: cannot be opened ({error.strerror})") from error
        deadline, looks = time.monotonic() + self._timeout_s, 0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = os.pread(handle, 4096, 0).decode("utf-8", "replace")
                    if not holder and looks < _LOOKS:
                        looks += 1  # its holder is about to say who it is, or to go
                        time.sleep(_POLL_S / _LOOKS)
                        continue
                    os.close(handle)
                    raise HomeTakenError(
                        f"{self._path.parent} is being written by {holder or 'another process'}; "
                        f"waited {self._timeout_s:g} s (limits.lock_timeout_s)"
                    ) from None
                time.sleep(_POLL_S)
        note = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "purpose": self._purpose,
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._handle = handle
        with contextlib.suppress(OSError):  # on a full disk the lock holds without its note
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(note).encode(), 0)
        return self

    def release(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> WriterLock:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
