"""Git checkouts read through dulwich, without a git binary: what is tracked, and when each file last changed.

Nothing of a checkout is executed: no hook, no filter, no configured command.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from aps_rag_pipeline.sources.base import UnreadableError

if TYPE_CHECKING:
    from dulwich.objects import TreeEntry
    from dulwich.repo import Repo
    from dulwich.walk import WalkEntry

log = logging.getLogger(__name__)

#: Commits looked at, newest first, to find when and by whom a file was written (about 2 ms each).
HISTORY_COMMITS = 5000


@dataclass(frozen=True)
class TrackedPath:
    """An entry of the index. `path` is below the checkout's root, as bytes; `problem` says why it is not read."""

    path: bytes
    blob: str
    problem: str = ""


@dataclass(frozen=True)
class Checkout:
    """A worktree as it stands: its folder, the name its records carry, branch ("" when detached) and HEAD commit."""

    root: Path
    name: str
    branch: str
    head: str
    tracked: tuple[TrackedPath, ...] = field(repr=False, compare=False)


@dataclass(frozen=True)
class FileHistory:
    """What the commits tell of one file; empty values where they do not tell. `blob` is its content in HEAD."""

    blob: str = ""
    commit: str = ""
    author: str = ""
    modified_at: datetime | None = None
    created_at: datetime | None = None
    former: tuple[str, ...] = ()


def is_checkout(folder: Path) -> bool:
    """Whether a folder is the top of a worktree: `.git` is a folder, or the file that a linked worktree has."""
    return (folder / ".git").exists()


def is_bare(folder: Path) -> bool:
    return all((folder / part).exists() for part in ("HEAD", "objects", "refs")) and not is_checkout(folder)


def open_checkout(root: Path, name: str) -> Checkout:
    """Read HEAD and the index.

    Raises:
        UnreadableError: damaged, or in a format that cannot be read.
    """
    try:
        return _open(root, name)
    except Exception as error:  # a damaged repository can make dulwich raise anything
        raise UnreadableError(
            f"the git checkout cannot be read ({type(error).__name__}: {error})",
            remedy="run `git fsck` in it. Split and sparse indexes are not read: `git update-index --no-split-index`, "
            "`git sparse-checkout reapply --no-sparse-index`",
            permanent=False,
        ) from error


def _open(root: Path, name: str) -> Checkout:
    from dulwich.refs import HEADREF
    from dulwich.repo import Repo

    with closing(Repo(str(root))) as repo:
        head = repo.refs.read_ref(HEADREF) or b""
        branch = ""
        if head.startswith(b"ref: "):
            branch = head[5:].strip().removeprefix(b"refs/heads/").decode("utf-8", "replace")
        try:
            commit = repo.head().decode("ascii")
        except KeyError:  # a branch without a commit yet
            commit = ""
        if commit and not Path(os.fsdecode(repo.index_path())).exists():
            # Git would take every file for deleted; it is more likely that something went wrong here.
            raise ValueError("there is a commit but no index: nothing is checked out")
        return Checkout(root, name, branch, commit, tuple(_tracked(repo.open_index().items(), root)))


def _tracked(entries: Iterator[tuple[bytes, object]], root: Path) -> Iterator[TrackedPath]:
    from dulwich.index import ConflictedIndexEntry, IndexEntry

    inside: dict[bytes, bool] = {}
    for path, entry in entries:
        if isinstance(entry, ConflictedIndexEntry):
            # In the middle of a merge the working tree holds the file with its markers; it is read as it stands.
            entry = entry.this or entry.other or entry.ancestor
        if not isinstance(entry, IndexEntry):
            continue
        blob = entry.sha.decode("ascii", "replace")
        yield TrackedPath(path, blob, _problem(path, entry.mode, entry.skip_worktree, root, inside))


