"""Source `code`, form `git`: repositories by their addresses, cloned into the feed's own folder and read at the head of
a branch; nothing is checked out and nothing of a repository is executed.

`url` is one repository. Several are named by `options.repositories`, a list of `{url, name, branch}`, whose addresses
may continue the feed's `url`. Other options: `repository` and `branch` (name and branch of the one repository),
`ssh_command`, and those of the file form, `max_text_kb` and `history_commits`.

Nothing can be missed: every file of the head's tree is a unit, and its token holds the blob itself and all that the
commits say of it. What the commits say is carried on from one head to the next; where a history was rewritten, it is
walked again.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from aps_rag_pipeline.settings import Feed, SettingsError
from aps_rag_pipeline.sources.base import Failure, FeedError, Found, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.files import matches
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan, digest
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.repositories.clones import Clone, Scratch
from aps_rag_pipeline.sources.repositories.files import HEAD_BYTES, CodeFile, CodeReader
from aps_rag_pipeline.sources.repositories.history import NO_HISTORY, FileHistory, Walk, renames, shown
from aps_rag_pipeline.sources.repositories.transport import Remote

if TYPE_CHECKING:
    from dulwich.objects import ObjectID

log = logging.getLogger(__name__)

#: Raise it when a walk would now find something else: every history is then walked again.
_WALK_VERSION = 1
_AT_A_TIME = 4
_ALL_FILES = ("*",)


class RepositoryOption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A repository of a feed. `branch` is the server's default when left out, `name` the last step of the address."""

    url: str
    name: str = ""
    branch: str = ""


class GitOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    repositories: tuple[RepositoryOption, ...] = ()
    repository: str = ""
    branch: str = ""
    ssh_command: str = "ssh"
    max_text_kb: Any = None  # checked by the reader
    history_commits: Any = None


class Notes(msgspec.Struct, array_like=True):
    """What is known of a repository at the head that was read last."""

    url: str
    branch: str
    head: str
    rules: str
    aliases: tuple[str, ...]
    files: dict[str, FileHistory]


@dataclass(frozen=True)
class GitFile(Listed):
    """A file of a clone."""

    blob: str
    file: CodeFile


@dataclass(frozen=True)
class Repository:
    name: str
    remote: Remote


class GitClones(LiveSource[GitFile]):
    """Repositories as clones; each file at the head is a unit."""

    key: ClassVar[str] = "code"
    version: ClassVar[int] = 1
    parallel: ClassVar[int] = 1
    look_every = timedelta(0)  # a look costs one or two small requests a repository

    def __init__(self, feed: Feed, context: SourceContext) -> None:
        super().__init__(feed, context)
        self.reader = CodeReader(feed)
        self.repositories = _repositories(feed, context)

    def scan(self, memory: Memory) -> GitScan:
        return GitScan(self, memory)

    def fingerprint(self) -> str | None:
        """Names and heads: nothing of a feed moves without one of them."""
        lines = []
        for repository in self.repositories:
            try:
                head = repository.remote.head()
            except FeedError:
                if len(self.repositories) == 1:
                    raise
                return None
            lines.append(f"{repository.name}|{repository.remote.url}|{head.branch}|{head.commit!r}")
        return digest(*lines)

    def check(self) -> Found:
        heads = []
        for repository in self.repositories:
            head = repository.remote.head()
            if head.commit is None:
                raise FeedError(f"{repository.remote.url}: answers, but has no commit yet")
            heads.append(f"{repository.name} ({head.branch or 'no branch'} at {head.commit.decode()[:10]})")
        return Found(len(heads), f"{len(heads)} repositories answer: {', '.join(heads)}")


