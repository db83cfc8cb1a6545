"""When and by whom each file of a commit was written, when it began, and how it was called before.

Each file is followed back through the commits by itself: over a merge to the parent that has the same bytes. Where
a file goes from a commit depends on that commit alone, so that a walk may end at a commit that was walked before
and take the rest from there: a history that is kept up to date is the history that a walk from the start would find.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from aps_rag_pipeline.sources.base import UnreadableError

if TYPE_CHECKING:
    from dulwich.diff_tree import RenameDetector, TreeChange
    from dulwich.object_store import BaseObjectStore
    from dulwich.objects import Commit, ObjectID, TreeEntry
    from dulwich.repo import BaseRepo

#: Commits looked at, newest first, to find when and by whom a file was written (about 2 ms each).
HISTORY_COMMITS = 5000
#: Adds times deletes of a commit, squared, above which only equal files count as renamed.
_RENAME_CANDIDATES = 64

#: A few objects can name one another so that they stand for more files than any memory holds.
MOST_FILES = 500_000

Finals = tuple[bytes, ...]


class FileHistory(msgspec.Struct, frozen=True, array_like=True):
    """What the commits tell of one file; empty values where they do not tell. `blob` is its content at the head;
    `former` are the paths it had before, the newest first."""

    blob: str = ""
    commit: str = ""
    author: str = ""
    modified_at: datetime | None = None
    created_at: datetime | None = None
    former: tuple[str, ...] = ()


#: Of a file that the commits tell nothing of.
NO_HISTORY = FileHistory()


class Walk:
    """A walk from a head. `base` is a commit walked before, with the histories of its files as `known`."""

    def __init__(
        self,
        repo: BaseRepo,
        head: ObjectID,
        base: ObjectID | None = None,
        known: Mapping[str, FileHistory] | None = None,
    ) -> None:
        self._store: BaseObjectStore = repo.object_store
        self._cut = repo.get_shallow()
        self._base = base
        self._known: Mapping[str, FileHistory] = known or {}
        self._blobs = files_of(self._store, head)
        self._latest: dict[bytes, tuple[str, str, datetime | None]] = {}
        self._created: dict[bytes, datetime | None] = {}
        self._former: dict[bytes, list[str]] = {}
        self._settled: dict[bytes, FileHistory] = {}
        #: Commits whose files are still followed: name there -> names at the head.
        self._pending: dict[ObjectID, dict[bytes, Finals]] = {}
        self._queue: list[tuple[int, ObjectID]] = []
        self._new = _commits_between(repo, head, base)
        self._problems: list[str] = []
        self._push(head, {path: (path,) for path in self._blobs})

    def run(self, limit: int) -> str:
        """Follow the files through at most `limit` commits; gives what kept it from being complete, if anything."""
        walked = 0
        while self._queue and walked < limit:
            _, commit_id = heapq.heappop(self._queue)
            here = self._pending.pop(commit_id, {})
            here = self._settle(commit_id, here)
            if not here:
                continue
            if commit_id in self._cut:
                self._problems.append("the clone is shallow")
                continue
            walked += 1
            try:
                self._follow(self._commit(commit_id), here)
            except Exception as error:  # a damaged object can make dulwich raise anything
                self._problems.append(f"the history breaks off ({type(error).__name__}: {error})")
        if self._queue:
            self._problems.append(f"only the newest {limit} commits were looked at")
        return self._problems[0] if self._problems else ""

    def result(self) -> dict[bytes, FileHistory]:
        found = {}
        for path, blob in self._blobs.items():
            commit, author, modified = self._latest.get(path, ("", "", None))
            before = self._settled.get(path, NO_HISTORY)
            if not commit:
                commit, author, modified = before.commit, before.author, before.modified_at
            former = dict.fromkeys((*self._former.get(path, ()), *before.former))
            created = self._created.get(path, before.created_at)
            found[path] = FileHistory(blob, commit, author, modified, created, tuple(former))
        return found

    def _push(self, commit_id: ObjectID, files: dict[bytes, Finals]) -> None:
        if not files:
            return
        waiting = self._pending.get(commit_id)
        if waiting is None:
            self._pending[commit_id] = files
            try:
                heapq.heappush(self._queue, (-self._commit(commit_id).commit_time, commit_id))
            except Exception as error:
                del self._pending[commit_id]
                self._problems.append(f"the history breaks off ({type(error).__name__}: {error})")
            return
        for path, finals in files.items():
            waiting[path] = (*waiting.get(path, ()), *finals)

    def _commit(self, commit_id: ObjectID) -> Commit:
        from dulwich.objects import Commit

        commit = self._store[commit_id]
        if not isinstance(commit, Commit):
            raise ValueError(f"{commit_id.decode()} is no commit")
        return commit

    def _settle(self, commit_id: ObjectID, here: dict[bytes, Finals]) -> dict[bytes, Finals]:
        """Take what is known of the files at a commit that was walked before; gives those that are to be followed on.

        Below the base, a file whose last change is found already goes on as the known file of its name does, which
        is so unless it was removed and made anew since the branches parted.
        """
        if self._base is None or (commit_id != self._base and (self._new is None or commit_id in self._new)):
            return here
        left: dict[bytes, Finals] = {}
        for path, finals in here.items():
            known = self._known.get(shown(path))
            for final in finals:
                if known is not None and (commit_id == self._base or final in self._latest):
                    self._settled[final] = known
                else:
                    left[path] = (*left.get(path, ()), final)
        return left

    def _follow(self, commit: Commit, here: dict[bytes, Finals]) -> None:
        if len(commit.parents) > 1:
            self._follow_merge(commit, here)
            return
        parent = self._commit(commit.parents[0]) if commit.parents else None
        moved: list[tuple[bytes, Finals]] = []
        for change in _changes(self._store, parent.tree if parent else None, commit.tree, here):
            new, old = _path(change.new), _path(change.old)
            if new is None or new not in here:
                continue
            finals = here[new]
            self._note(commit, finals)
            if change.type not in ("add", "copy", "rename"):
                continue
            del here[new]
            for final in finals:
                if change.type == "rename" and old is not None:
                    self._former.setdefault(final, []).append(shown(old))
                else:
                    self._created[final] = _moment(commit.author_time)
            if change.type == "rename" and old is not None:
                moved.append((old, finals))
        for old, finals in moved:
            here[old] = (*here.get(old, ()), *finals)
        if commit.parents:
            self._push(commit.parents[0], here)

    def _follow_merge(self, commit: Commit, here: dict[bytes, Finals]) -> None:
        """Of a merge, only what differs from all its parents was written in it."""
        from dulwich.diff_tree import tree_changes

        left = here
        held: dict[bytes, ObjectID] = {}  # the first parent that has a file of this name, with other bytes
        for parent_id in commit.parents:
            if not left:
                return
            parent = self._commit(parent_id)
            other: dict[bytes, str] = {}
            for change in tree_changes(self._store, parent.tree, commit.tree):
                path = _path(change.new)
                if path in left:
                    other[path] = change.type
                    if change.type != "add":
                        held.setdefault(path, parent_id)
            self._push(parent_id, {path: finals for path, finals in left.items() if path not in other})
            left = {path: left[path] for path in other}
        for path, finals in left.items():
            self._note(commit, finals)
            if path in held:
                self._push(held[path], {path: finals})
            else:
                self._created.update(dict.fromkeys(finals, _moment(commit.author_time)))

    def _note(self, commit: Commit, finals: Finals) -> None:
        author = commit.author.decode("utf-8", "replace").split("<")[0].strip()
        for final in finals:
            self._latest.setdefault(final, (commit.id.decode("ascii"), author, _moment(commit.author_time)))


def files_of(store: BaseObjectStore, head: ObjectID) -> dict[bytes, str]:
    """Path and blob of everything in the tree of a commit."""
    return {item.path: item.sha.decode("ascii") for item in entries_of(store, head)}


def entries_of(store: BaseObjectStore, head: ObjectID) -> Iterator[TreeEntry]:
    """The entries of a commit's tree, folders left out.

    Raises:
        ValueError: it is no commit.
        KeyError: a part of the tree is missing.
        UnreadableError: there are more than `MOST_FILES`.
    """
    from dulwich.object_store import iter_tree_contents
    from dulwich.objects import Commit

    commit = store[head]
    if not isinstance(commit, Commit):
        raise ValueError(f"{head.decode('ascii', 'replace')} is no commit")
    for count, entry in enumerate(iter_tree_contents(store, commit.tree)):
        if count >= MOST_FILES:
            raise UnreadableError(f"it holds more than {MOST_FILES} files, which no repository of code does")
        yield entry


def renames(store: BaseObjectStore, old: ObjectID, new: ObjectID) -> dict[bytes, str]:
    """New path → old path of files that were renamed between two commits, whatever happened on the way."""
    from dulwich.objects import Commit

    trees = []
    for commit_id in (old, new):
        commit = store[commit_id]
        if not isinstance(commit, Commit):
            return {}
        trees.append(commit.tree)
    found = {}
    for change in _detector(store).changes_with_renames(*trees):
        made, left = _path(change.new), _path(change.old)
        if change.type == "rename" and made is not None and left is not None:
            found[made] = shown(left)
    return found


def shown(path: bytes) -> str:
    """A path as valid text: bytes that are no UTF-8 are escaped."""
    return path.decode("utf-8", "backslashreplace")


def _commits_between(repo: BaseRepo, head: ObjectID, base: ObjectID | None) -> set[ObjectID] | None:
    """Commits that lead to the head and not to the base; None without a base."""
    if base is None:
        return None
    try:
        return {entry.commit.id for entry in repo.get_walker(include=[head], exclude=[base])}
    except Exception:  # objects are missing somewhere: then every commit is walked as far as it can be
        return None


def _changes(
    store: BaseObjectStore, old: ObjectID | None, new: ObjectID, wanted: dict[bytes, Finals]
) -> list[TreeChange]:
    from dulwich.diff_tree import tree_changes

    changes = list(tree_changes(store, old, new))
    added = any(change.type == "add" and _path(change.new) in wanted for change in changes)
    if old is None or not added or not any(change.type == "delete" for change in changes):
        return changes
    return _detector(store).changes_with_renames(old, new)


def _detector(store: BaseObjectStore) -> RenameDetector:
    from dulwich.diff_tree import RenameDetector

    return RenameDetector(store, max_files=_RENAME_CANDIDATES)


def _path(entry: TreeEntry | None) -> bytes | None:
    return None if entry is None else entry.path


def _moment(seconds: int) -> datetime | None:
    """A commit's time; damaged ones are out of any calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
