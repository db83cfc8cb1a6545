"""Feeds that are folders or files: walking them safely, and telling what moved from sizes and times."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import logging
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, ClassVar

from aps_rag_pipeline.sources.base import (
    Change,
    Complete,
    Cursor,
    Failure,
    FeedError,
    Found,
    Ignored,
    Source,
    UnreadableError,
    Upsert,
)

log = logging.getLogger(__name__)

#: Never part of a feed: what editors, offices and version control leave beside the files people mean.
LEFTOVERS = ("~$*", ".~lock.*", "*.swp", "*~", ".DS_Store", "Thumbs.db", ".git", ".hg", ".svn", "__pycache__")


@dataclass(frozen=True)
class FileEntry:
    """A file of a feed. `name` is its path below the feed's location, with forward slashes, printable."""

    path: Path
    name: str
    size: int
    mtime_ns: int
    ctime_ns: int

    @property
    def state(self) -> str:
        return f"{self.name}|{self.size}|{self.mtime_ns}|{self.ctime_ns}"


@dataclass(frozen=True)
class Unit:
    """Files that are judged together. Most units are one file and carry its name."""

    name: str
    files: tuple[FileEntry, ...]

    @property
    def told(self) -> list[str]:
        """What else than its files decides what it says; when that moves, it is read again."""
        return []

    @property
    def state(self) -> str:
        return _digest([_digest(self.told), *(entry.state for entry in self.files)])


@dataclass
class Listing:
    """What a walk found: files, and what it could or would not look at."""

    files: list[FileEntry]
    failures: list[Failure]
    ignored: list[Ignored]


