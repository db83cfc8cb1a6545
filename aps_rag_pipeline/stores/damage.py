"""Files of LanceDB and Tantivy that are not what was written: one error for what these raise, and who is to blame."""

from __future__ import annotations

import errno
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aps_rag_pipeline.stores import sparse
from aps_rag_pipeline.stores.home import HomeError
from aps_rag_pipeline.stores.trouble import told

#: Ends a message of Lance: the line of its own source.
_SOURCE_LINE = re.compile(r",? /\S+\.rs:\d+(:\d+)?")
#: A panic in Rust is an exception of one of these names, of which neither can be imported.
_PANICS = {"PanicException", "RustPanic"}
#: How Rust tells the number of what the system said.
_NUMBERED = re.compile(r"\(os error (\d+)\)|\bOs \{ code: (\d+)")
#: What the system says where files are gone, or name places in others that are not there; all else it says passes.
_OF_FILES = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL}
_NEWER = "version of lance"
#: Lance names the file of a version by its distance from this, so that the newest comes first.
_NEWEST_FIRST = 2**64 - 1
#: A file of Tantivy ends with a sum of what is before, the length of that and this number, four bytes each.
_TANTIVY = (1337).to_bytes(4, "little")
_LENGTHS = 8
_BLOCK = 1 << 20


class DamagedStoreError(Exception):
    """A file of a store, or the store's folder where no file is known to be the one, cannot be read."""

    def __init__(self, place: Path, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place, self.reason = place, reason


@contextmanager
def reading(place: Path) -> Iterator[None]:
    """Around what reads a store: whatever a damaged file makes it raise is a DamagedStoreError. A disk that is full, a
    file that may not be read and the like are no damage.

    Raises:
        HomeError: the file could not be read at this moment, or by this version of Lance.
    """
    try:
        yield
    except BaseException as error:
        panic = any(kind.__name__ in _PANICS for kind in type(error).__mro__)
        if not panic and (told(error) or not isinstance(error, (RuntimeError, OSError, ValueError, LookupError))):
            raise
        said = _SOURCE_LINE.sub("", str(error).strip().partition("\n")[0])
        if not panic and (remedy := _no_damage(error)):
            raise HomeError(f"{place}: cannot be read ({said}); {remedy}") from error
        raise DamagedStoreError(place, f"cannot be read ({said or type(error).__name__})") from error


def _no_damage(error: BaseException) -> str:
    """What helps where an error tells nothing of what a file holds; empty elsewhere."""
    if _NEWER in str(error).lower():
        return "a newer version wrote it: install that again, and nothing is damaged"
    told_by_rust = [int(one or other) for one, other in _NUMBERED.findall(str(error))]
    number = error.errno if isinstance(error, OSError) and error.errno else next(iter(told_by_rust), None)
    if number is None or number in _OF_FILES:
        return ""
    return "see to the disk, or to the server and the network that it lies behind, and run it again"


def check_table(folder: Path) -> None:
    """Every version of a table can be opened, and the newest has its files.

    Raises:
        DamagedStoreError: names the first file that is not what was written.
    """
    import lance

    try:
        with reading(folder):
            lance.dataset(str(folder)).versions()
    except DamagedStoreError:
        for path in sorted(folder.glob("_versions/*.manifest")):
            _open(folder, _version_of(path), path)
        raise
    check_version(folder, None)


def has_version(folder: Path, version: int) -> bool:
    """Whether a table has a version, readable or not."""
    names = (version, _NEWEST_FIRST - version)
    return any((folder / "_versions" / f"{name}.manifest").is_file() for name in names)


def check_version(folder: Path, version: int | None, *, close: bool = False) -> None:
    """A version of a table, or the newest, has its files in the length in which they were written; with a `close` look
    each is read to its end.

    Raises:
        DamagedStoreError: names the first file that is not what was written.
    """
    for fragment in _open(folder, version, folder).get_fragments():
        paths = [folder / "data" / file.path for file in fragment.data_files()]
        for path, file in zip(paths, fragment.data_files(), strict=True):
            _demand(path, file.file_size_bytes)
        if fragment.deletion_file():
            _demand(folder / fragment.deletion_file(), None)
        if close:
            with reading(paths[0]):
                for _ in fragment.to_batches():
                    pass


def damage_of(table: Any) -> DamagedStoreError | None:
    """Which file of an open table, in its version, cannot be read; None where all can."""
    try:
        check_version(Path(table.uri), int(table.version), close=True)
    except DamagedStoreError as error:
        return error
    return None


def check_index(folder: Path, seen: dict[tuple[int, int], str]) -> None:
    """Every file of a BM25 index that its list names is there and has the sum that it bears.

    Args:
        seen: what was wrong with each file looked at before, by device and inode: releases share most of theirs.

    Raises:
        DamagedStoreError: names the first file that is not what was written.
    """
    with reading(folder):
        paths = sparse.named_files(folder)
    for path in paths:
        _demand(path, None)
        found = path.stat()
        if (found.st_dev, found.st_ino) not in seen:
            seen[found.st_dev, found.st_ino] = _wrong_sum(path)
        if seen[found.st_dev, found.st_ino]:
            raise DamagedStoreError(path, seen[found.st_dev, found.st_ino])


def _open(folder: Path, version: int | None, place: Path) -> Any:
    import lance

    with reading(place):
        return lance.dataset(str(folder), version=version)


def _version_of(manifest: Path) -> int:
    number = int(manifest.stem)
    return number if number < _NEWEST_FIRST // 2 else _NEWEST_FIRST - number


def _demand(path: Path, size: int | None) -> None:
    with reading(path):
        found = path.stat().st_size if path.is_file() else None
    if found is None:
        raise DamagedStoreError(path, "is not there")
    if size and found != size:
        raise DamagedStoreError(path, f"has {found} bytes instead of {size}")


def _wrong_sum(path: Path) -> str:
    """What is wrong with a file of Tantivy, if anything."""
    size = path.stat().st_size
    with reading(path), path.open("rb") as stream:
        stream.seek(max(size - _LENGTHS, 0))
        end = stream.read()
        length = int.from_bytes(end[:4], "little")
        if end[4:] != _TANTIVY or length > size - _LENGTHS:
            return "does not end as it was written"
        body = size - _LENGTHS - length
        stream.seek(body)
        wanted = json.loads(stream.read(length))["crc"]
        stream.seek(0)
        found, left = 0, body
        while left:
            block = stream.read(min(_BLOCK, left))
            found, left = zlib.crc32(block, found), left - len(block)
    return "" if found == wanted else "is not what was written: its sum differs"
