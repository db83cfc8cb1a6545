"""What a backup is: a folder laid out like a home, and `backup.json`, which names every file with its digest."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO

import msgspec

from aps_rag_pipeline.stores.catalog import SCHEMA_VERSION
from aps_rag_pipeline.stores.home import Home, HomeError
from aps_rag_pipeline.stores.releases import MANIFEST, folder_of

CONTENTS = "backup.json"
FORMAT = 1
_BLOCK = 1 << 20
#: A list of files is not longer than this, in bytes.
_LONGEST = 1 << 30
_FOLDERS = ("blobs", "lance", "marts", "models", "releases", "state")

Count = Annotated[int, msgspec.Meta(ge=0)]


class BackupError(HomeError):
    """A backup cannot be written, or is not what was written; the message names the file or folder."""


class StoredFile(msgspec.Struct, frozen=True):
    size: Count
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Contents(msgspec.Struct, frozen=True):
    """`backup.json`. `release` and `released_changeset` are None and 0 where the home had no release yet."""

    format: int
    made_at: datetime
    facility: str
    schema: Annotated[int, msgspec.Meta(ge=1)]  # of the catalog
    changeset: Count
    release: Count | None
    released_changeset: Count
    records: Count
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
        with _plain_file(path) as stream:
            found = msgspec.json.decode(stream.read(_LONGEST), type=Contents)
    except (FileNotFoundError, NotADirectoryError):
        raise BackupError(
            f"{folder}: is no backup (it has no {CONTENTS}); name a folder that `aps-rag backup` wrote"
        ) from None
    except OSError as error:
        raise BackupError(f"{path}: cannot be read ({error.strerror})") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupError(f"{path}: is damaged ({error}); use another backup") from error
    for what, number, read in (
        ("format", found.format, (FORMAT,)),
        ("schema", found.schema, range(SCHEMA_VERSION + 1)),
    ):
        if number not in read:
            raise BackupError(
                f"{path}: has {what} {number}, this version reads {max(read)}; use the version that wrote it"
            )
    _demand_files_of_a_home(path, found)
    return found


def _demand_files_of_a_home(path: Path, contents: Contents) -> None:
    """Raises:
    BackupError: the backup names a file that a home has not, or not one that it must have.
    """
    home = Home(Path())
    release = None if contents.release is None else folder_of(home, contents.release)
    for name in contents.files:
        parts = PurePosixPath(name).parts
        plain = name == "/".join(parts) and name.isprintable() and not {"..", "/"} & set(parts)
        if not plain or (name != home.catalog.name and (len(parts) < 2 or parts[0] not in _FOLDERS)):
            raise BackupError(f"{path}: names {name!r}, which is no file of a home; use another backup")
        if parts[0] == home.releases.name and (release is None or not Path(name).is_relative_to(release)):
            raise BackupError(f"{path}: names {name!r}, of another release than its own; use another backup")
    for needed in (home.catalog, *([release / MANIFEST] if release else [])):
        if needed.as_posix() not in contents.files:
            raise BackupError(f"{path}: does not name {needed.as_posix()!r}, so it is not whole; use another backup")


def verify(folder: Path) -> Contents:
    """Compare every file with its digest.

    Raises:
        BackupError: a file is missing or differs; the message names the first such file and how many there are.
    """
    contents = read_contents(folder)
    steps = {step for name in contents.files for step in PurePosixPath(name).parents}
    wrong = [
        f"{str(folder / step)!r}: is a link" for step in sorted(steps) if step.name and (folder / step).is_symlink()
    ]
    wrong += [
        f"{str(folder / name)!r}: {reason}"
        for name, file in (contents.files.items() if not wrong else ())
        if (reason := _fault(folder / name, file))
    ]
    if wrong:
        more = f" (and {len(wrong) - 1} more files)" if len(wrong) > 1 else ""
        raise BackupError(f"{wrong[0]}{more}; this backup is damaged, use another")
    return contents


def _fault(path: Path, file: StoredFile) -> str:
    try:
        there = path.lstat()
        if not stat.S_ISREG(there.st_mode):
            return "is no plain file"
        same = there.st_size == file.size and digest(path) == file
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if same else "is not what was written"


@contextlib.contextmanager
def _plain_file(path: Path) -> Iterator[BinaryIO]:
    """A file to read that is neither a link nor anything that one could wait for, as a pipe.

    Raises:
        OSError: it is one, or cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "is no plain file", str(path))
        yield stream


def digest(path: Path) -> StoredFile:
    made, size = hashlib.sha256(), 0
    with _plain_file(path) as stream:
        while block := stream.read(_BLOCK):
            made.update(block)
            size += len(block)
    return StoredFile(size, made.hexdigest())


def copy(source: Path, target: Path, *, linked: bool = True) -> StoredFile:
    """Copy a file to the disk, past its caches, and give the digest of what was read.

    Args:
        linked: whether the source may be a link to a file; whoever keeps a home may have put large ones elsewhere.
    """
    made, size = hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with _plain_file(source.resolve() if linked else source) as stream, target.open("xb") as copied:
        while block := stream.read(_BLOCK):
            made.update(block)
            copied.write(block)
            size += len(block)
        copied.flush()
        os.fchmod(copied.fileno(), stat.S_IMODE(os.fstat(stream.fileno()).st_mode))
        os.fsync(copied.fileno())
    return StoredFile(size, made.hexdigest())


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


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