class FileSource(Source):
    """A source in file form. Subclasses say which files they read and turn one unit into records."""

    #: Glob patterns on file names, case-insensitive; `feed.include` replaces them.
    patterns: ClassVar[tuple[str, ...]] = ("*",)

    @abstractmethod
    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        """The live records of a unit. Raise `UnreadableError` when nothing of it can be read."""

    def units(self, listing: Listing) -> Iterator[Unit]:
        """Group the files into units. Each file is one, unless a subclass knows better."""
        for entry in listing.files:
            yield Unit(entry.name, (entry,))

    def shared_files(self) -> tuple[Path, ...]:
        """Files beside the listed ones (a sidecar table) that units depend on, each as its `told` says."""
        return () if self.feed.sidecar is None else (self.feed.sidecar,)

    # the contract

    def fingerprint(self) -> str | None:
        return _digest([self._shared_state(), *sorted(entry.state for entry in self.listing().files)])

    def changes(self, cursor: Any, retry: frozenset[str] = frozenset()) -> Iterator[Change]:
        listing = self.listing()
        known: dict[str, str] = dict(cursor["units"]) if cursor else {}
        if known and not listing.files:
            raise FeedError(
                f"{self.feed.location}: the folder is empty but {len(known)} files were read from it before; "
                "nothing is removed. If they are really gone, remove the feed from facility.yaml"
            )
        seen: dict[str, str] = {}
        yield from listing.ignored
        for failure in listing.failures:
            yield failure
            for name in known:  # what could not be listed is not gone
                if name == failure.unit or name.startswith(failure.unit + "/"):
                    seen[name] = known[name]
        for unit in self.units(listing):
            seen[unit.name] = unit.state
            if known.get(unit.name) == seen[unit.name] and unit.name not in retry:
                continue
            yield from self._read_whole(unit)
        for name in known.keys() - seen.keys():
            yield Complete(name)
        yield Cursor({"units": seen})

    def inventory(self) -> Iterator[str]:
        for unit in self.units(self.listing()):
            for change in self._read_whole(unit):
                if isinstance(change, Upsert):
                    yield change.record.id

    def check(self) -> Found:
        listing = self.listing()
        for path in self.shared_files():
            if not path.is_file():
                raise FeedError(f"{path}: no such file; mend or remove `sidecar` of feed {self.feed.name}")
        if not listing.files:
            wanted = ", ".join(self.feed.include or self.patterns)
            raise FeedError(f"{self.feed.location}: no file matches {wanted}; mend `location` or `include`")
        detail = f"{len(listing.files)} files, {sum(entry.size for entry in listing.files) / 1e6:.1f} MB"
        if listing.failures:
            detail += f"; {len(listing.failures)} cannot be opened, the first: {listing.failures[0].reason}"
        return Found(len(listing.files), detail)

    # walking

    def listing(self) -> Listing:
        """Every file of the feed in a stable order.

        Raises:
            FeedError: the location does not exist or cannot be listed.
        """
        root = self.feed.location
        if not root.exists():
            raise FeedError(f"{root}: no such file or folder; mend `location` of feed {self.feed.name}")
        found = Listing([], [], [])
        if root.is_file():
            self._add(root, root.name, found)
            return found
        try:
            os.scandir(root).close()
        except OSError as error:
            raise FeedError(f"{root}: cannot be listed ({error.strerror or error})") from error
        self._walk(root, "", {_identity(root)}, found)
        return found

    def _walk(self, folder: Path, prefix: str, above: set[tuple[int, int]], found: Listing) -> None:
        try:
            with os.scandir(folder) as entries:
                children = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            found.failures.append(_failed(prefix.rstrip("/"), error))
            return
        for child in children:
            name = prefix + printable(child.name)
            if _any_of(LEFTOVERS)(child.name):
                if not child.is_dir(follow_symlinks=False):
                    found.ignored.append(Ignored(name, "left behind by an editor, an office or the system"))
                continue
            try:
                if child.is_symlink() and not self._is_inside(Path(child.path)):
                    found.ignored.append(Ignored(name, "a link that leads out of the feed's folder"))
                elif child.is_dir():
                    identity = _identity(child)
                    if identity in above:
                        found.ignored.append(Ignored(name, "a link to a folder that contains it"))
                    else:
                        self._walk(Path(child.path), name + "/", above | {identity}, found)
                elif child.is_symlink() and not os.path.exists(child.path):
                    found.ignored.append(Ignored(name, "a link to nothing"))
                else:
                    self._add(child, name, found)
            except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
                found.failures.append(_failed(name, error))

    def _is_inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.feed.location.resolve())

    def _add(self, file: Path | os.DirEntry[str], name: str, found: Listing) -> None:
        if not self._wanted(name):
            if not self.feed.include and not self._excluded(name):
                found.ignored.append(Ignored(name, "not a kind of file that this source reads by itself"))
            return
        try:
            stat = file.stat()
        except FileNotFoundError:  # it was there when the folder was listed
            found.ignored.append(Ignored(name, "gone before it was looked at"))
            return
        if not S_ISREG(stat.st_mode):
            found.ignored.append(Ignored(name, "not a regular file"))
            return
        found.files.append(FileEntry(Path(file), name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))

    def _wanted(self, name: str) -> bool:
        return matches(name, self.feed.include or self.patterns) and not self._excluded(name)

    def _excluded(self, name: str) -> bool:
        return matches(name, self.feed.exclude)

    # reading

    def load(self, entry: FileEntry) -> bytes:
        """The bytes of a file, within the limits.

        Raises:
            UnreadableError: too large, empty, or not to be opened.
        """
        limit = self.context.limits.max_file_mb
        if entry.size > limit * 1e6:
            raise UnreadableError(
                f"{entry.size / 1e6:.0f} MB, more than limits.max_file_mb ({limit:g})",
                remedy="raise the limit or split it",
            )
        try:
            data = entry.path.read_bytes()
        except OSError as error:
            raise UnreadableError(
                f"cannot be opened ({error.strerror or error})", remedy="check its permissions", permanent=False
            ) from error
        if not data.strip():
            raise UnreadableError("the file is empty", remedy="fill it or remove it")
        return data

    def _read_whole(self, unit: Unit) -> Iterator[Change]:
        place = unit.files[0].name if unit.files else unit.name
        try:
            # A unit is given whole or not at all: half of one followed by a failure would look like removals.
            yield from list(self.read(unit))
        except UnreadableError as error:
            yield Failure(unit.name, unit.name, place, str(error), error.remedy, error.permanent)
        except (
            OSError,
            MemoryError,
            RecursionError,
            ValueError,
            KeyError,
            TypeError,
            IndexError,
            AttributeError,
        ) as error:
            # A parser may fail in any way on a damaged file; it must cost this unit and nothing else.
            log.debug("reading %s", place, exc_info=True)
            reason = f"could not be parsed ({type(error).__name__}: {error})"
            yield Failure(unit.name, unit.name, place, reason, "open it in its own program and save it again", True)
        else:
            yield Complete(unit.name)

    def _shared_state(self) -> str:
        """By content: an export that writes the same table every night is no news."""
        states = []
        for path in self.shared_files():
            try:
                content = self._content_state(path)
            except OSError as error:
                raise FeedError(f"{path}: cannot be read ({error.strerror or error})") from error
            states.append(f"{path.name}|{content}")
        return _digest(states)

    def _content_state(self, path: Path) -> str:
        """The digest of a file; its size and times where it is larger than what is read, or no regular file."""
        stat = path.stat()
        if S_ISREG(stat.st_mode) and stat.st_size <= self.context.limits.max_file_mb * 1e6:
            return _digest_of_file(path)
        return f"{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ctime_ns}"


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def printable(name: str) -> str:
    """A file name as valid text: bytes that are no UTF-8 are shown escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path, or its last part, fits one of the glob patterns; letter case does not matter."""
    whole = name.lower()
    fits = _any_of(patterns, lower=True)
    return fits(whole.rsplit("/", 1)[-1]) or fits(whole)


@functools.lru_cache(maxsize=64)
def _any_of(patterns: tuple[str, ...], lower: bool = False) -> Callable[[str], bool]:
    """Tells whether a name fits one of these glob patterns, which are asked of every file of a folder of many."""
    if not patterns:
        return lambda _: False
    match = re.compile("|".join(fnmatch.translate(glob.lower() if lower else glob) for glob in patterns)).match
    return lambda name: match(name) is not None


def _identity(path: Path | os.DirEntry[str]) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def _failed(name: str, error: Exception) -> Failure:
    reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return Failure(name, name, name, f"cannot be opened ({reason})", "check its permissions or the link", False)


def _digest(parts: list[str]) -> str:
    return hashlib.blake2b("\n".join(parts).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
