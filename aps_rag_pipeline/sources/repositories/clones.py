"""Bare clones in a feed's scratch folder. A clone is always whole: it is made aside and renamed into place, grows by
whole packs, and is thrown away and made anew as soon as anything in it cannot be read."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aps_rag_pipeline.sources.base import FeedError, UnreadableError
from aps_rag_pipeline.sources.live import digest
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.repositories.history import entries_of
from aps_rag_pipeline.sources.repositories.peeking import Peek, peek
from aps_rag_pipeline.sources.repositories.transport import Remote, explained

if TYPE_CHECKING:
    from dulwich.objects import ObjectID, TreeEntry
    from dulwich.refs import Ref
    from dulwich.repo import Repo

log = logging.getLogger(__name__)

_DAMAGED, _UNTIDY = "found-damaged", "untidy"
_HEAD = b"refs/heads/read"
#: A fetch adds a pack; so many are made one.
_MOST_PACKS = 40


@dataclass
class Clone:
    """An open clone. `entries` are the files of `commit`, read whole."""

    folder: Path
    repo: Repo
    branch: str
    commit: ObjectID
    entries: list[TreeEntry]

    def blob(self, sha: str) -> bytes:
        """The bytes of a file.

        Raises:
            OutageError: they are damaged; the next scan clones anew.
        """
        from dulwich.objects import Blob, ObjectID

        with self._suspected():
            _, data = self.repo.object_store.get_raw(ObjectID(sha.encode("ascii")))
            if len(sha) == 40 and Blob.from_string(data).id != sha.encode("ascii"):
                raise ValueError("its bytes are not those it is named after")
        return data

    def peek(self, sha: str, head_bytes: int) -> Peek | None:
        """How large a file is and how it begins, without unpacking it; None if that cannot be told.

        Raises:
            OutageError: as in :meth:`blob`.
        """
        from dulwich.objects import ObjectID, hex_to_sha

        with self._suspected():
            return peek(self.repo.object_store.packs, hex_to_sha(ObjectID(sha.encode("ascii"))), head_bytes)

    @contextlib.contextmanager
    def _suspected(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a damaged pack can make dulwich raise anything
            (self.folder / _DAMAGED).touch()
            raise OutageError(f"the clone here is damaged ({error}); it is made anew with the next sync") from error

    def reaches(self, commit: ObjectID) -> bool:
        """Whether the history of the head holds a commit."""
        from dulwich.graph import can_fast_forward

        try:
            return commit in self.repo.object_store and can_fast_forward(self.repo, commit, self.commit)
        except KeyError:
            return False

    def close(self) -> None:
        """Drop what the history no longer reaches, if it was rewritten, and let go."""
        from dulwich.gc import garbage_collect

        with contextlib.closing(self.repo):
            if not (self.folder / _UNTIDY).exists() and len(self.repo.object_store.packs) <= _MOST_PACKS:
                return
            try:
                garbage_collect(self.repo, grace_period=None)
                (self.folder / _UNTIDY).unlink(missing_ok=True)
            except Exception:
                log.warning("%s: cannot be tidied; it is cloned anew", self.folder, exc_info=True)
                (self.folder / _DAMAGED).touch()


class Scratch:
    """The clones of a feed. One process at a time."""

    def __init__(self, folder: Path, remotes: Iterable[Remote]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise FeedError(
                f"{folder}: another sync of this feed is at work here; try again when it is done"
            ) from error
        wanted = {self._name(remote) for remote in remotes}
        for path in folder.iterdir():
            if path.is_dir() and path.name not in wanted:
                shutil.rmtree(path, ignore_errors=True)  # of a repository no longer named, or half-written

    def bring(self, remote: Remote) -> Clone | None:
        """The clone of a repository at the newest commit of its branch; None if there is no commit.

        Raises:
            FeedError: it cannot be had.
        """
        folder = self._folder / self._name(remote)
        if folder.exists() and not (folder / _DAMAGED).exists():
            try:
                return _update(folder, remote)
            except FeedError:
                raise
            except UnreadableError as error:
                raise OutageError(f"{remote.url}: {error}") from error
            except Exception as error:  # of dulwich: the clone here is damaged, or the answer was
                log.warning("%s: cannot be brought up to date (%s: %s); it is cloned anew", folder, type(error), error)
        try:
            return _anew(folder, remote)
        except FeedError:
            raise
        except UnreadableError as error:
            raise OutageError(f"{remote.url}: {error}") from error
        except Exception as error:
            raise explained(remote.url, error) from error

    def close(self) -> None:
        os.close(self._lock)

    def _name(self, remote: Remote) -> str:
        slug = re.sub(r"[^A-Za-z0-9]+", "-", remote.url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git"))
        return f"{slug.strip('-')[:40]}-{digest(remote.url)[:12]}.git"


def _update(folder: Path, remote: Remote) -> Clone | None:
    from dulwich.repo import Repo

    repo = Repo(str(folder))
    try:
        before = repo.refs[_ref()]
        repo.object_store[before]
        head = remote.fetch(repo)
        if head.commit is None:
            repo.close()
            return None
        clone = Clone(folder, repo, head.branch, head.commit, list(entries_of(repo.object_store, head.commit)))
        if not clone.reaches(before):
            # What was taken out of the history, a password perhaps, must not stay here.
            (folder / _UNTIDY).touch()
        repo.refs[_ref()] = head.commit
    except BaseException:
        repo.close()
        raise
    return clone


def _anew(folder: Path, remote: Remote) -> Clone | None:
    from dulwich.repo import Repo

    aside, old = folder.with_name(f".new-{folder.name}"), folder.with_name(f".old-{folder.name}")
    for path in (aside, old):
        shutil.rmtree(path, ignore_errors=True)
    try:
        with contextlib.closing(Repo.init_bare(str(aside), mkdir=True)) as repo:
            head = remote.fetch(repo)
            if head.commit is None:
                return None
            list(entries_of(repo.object_store, head.commit))
            repo.refs[_ref()] = head.commit
        if folder.exists():
            os.rename(folder, old)
        os.rename(aside, folder)
    finally:
        for path in (aside, old):
            shutil.rmtree(path, ignore_errors=True)
    repo = Repo(str(folder))
    return Clone(folder, repo, head.branch, head.commit, list(entries_of(repo.object_store, head.commit)))


def _ref() -> Ref:
    from dulwich.refs import Ref

    return Ref(_HEAD)
