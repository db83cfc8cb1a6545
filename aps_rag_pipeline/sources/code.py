"""Source `code`: git checkouts (tracked text files, as they stand in the working tree) and folders of loose scripts.

A record is one file, its parts are functions, procedures and sections by whole lines. Options of a feed:
`repository` (name of a checkout that is the location itself; its folder's name otherwise), `max_text_kb` (longer texts
are data, not code; 2000), `history_commits` (how far back times and authors are looked up; 5000). The form `git` clones
repositories by their addresses; see `repositories.feed`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import (
    Failure,
    FeedError,
    Found,
    Ignored,
    Source,
    SourceContext,
    UnreadableError,
    Upsert,
)
from aps_rag_pipeline.sources.checkouts import Checkout, is_bare, is_checkout, open_checkout, read_history
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Listing, Unit, printable
from aps_rag_pipeline.sources.repositories.feed import GitClones
from aps_rag_pipeline.sources.repositories.files import HEAD_BYTES, CodeFile, CodeReader
from aps_rag_pipeline.sources.repositories.history import FileHistory


@dataclass(frozen=True)
class TrackedFile(FileEntry):
    """A file of a checkout. `history` is None until the commits have been walked."""

    checkout: Checkout
    path_in_checkout: bytes
    history: FileHistory | None = None

    @property
    def state(self) -> str:
        # A commit changes what a record says of its file (author, commit) without touching the file.
        commit = self.checkout.head if self.history is None else f"{self.history.commit}|{self.history.blob}"
        return f"{super().state}|{self.checkout.branch}|{commit}"


class CodeFiles(FileSource):
    """A checkout, a folder with checkouts in it, or plain files; each file is a unit."""

    key: ClassVar[str] = "code"
    version: ClassVar[int] = 2

    def __init__(self, feed: Feed, context: SourceContext) -> None:
        super().__init__(feed, context)
        self.reader = CodeReader(feed)

    def check(self) -> Found:
        found = super().check()
        checkouts = {e.checkout.root for e in self.listing().files if isinstance(e, TrackedFile)}
        kind = f"{len(checkouts)} git checkouts" if checkouts else "no git checkout, read as plain files"
        return Found(found.units, f"{kind}; {found.detail}")

    # walking

    def listing(self) -> Listing:
        listing = super().listing()
        if listing.failures and not listing.files:
            raise FeedError(f"{self.feed.location}: {listing.failures[0].reason}; {listing.failures[0].remedy}")
        return listing

    def units(self, listing: Listing) -> Iterator[Unit]:
        histories: dict[Path, dict[bytes, FileHistory]] = {}
        for entry in listing.files:
            if isinstance(entry, TrackedFile):
                root = entry.checkout.root
                if root not in histories:
                    histories[root] = read_history(entry.checkout, self.reader.history_commits)[0]
                entry = replace(entry, history=histories[root].get(entry.path_in_checkout, FileHistory()))
            yield Unit(entry.name, (entry,))

    def _walk(self, folder: Path, prefix: str, above: set[tuple[int, int]], found: Listing) -> None:
        if is_checkout(folder):
            known = folder.name if folder.name not in ("", "..") else folder.resolve().name
            own = str(self.feed.options.get("repository", "")) or printable(known)
            self._add_checkout(folder, prefix.rstrip("/") or own, found)
        elif is_bare(folder):
            found.ignored.append(Ignored(prefix.rstrip("/"), "a bare repository has no files; check it out"))
        else:
            super()._walk(folder, prefix, above, found)

    def _add_checkout(self, folder: Path, name: str, found: Listing) -> None:
        try:
            checkout = open_checkout(folder, name)
        except UnreadableError as error:
            found.failures.append(Failure(name, name, str(folder), str(error), error.remedy, error.permanent))
            return
        for tracked in checkout.tracked:
            path = folder / os.fsdecode(tracked.path)
            unit = f"{name}/{printable(os.fsdecode(tracked.path))}"
            if not self._wanted(unit):
                continue
            problem = tracked.problem
            try:
                status = None if problem else path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                problem, status = "tracked, but not in the working tree", None
            except OSError as error:
                found.failures.append(Failure(unit, unit, str(path), f"cannot be looked at ({error.strerror})"))
                continue
            if status is None or not stat.S_ISREG(status.st_mode):
                found.ignored.append(Ignored(unit, problem or "not a regular file"))
                continue
            times = (status.st_mtime_ns, status.st_ctime_ns)
            found.files.append(TrackedFile(path, unit, status.st_size, *times, checkout, tracked.path))

    # reading

    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        entry = unit.files[0]
        history = FileHistory()
        repository = branch = ""
        if isinstance(entry, TrackedFile):
            repository, branch = entry.checkout.name, entry.checkout.branch
            history = entry.history or history
        file = CodeFile(
            entry.name,
            entry.size,
            repository,
            branch,
            history,
            touched_at=datetime.fromtimestamp(entry.mtime_ns // 1_000_000_000, UTC),
        )
        yield from self.reader.read(
            file, lambda: _head(entry), lambda: self.load(entry), lambda data: _is_committed(data, history.blob)
        )


def _head(entry: FileEntry) -> bytes:
    try:
        with entry.path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise UnreadableError(f"cannot be opened ({error.strerror})", permanent=False) from error


def _is_committed(data: bytes, blob: str) -> bool:
    """Whether a file's bytes are those of its last commit, line ends apart."""
    digest = hashlib.sha256 if len(blob) == 64 else hashlib.sha1
    forms = (data, data.replace(b"\r\n", b"\n"))
    return any(digest(b"blob %d\0%b" % (len(form), form)).hexdigest() == blob for form in forms)


FORMS: dict[str, type[Source]] = {"files": CodeFiles, "git": GitClones}