class GitScan(Scan[GitFile]):
    """One look at all repositories of a feed."""

    def __init__(self, source: GitClones, memory: Memory) -> None:
        super().__init__(source.feed, source.context, memory)
        self._source = source
        self._clones: dict[str, Clone] = {}
        self._scratch = Scratch(source.context.scratch, [r.remote for r in source.repositories])

    def units(self) -> Iterator[GitFile | Failure | Ignored]:
        repositories = self._source.repositories
        known = self._recall()
        kept: dict[str, Any] = {}
        problems: list[FeedError] = []
        with ThreadPoolExecutor(min(_AT_A_TIME, len(repositories)), f"clone-{self.feed.name}") as pool:
            brought = list(pool.map(self._bring, repositories))
        for repository, clone in zip(repositories, brought, strict=True):
            before = known.get(repository.name) or _renamed(repository, known, self._names())
            try:
                if isinstance(clone, FeedError):
                    raise clone
                notes = self._look(repository, clone, before)
            except FeedError as error:
                problems.append(error)
                if len(problems) == len(repositories):
                    raise
                if before is not None:
                    kept[repository.name] = _plain(before)
                remedy = "its files are kept as they are; it is tried again with the next sync"
                yield Failure(repository.name, repository.name, repository.remote.url, str(error), remedy)
                continue
            if notes is not None and clone is not None:
                kept[repository.name] = _plain(notes)
                yield from self._list(repository, clone, notes)
        self.memory.notes = {"repositories": kept}

    def read(self, unit: GitFile) -> Iterator[Upsert | Failure | Ignored]:
        clone, limit = self._clones[unit.file.repository], self.context.limits.max_file_mb
        seen = clone.peek(unit.blob, HEAD_BYTES)
        if seen is not None and seen.largest > limit * 1e6:
            # Loading it to find out that it is too large could take all memory there is.
            size, head, data = seen.size, seen.head, None
            needed = seen.largest
        else:
            data = clone.blob(unit.blob)
            size = needed = len(data)
            head = data[:HEAD_BYTES]

        def load() -> bytes:
            if data is None or needed > limit * 1e6:
                reason = f"{needed / 1e6:.0f} MB, more than limits.max_file_mb ({limit:g})"
                raise UnreadableError(reason, remedy="raise the limit or split it")
            return data

        file = replace(unit.file, size=size)
        yield from self._source.reader.read(file, lambda: head, load, lambda _: True)

    def alive(self) -> bool:
        """Reading asks nobody."""
        return True

    def close(self) -> None:
        for clone in self._clones.values():
            clone.close()
        self._scratch.close()

    def _bring(self, repository: Repository) -> Clone | FeedError | None:
        try:
            clone = self._scratch.bring(repository.remote)
        except FeedError as error:
            return error
        if clone is not None:
            self._clones[repository.name] = clone
        return clone

    def _names(self) -> frozenset[str]:
        return frozenset(repository.name for repository in self._source.repositories)

    def _recall(self) -> dict[str, Notes]:
        try:
            return msgspec.convert(self.memory.notes.get("repositories", {}), dict[str, Notes])
        except msgspec.ValidationError:  # of an older version: the histories are walked again
            return {}

    def _look(self, repository: Repository, clone: Clone | None, before: Notes | None) -> Notes | None:
        """What is to be known of a repository from now on."""
        if clone is None or not clone.entries:
            if before is not None and before.files:
                raise OutageError(
                    f"{repository.remote.url}: is empty, but {len(before.files)} files were read from it before; "
                    "nothing is removed. If they are really gone, take it out of facility.yaml"
                )
            return None
        rules = f"{_WALK_VERSION}:{self._source.reader.history_commits}"
        head = clone.commit.decode("ascii")
        aliases = before.aliases if before else ()
        if before is None or (before.head, before.rules) != (head, rules):
            files = _histories(clone, before, rules, self._source.reader.history_commits)
        else:
            files = before.files
        return Notes(repository.remote.url, clone.branch, head, rules, aliases, files)

    def _list(self, repository: Repository, clone: Clone, notes: Notes) -> Iterator[GitFile | Ignored]:
        seen: set[str] = set()
        for entry in clone.entries:
            path = shown(entry.path)
            name = f"{repository.name}/{path}"
            if not matches(name, self.feed.include or _ALL_FILES) or matches(name, self.feed.exclude):
                continue
            problem = _problem(entry.mode) if name not in seen else "another file's name looks the same"
            if problem:
                yield Ignored(name, problem)
                continue
            seen.add(name)
            history = notes.files.get(path, NO_HISTORY)
            file = CodeFile(name, 0, repository.name, clone.branch, history, notes.aliases)
            state = digest(entry.sha.decode(), entry.mode, clone.branch, *notes.aliases, msgspec.json.encode(history))
            yield GitFile(name, state, entry.sha.decode("ascii"), file)


