"""Asking a git server: HTTP through the polite transport, ssh through the system's program, paths directly.

Only reading is ever done: a request for objects is a POST that may be sent again.
"""

from __future__ import annotations

import io
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from aps_rag_pipeline.settings import Credentials, Network, SettingsError
from aps_rag_pipeline.sources.base import FeedError, UnreadableError
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.net.http import Http

if TYPE_CHECKING:
    import urllib3
    from dulwich.client import GitClient, SSHGitClient
    from dulwich.objects import ObjectID
    from dulwich.refs import Ref
    from dulwich.repo import Repo

_BRANCHES = b"refs/heads/"
#: Tried in this order where a server does not tell its default branch.
_USUAL = (b"main", b"master", b"trunk")
#: A user name that every hosting service takes beside a token, except those that want one of their own.
_TOKEN_USER = "git"
#: user@host:path, as scp has it.
_COPY_STYLE = re.compile(r"[^/:@]+@[^/:@]+:.")


@dataclass(frozen=True)
class Head:
    """The branch that is read and its newest commit; both empty where the repository has no commit."""

    branch: str
    commit: ObjectID | None


class Remote:
    """A repository as its server has it. `branch` is the configured one; the server's default where it is empty.

    Raises:
        SettingsError: an address of a kind that is not read.
    """

    def __init__(
        self, url: str, branch: str, network: Network, credentials: Credentials, ssh_command: str = "ssh"
    ) -> None:
        self.url, self.branch = url, branch
        self.network = network
        self.kind = kind_of(url)
        self._credentials = credentials
        self._ssh_command = ssh_command

    def head(self) -> Head:
        """Ask for branches alone.

        Raises:
            OutageError: no answer, or one that cannot be trusted; or the branch is gone.
        """

        def ask(client: GitClient, path: str) -> Head:
            reply = client.get_refs(path.encode(), ref_prefix=[b"HEAD", _BRANCHES])
            return self._choose(reply.refs, reply.symrefs)

        try:
            return self._asking(ask)
        except FeedError:
            raise
        except UnreadableError as error:  # larger than network.max_response_mb
            raise OutageError(str(error)) from error
        except Exception as error:  # what is no git protocol can make dulwich raise anything
            raise explained(self.url, error) from error

    def fetch(self, repo: Repo) -> Head:
        """Bring the branch's newest commit, with what it needs, into a repository; nothing that it has is sent again.

        Raises:
            OutageError: as in :meth:`head`.
            Exception: of dulwich, for what could be the server's fault or that of the repository here.
        """

        def ask(client: GitClient, path: str) -> Head:
            def wanted(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
                commit = self._choose(refs, {}).commit
                return [] if commit is None or commit in repo.object_store else [commit]

            reply = client.fetch(path, repo, determine_wants=wanted, ref_prefix=[b"HEAD", _BRANCHES])
            return self._choose(reply.refs, reply.symrefs)

        return self._asking(ask)

    def _asking(self, ask: Callable[[GitClient, str], Head]) -> Head:
        if self.kind == "http":
            # Some hosting services tell git clients from browsers by how the agent begins.
            agent = f"git/2.0 {self.network.user_agent}"
            with Http(self.network.model_copy(update={"user_agent": agent})) as http:
                return ask(self._over_http(http), "")
        if self.kind == "ssh":
            return self._over_ssh(ask)
        from dulwich.client import LocalGitClient

        path = Path(unquote(urlsplit(self.url).path)) if self.url.startswith("file:") else Path(self.url)
        return ask(LocalGitClient(), str(path))

    def _over_http(self, http: Http) -> GitClient:
        from dulwich.client import Urllib3HttpGitClient

        user, password = self._credentials.user, ""
        try:
            if self._credentials.token is not None:
                user, password = user or _TOKEN_USER, self._credentials.token.read().get_secret_value()
            elif self._credentials.password is not None:
                password = self._credentials.password.read().get_secret_value()
        except SettingsError as error:
            raise OutageError(f"{self.url}: its credentials cannot be read: {error}") from error
        # dulwich sends them to the address's own origin alone.
        pool = cast("urllib3.PoolManager", _PolitePool(http))
        return Urllib3HttpGitClient(self.url, pool_manager=pool, username=user or None, password=password or None)

    def _over_ssh(self, ask: Callable[[GitClient, str], Head]) -> Head:
        from dulwich.client import get_transport_and_path

        seconds = math.ceil(self.network.timeout_s)
        options = f"-o BatchMode=yes -o ConnectTimeout={seconds} -o ServerAliveInterval={seconds}"
        client, path = get_transport_and_path(self.url, ssh_command=f"{self._ssh_command} {options}")
        watch = _Watch(cast("SSHGitClient", client), self.network.deadline_s)
        try:
            return ask(client, path)
        except Exception as error:
            if watch.ended:
                raise OutageError(
                    f"{self.url}: not done within network.deadline_s ({self.network.deadline_s:g} s)"
                ) from error
            raise
        finally:
            watch.stop()

    def _choose(self, refs: Mapping[Ref, ObjectID | None], symrefs: Mapping[Ref, Ref]) -> Head:
        branches = {name.removeprefix(_BRANCHES): sha for name, sha in refs.items() if name.startswith(_BRANCHES)}
        names = {cast(bytes, name): sha for name, sha in refs.items()}
        if not any(branches.values()) and not names.get(b"HEAD"):
            return Head(self.branch, None)
        if self.branch:
            found = branches.get(self.branch.encode())
            if found is None:
                there = ", ".join(sorted(name.decode("utf-8", "replace") for name in branches)[:8])
                raise OutageError(
                    f"{self.url}: has no branch {self.branch!r}; there are: {there}. Mend `branch`; nothing is removed"
                )
            return Head(self.branch, found)
        told = {cast(bytes, name): cast(bytes, to) for name, to in symrefs.items()}.get(b"HEAD", b"")
        default = told.removeprefix(_BRANCHES)
        if branches.get(default):
            return Head(default.decode("utf-8", "replace"), branches[default])
        head = names.get(b"HEAD")
        alike = [name for name in (*_USUAL, *sorted(branches)) if head is not None and branches.get(name) == head]
        if head is not None:
            return Head(alike[0].decode("utf-8", "replace") if alike else "", head)
        usual = next((name for name in (*_USUAL, *branches) if branches.get(name) and len(branches) == 1), None)
        usual = usual or next((name for name in _USUAL if branches.get(name)), None)
        if usual is None:
            raise OutageError(f"{self.url}: names no default branch; say which to read by `branch`")
        return Head(usual.decode("utf-8", "replace"), branches[usual])


def kind_of(url: str) -> str:
    """`http`, `ssh` or `path`.

    Raises:
        SettingsError: any other.
    """
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https"):
        return "http"
    if scheme in ("ssh", "git+ssh"):
        return "ssh"
    if scheme == "file" or url.startswith("/"):
        return "path"
    if _COPY_STYLE.match(url):
        return "ssh"
    raise SettingsError(
        f"{url!r} is no address of a git repository that can be read; write https://..., ssh://..., user@host:path, "
        "file:///... or an absolute path"
    )


def explained(url: str, error: Exception) -> OutageError:
    """An error of dulwich as an outage that says where and why."""
    from dulwich.errors import NotGitRepository

    if isinstance(error, NotGitRepository):
        return GoneError(f"{url}: no git repository is there; mend `url`")
    return OutageError(f"{url}: what it sent cannot be read as git ({type(error).__name__}: {str(error)[:300]})")


class _Reply(io.BytesIO):
    """What dulwich reads of an answer."""

    def __init__(self, status: int, headers: Mapping[str, str], url: str, content: bytes) -> None:
        super().__init__(content)
        self.status, self.headers, self._url = status, headers, url
        self.content_type = ""
        self.redirect_location = ""

    def geturl(self) -> str:
        return self._url


class _PolitePool:
    """What dulwich asks of a pool manager of urllib3, done by the polite transport."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self.headers: dict[str, str] = {}

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
        **_: Any,
    ) -> _Reply:
        content = body if isinstance(body, bytes | None) else b"".join(body)
        reply = self._http.request(method, url, headers=headers, content=content, repeatable=True)
        kind = reply.headers.get("Content-Type", "")
        if not kind.startswith("application/x-git-"):
            # dulwich would take it for a server of bare files and look for refs in it.
            page = kind.startswith("text/html")
            what = "a web page came, perhaps of a sign-in or a proxy" if page else f"the answer is {kind or 'untyped'}"
            raise OutageError(f"{url.partition('?')[0]}: no git server answers there: {what}")
        return _Reply(reply.status_code, reply.headers, str(reply.url), reply.content)


class _Watch:
    """Ends the ssh program that a client has started when its time is over."""

    def __init__(self, client: SSHGitClient, deadline_s: float) -> None:
        from dulwich.client import SubprocessSSHVendor, SubprocessWrapper

        watch = self
        self.ended = False
        self._started: list[SubprocessWrapper] = []

        class Vendor(SubprocessSSHVendor):
            def run_command(self, *args: Any, **more: Any) -> SubprocessWrapper:
                wrapper = super().run_command(*args, **more)
                watch._started.append(wrapper)
                return wrapper

        client.ssh_vendor = Vendor()
        self._timer = threading.Timer(deadline_s, self._end)
        self._timer.daemon = True
        self._timer.start()

    def _end(self) -> None:
        self.ended = True
        for wrapper in self._started:
            wrapper.proc.kill()

    def stop(self) -> None:
        self._timer.cancel()
        for wrapper in self._started:
            wrapper.proc.kill()
            wrapper.close()