def _problem(path: bytes, mode: int, skipped: bool, root: Path, inside: dict[bytes, bool]) -> str:
    if stat.S_IFMT(mode) == 0o160000:
        return "a submodule; check it out as a repository of its own beside this one"
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if skipped or stat.S_ISDIR(mode):
        return "left out of the working tree by a sparse checkout"
    if b".." in path.split(b"/") or path.startswith(b"/"):
        return "a path that leads out of the checkout"
    folder = os.path.dirname(path)
    if folder not in inside:
        # A tracked folder may have been replaced by a link to somewhere else.
        real = Path(os.path.realpath(os.path.join(os.fsencode(root), folder)).decode("utf-8", "surrogateescape"))
        inside[folder] = real.is_relative_to(os.path.realpath(root))
    return "" if inside[folder] else "a link that leads out of the checkout"


def read_history(checkout: Checkout, limit: int = HISTORY_COMMITS) -> tuple[dict[bytes, FileHistory], str]:
    """One walk over the commits, newest first, following renames; and what kept it from being complete, if anything."""
    from dulwich.repo import Repo

    if not checkout.head:
        return {}, "there is no commit yet"
    walk = _Walk()
    problem = ""
    try:
        with closing(Repo(str(checkout.root))) as repo:
            walk.start(repo)
            problem = walk.run(repo, limit)
    except Exception as error:
        # A clone without all trees, or a damaged object: the files themselves are still there to be read.
        problem = f"the history breaks off ({type(error).__name__}: {error})"
    if problem:
        log.warning("%s: %s; times of older files are those on disk", checkout.root, problem)
    return walk.result(), problem


class _Walk:
    """The state of a walk: the name by which each file of HEAD goes at the point reached, and what is known of it."""

    def __init__(self) -> None:
        self.blobs: dict[bytes, str] = {}
        self.current: dict[bytes, bytes] = {}  # name at this point of the history -> name in HEAD
        self.latest: dict[bytes, tuple[str, str, datetime | None]] = {}
        self.created: dict[bytes, datetime | None] = {}
        self.former: dict[bytes, list[str]] = {}

    def start(self, repo: Repo) -> None:
        from dulwich.object_store import iter_tree_contents
        from dulwich.objects import Commit

        commit = repo[repo.head()]
        if not isinstance(commit, Commit):
            raise ValueError("HEAD is no commit")
        for item in iter_tree_contents(repo.object_store, commit.tree):
            self.blobs[item.path] = item.sha.decode("ascii")
        self.current = {path: path for path in self.blobs}

    def run(self, repo: Repo, limit: int) -> str:
        from dulwich.diff_tree import RenameDetector

        cut = repo.get_shallow()
        walker = repo.get_walker(max_entries=limit, rename_detector=RenameDetector(repo.object_store, max_files=64))
        walked = 0
        for entry in walker:
            if not self.current:
                return ""
            if entry.commit.id in cut:
                return "the clone is shallow"
            self._commit(entry)
            walked += 1
        return f"only the newest {limit} commits were looked at" if walked >= limit and self.current else ""

    def _commit(self, entry: WalkEntry) -> None:
        commit = entry.commit
        when = _moment(commit.author_time)
        author = commit.author.decode("utf-8", "replace").split("<")[0].strip()
        for each in entry.changes():
            # Of a merge, only what differs from all its parents was written in it.
            change = each[0] if isinstance(each, list) else each
            if change is None:
                continue
            new, old = _path(change.new), _path(change.old)
            final = self.current.get(new) if new is not None else None
            if final is None or new is None:
                continue
            self.latest.setdefault(final, (commit.id.decode("ascii"), author, when))
            if len(commit.parents) > 1 or change.type not in ("add", "copy", "rename"):
                continue
            del self.current[new]
            if change.type == "rename" and old is not None:
                self.former.setdefault(final, []).append(old.decode("utf-8", "backslashreplace"))
                self.current.setdefault(old, final)
            else:
                self.created[final] = when

    def result(self) -> dict[bytes, FileHistory]:
        found = {}
        for path, blob in self.blobs.items():
            commit, author, modified = self.latest.get(path, ("", "", None))
            former = tuple(self.former.get(path, ()))
            found[path] = FileHistory(blob, commit, author, modified, self.created.get(path), former)
        return found


def _path(entry: TreeEntry | None) -> bytes | None:
    return None if entry is None else entry.path


def _moment(seconds: int) -> datetime | None:
    """A commit's time; damaged ones are out of any calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