def _histories(clone: Clone, before: Notes | None, rules: str, limit: int) -> dict[str, FileHistory]:
    """What the commits tell of the files at the head, from what they told of those at the head before."""
    from dulwich.objects import ObjectID

    store = clone.repo.object_store
    old = ObjectID(before.head.encode()) if before else None
    files = before.files if before else {}
    base: ObjectID | None = None
    moved: dict[bytes, str] = {}
    if before and old and old in store:
        if before.rules == rules and clone.reaches(old):
            base = old
        moved = renames(store, old, clone.commit)
    walk = Walk(clone.repo, clone.commit, base, files)
    problem = walk.run(limit)
    if problem:
        log.warning("%s: %s; older files have no times", clone.folder, problem)
    found = {}
    for path, history in walk.result().items():
        name = shown(path)
        former = list(history.former)
        if path in moved:  # also where the commits in between hide it, or were rewritten
            former += [moved[path], *files.get(moved[path], NO_HISTORY).former]
        if base is None and name in files:
            former += files[name].former
        unique = tuple(old for old in dict.fromkeys(former) if old != name)
        found[name] = history if unique == history.former else msgspec.structs.replace(history, former=unique)
    return found


def _plain(notes: Notes) -> Any:
    """Notes as the cursor will give them back."""
    return msgspec.json.decode(msgspec.json.encode(notes))


def _problem(mode: int) -> str:
    if stat.S_IFMT(mode) == 0o160000:
        return "a submodule; name its repository among options.repositories"
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    return "" if stat.S_ISREG(mode) else "not a regular file"


def _renamed(repository: Repository, known: dict[str, Notes], names: frozenset[str]) -> Notes | None:
    """What is known of a repository that goes by another name now."""
    for name, notes in known.items():
        if notes.url == repository.remote.url and name not in names:
            return Notes(notes.url, notes.branch, notes.head, notes.rules, (name, *notes.aliases), notes.files)
    return None


def _repositories(feed: Feed, context: SourceContext) -> tuple[Repository, ...]:
    try:
        options = msgspec.convert(feed.options, GitOptions)
    except msgspec.ValidationError as error:
        raise SettingsError(f"feed {feed.name}: options: {error}") from error
    asked = options.repositories
    if not asked:
        if not feed.url:
            raise SettingsError(f"feed {feed.name}: name a repository by `url`, or several by `options.repositories`")
        asked = (RepositoryOption(feed.url, options.repository, options.branch),)
    elif options.repository or options.branch:
        raise SettingsError(f"feed {feed.name}: with options.repositories, each has its own `name` and `branch`")
    found: dict[str, Repository] = {}
    for option in asked:
        url = option.url
        if options.repositories and feed.url and not _is_whole(url):
            url = f"{feed.url.rstrip('/')}/{url}"
        name = option.name or url.rstrip("/").replace(":", "/").rsplit("/", 1)[-1].removesuffix(".git")
        try:
            remote = Remote(url, option.branch, context.network, feed.credentials, options.ssh_command)
        except SettingsError as error:
            raise SettingsError(f"feed {feed.name}: {error}") from error
        other = next(
            (known for known in found if f"{known}/".startswith(f"{name}/") or f"{name}/".startswith(f"{known}/")), None
        )
        if not name or other is not None:
            raise SettingsError(f"feed {feed.name}: {url}: its name {name!r} is taken or empty; give it another `name`")
        found[name] = Repository(name, remote)
    _check_secrets(feed, [repository.remote for repository in found.values()])
    return tuple(found.values())


def _is_whole(url: str) -> bool:
    return "://" in url or url.startswith("/") or ":" in url.partition("/")[0]


def _check_secrets(feed: Feed, remotes: list[Remote]) -> None:
    if any(urlsplit(remote.url).password for remote in remotes):
        raise SettingsError(f"feed {feed.name}: an address has a password in it; put it into `credentials`")
    if feed.credentials.password is None and feed.credentials.token is None:
        return
    servers = {urlsplit(remote.url)[:2] for remote in remotes if remote.kind == "http"}
    if len(servers) > 1:
        raise SettingsError(f"feed {feed.name}: its credentials would go to several servers; make one feed for each")
    if not servers:
        raise SettingsError(f"feed {feed.name}: ssh signs in by key, and a path needs no credentials; remove them")
