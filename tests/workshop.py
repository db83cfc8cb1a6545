"""A git repository on disk for tests, and a server of such, made without a git binary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dulwich.repo import Repo
from dulwich.server import BackendRepo, DictBackend
from dulwich.web import make_wsgi_chain

DAY = 86400
START = int(datetime(2024, 3, 1, 12, tzinfo=UTC).timestamp())
ADA, BEN = b"Ada Ring <ada@aps.example>", b"Ben Booster <ben@aps.example>"


class Workshop:
    """Makes commits without a git binary."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True)
        self.root = root
        self.repo = Repo.init(str(root), default_branch=b"main")

    def write(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def stage(self, *names: str) -> None:
        self.repo.get_worktree().stage(list(names))

    def commit(self, files: dict[str, bytes], day: int, author: bytes = ADA, gone: tuple[str, ...] = ()) -> str:
        self.write(files)
        for name in gone:
            (self.root / name).unlink()
        self.stage(*files, *gone)
        when = START + day * DAY
        made = self.repo.get_worktree().commit(
            message=b"change", author=author, committer=author, commit_timestamp=when, author_timestamp=when,
            commit_timezone=0, author_timezone=0,
        )  # fmt: skip
        return made.decode()


def git_server(repositories: Mapping[str, BackendRepo], user: str = "", password: str = "") -> Callable[..., Any]:
    """dulwich's own git server over HTTP as a WSGI application; with a user, it asks for him."""
    from werkzeug import Request

    chain = make_wsgi_chain(DictBackend({f"/{name}": repo for name, repo in repositories.items()}))

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        given = Request(environ).authorization
        if user and (given is None or (given.username, given.password) != (user, password)):
            start_response("401 Unauthorized", [("WWW-Authenticate", "Basic realm=git")])
            return [b"sign in first"]
        said: list[Any] = []
        body: list[bytes] = []

        def start(status: str, headers: list[tuple[str, str]], *_: Any) -> Callable[[bytes], None]:
            said[:] = [status, headers]
            return body.append

        body += list(chain(environ, start))
        start_response(*said)
        return [b"".join(body)]

    return application
