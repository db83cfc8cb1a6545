"""What must be on the disk before it is given its name: a name outlives a power failure, contents need not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

#: Clocks are set back, and a file bears the time of a moment ago.
_MARGIN_S = 120


def write_through(path: Path) -> None:
    """Carry a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_through_all(folder: Path, *, since: float | None = None) -> None:
    """Carry everything below a folder to the disk, and the folder last.

    Args:
        since: leave out what was last written well before this (seconds since 1970): it was carried there then.
    """
    for path in _below(folder):
        if since is None or path.stat().st_mtime > since - _MARGIN_S:
            write_through(path)


def _below(folder: Path) -> Iterator[Path]:
    for base, _, names in os.walk(folder, topdown=False):
        yield from (Path(base, name) for name in names)
        yield Path(base)
