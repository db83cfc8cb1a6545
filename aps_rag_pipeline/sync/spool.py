"""The spool: what was fetched and is not yet applied. One compressed file of lines per fetch of a feed."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.sources.base import Change, Cursor, Upsert

_SUFFIX = ".jsonl.zst"


class Header(msgspec.Struct, frozen=True):
    """First line of a spool file. `sequence` orders a feed's fetches: an older one never overwrites a newer one."""

    feed: str
    source: str
    config: str
    fingerprint: str | None
    sequence: int
    started_at: datetime
    base: int = 0  # sequence of the fetch whose cursor this one began from
    whole: bool = False  # began without a cursor: what it does not name is gone


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change, and how many credentials were masked in it."""

    change: Change
    masked: int = 0


_encode = msgspec.json.Encoder().encode
_decode_header = msgspec.json.Decoder(Header).decode
_decode_entry = msgspec.json.Decoder(Entry).decode


class SpoolWriter:
    """Writes a draft; `keep` renames it into place, anything else throws it away."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.path = folder / f"{header.sequence:020d}-{header.feed}{_SUFFIX}"
        self._draft = self.path.with_name("." + self.path.name)
        self._raw = self._draft.open("wb")
        fcntl.flock(self._raw, fcntl.LOCK_EX)  # says that the fetch lives
        self._file = zstandard.ZstdCompressor(level=1).stream_writer(self._raw)
        self._file.write(_encode(header) + b"\n")

    def write(self, entry: Entry) -> None:
        self._file.write(_encode(entry) + b"\n")

    def keep(self) -> None:
        self._file.flush(zstandard.FLUSH_FRAME)
        self._raw.flush()
        os.fsync(self._raw.fileno())
        passing("spool.seal.before")
        os.replace(self._draft, self.path)
        passing("spool.seal.after")
        self._close()

    def discard(self) -> None:
        self._close()
        self._draft.unlink(missing_ok=True)

    def _close(self) -> None:
        if not self._raw.closed:
            self._raw.close()


def waiting(folder: Path) -> list[Path]:
    """Spool files in the order of their fetches."""
    return sorted(folder.glob(f"[0-9]*{_SUFFIX}")) if folder.is_dir() else []


def drop_drafts(folder: Path, older_than: float, *, living: bool = False) -> None:
    """Remove what fetches that died have left behind (drafts last written before `older_than`, seconds since 1970), and
    with `living` also drafts that are being written: their fetches fail."""
    for path in folder.glob(f".*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as draft:
            if path.stat().st_mtime < older_than:
                if not living:
                    fcntl.flock(draft, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def oldest(folder: Path) -> float | None:
    """When the oldest fetch began that is under way or waits (seconds since 1970); None when there is none."""
    names = [path.name.lstrip(".") for path in folder.glob(f"*{_SUFFIX}")] if folder.is_dir() else []
    return min((int(name.partition("-")[0]) / 1e9 for name in names), default=None)


def blobs(folder: Path) -> set[str]:
    """The blobs that what waits will refer to once it is applied."""
    found: set[str] = set()
    for path in waiting(folder):
        with contextlib.suppress(DamagedError):  # of what cannot be read nothing is applied
            for entry in read(path)[1]:
                if isinstance(entry.change, Upsert):
                    found.update(attachment.sha256 for attachment in entry.change.record.attachments)
                elif isinstance(entry.change, Cursor):
                    found |= kept_files(entry.change.value)
    return found


def kept_files(cursor: Any) -> set[str]:
    """The blobs that a live feed keeps in its cursor, so that it need not fetch them again."""
    files = cursor.get("files", {}) if isinstance(cursor, dict) else {}
    return {sha256 for some in files.values() for sha256 in some.values()}


class DamagedError(Exception):
    """A spool file that is not what was written."""


def read(path: Path) -> tuple[Header, Iterator[Entry]]:
    """Raises:
    DamagedError: at once, or while the entries are read.
    """
    lines = _lines(path)
    try:
        header = _decode_header(next(lines))
    except (StopIteration, zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise DamagedError(f"{path}: cannot be read ({type(error).__name__})") from error
    return header, _entries(path, lines)


def _entries(path: Path, lines: Iterator[bytes]) -> Iterator[Entry]:
    try:
        for line in lines:
            yield _decode_entry(line)
    except (zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise DamagedError(f"{path}: cannot be read to its end ({type(error).__name__})") from error


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
        yield from io.BufferedReader(stream, 1 << 20)
