"""What a backup is: a folder laid out like a home, and `backup.json`, which names every file with its digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from aps_rag_pipeline.stores.home import HomeError

CONTENTS = "backup.json"
FORMAT = 1
_BLOCK = 1 << 20


class BackupError(HomeError):
    """A backup cannot be written, or is not what was written; the message names the file or folder."""


class StoredFile(msgspec.Struct, frozen=True):
    size: int
    sha256: str


class Contents(msgspec.Struct, frozen=True):
    """`backup.json`. `release` and `released_changeset` are None and 0 where the home had no release yet."""

    format: int
    made_at: datetime
    facility: str
    schema: int  # of the catalog
    changeset: int
    release: int | None
    released_changeset: int
    records: int
    files: dict[str, StoredFile]  # by path within the backup, `/` between its steps
    missing_blobs: int = 0  # attachments that the catalog names and the home had not
    models: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())


def read_contents(folder: Path) -> Contents:
    """Raises:
    BackupError: the folder holds no backup, or one that this version cannot read.
    """
    path = folder / CONTENTS
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Contents)
    except (FileNotFoundError, NotADirectoryError):
        raise BackupError(
            f"{folder}: is no backup (it has no {CONTENTS}); name a folder that `aps-rag backup` wrote"
        ) from None
    except OSError as error:
        raise BackupError(f"{path}: cannot be read ({error.strerror})") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupError(f"{path}: is damaged ({error}); use another backup") from error
    if found.format != FORMAT:
        raise BackupError(
            f"{path}: has format {found.format}, this version reads {FORMAT}; use the version that wrote it"
        )
    for name in found.files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise BackupError(f"{path}: names {name!r}, which lies outside the backup")
    return found


def verify(folder: Path) -> Contents:
    """Compare every file with its digest.

    Raises:
        BackupError: a file is missing or differs; the message names the first such file and how many there are.
    """
    contents = read_contents(folder)
    wrong = [
        f"{folder / name}: {reason}" for name, file in contents.files.items() if (reason := _fault(folder / name, file))
    ]
    if wrong:
        more = f" (and {len(wrong) - 1} more files)" if len(wrong) > 1 else ""
        raise BackupError(f"{wrong[0]}{more}; this backup is damaged, use another")
    return contents


def _fault(path: Path, file: StoredFile) -> str:
    try:
        found = digest(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if found == file else "is not what was written"


def digest(path: Path) -> StoredFile:
    made, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            made.update(block)
            size += len(block)
    return StoredFile(size, made.hexdigest())


def copy(source: Path, target: Path) -> StoredFile:
    """Copy a file to the disk, past its caches, and give the digest of what was read."""
    made, size = hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as stream, target.open("xb") as copied:
        while block := stream.read(_BLOCK):
            made.update(block)
            copied.write(block)
            size += len(block)
        copied.flush()
        os.fsync(copied.fileno())
    shutil.copymode(source, target)
    return StoredFile(size, made.hexdigest())


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


def sync_folders(folder: Path) -> None:
    """Bring the names within a folder to the disk."""
    for path in (folder, *(found for found in folder.rglob("*") if found.is_dir())):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def demand_space(folder: Path, wanted: int) -> None:
    """Raises:
    BackupError: the file system of the folder has not that many bytes left.
    """
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise BackupError(
            f"{folder}: {megabytes(wanted)} are needed and {megabytes(free)} are free; make room or name another place"
        )


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


@contextlib.contextmanager
def explained(folder: Path, after: str) -> Iterator[None]:
    """Errors of the file system as one line that names the place and says how things are `after` it."""
    try:
        yield
    except OSError as error:
        place = error.filename or folder
        raise BackupError(f"{place}: {(error.strerror or str(error)).lower()}; {after}") from error
