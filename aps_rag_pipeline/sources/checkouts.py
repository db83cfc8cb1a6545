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
from pathlib import Path

from aps_rag_pipeline.sources.base import UnreadableError
from aps_rag_pipeline.sources.repositories.history import HISTORY_COMMITS, FileHistory, Walk

log = logging.getLogger(__name__)


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
    from dulwich.objects import ObjectID
    from dulwich.repo import Repo

    if not checkout.head:
        return {}, "there is no commit yet"
    found: dict[bytes, FileHistory] = {}
    try:
        with closing(Repo(str(checkout.root))) as repo:
            walk = Walk(repo, ObjectID(checkout.head.encode()))
            problem = walk.run(limit)
            found = walk.result()
    except Exception as error:
        # A damaged object: the files themselves are still there to be read.
        problem = f"the history cannot be read ({type(error).__name__}: {error})"
    if problem:
        log.warning("%s: %s; times of older files are those on disk", checkout.root, problem)
    return found, problem
