"""A database that is only read, patiently: one connection, one snapshot where the database gives one, and an end to
every wait."""

from __future__ import annotations

import math
import re
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.content.text import decode
from aps_rag_pipeline.settings import Feed, Network
from aps_rag_pipeline.sources.base import FeedError, SourceContext
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.options import read_secret

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine, Executable

#: What makes a new session of other databases read-only. A database that is not named here is protected by the rights
#: of the user, by the shape of the query, and by never being committed to.
_READ_ONLY = {
    "mysql": "set session transaction read only",
    "mariadb": "set session transaction read only",
    "oracle": "set transaction read only",
}
#: Classes of SQLSTATE that tell of the server's plight, not of the query: connection, rollback, resources, operator.
_PLIGHT = ("08", "40", "53", "55", "57", "58")
_SQLITE_PLIGHT = frozenset((
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOTADB,
))  # fmt: skip
_SECRET_ARGUMENT = re.compile(r"passw|pwd|secret|token", re.IGNORECASE)
_LONGEST_MESSAGE = 600


class Database:
    """The database of a feed. Any error drops the connection, and the next statement opens another.

    Raises:
        FeedError: the address cannot be used, or its driver is not installed.
    """

    def __init__(self, feed: Feed, context: SourceContext) -> None:
        self._network: Network = context.network
        self._zone = context.zone.key
        self._encoding = feed.encoding
        place = feed.credentials.password
        self._password = read_secret(feed, place) if place is not None else ""
        self._connection: Connection | None = None
        self._cut = False
        self.file, url = _address(feed, self._password)
        #: The address as people may see it.
        self.where = str(self.file) if self.file else feed.url
        self.engine = self._engine(url)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    def rows(self, statement: Executable, page: int) -> Iterator[Sequence[Any]]:
        """The rows of a statement, streamed by pages.

        Raises:
            OutageError: the database is away, busy or silent.
            FeedError: it refuses the statement.
        """
        with self._step() as connection:
            result = connection.execute(statement, execution_options={"yield_per": page})
        try:
            while True:
                with self._step():
                    rows = result.fetchmany(page)
                if not rows:
                    return
                yield from rows
        finally:
            with suppress(Exception):  # of a connection that is gone, nothing can be closed
                result.close()

    def names(self, statement: Executable) -> list[str]:
        """The names of a statement's columns."""
        with self._step() as connection, connection.execute(statement) as result:
            return list(map(str, result.keys()))

    def close(self) -> None:
        self._drop()
        self.engine.dispose()

    @contextmanager
    def _step(self) -> Iterator[Connection]:
        """One wait for the database, of `deadline_s` at most."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            connection = self._connection or self._open()
            with self._patience(connection):
                yield connection
        except SQLAlchemyError as error:
            self._drop()
            raise self._told(error) from error
        except FeedError:
            self._drop()
            raise

    def _open(self) -> Connection:
        self._cut = False
        if self.file is not None and not self.file.is_file():
            raise OutageError(f"{self.where}: no such file; mend `location`, or `url` where the database is no file")
        connection = self.engine.connect()
        self._connection = connection
        from sqlalchemy import text

        if self.dialect == "postgresql":
            with self._patience(connection):
                connection.execute(text(_POSTGRESQL_SESSION), self._limits())
        elif statement := _READ_ONLY.get(self.dialect):
            with self._patience(connection):
                connection.execute(text(statement))
        return connection

    def _limits(self) -> dict[str, str]:
        return {
            "zone": self._zone,
            "lock": f"{math.ceil(self._network.timeout_s * 1000)}ms",
            "statement": f"{math.ceil(self._network.deadline_s * 1000)}ms",
        }

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it may be the connection that failed
                connection.invalidate()
            with suppress(Exception):
                connection.close()

    @contextmanager
    def _patience(self, connection: Connection) -> Iterator[None]:
        """Cut the connection when the database has been silent for too long: the server's own limits do not help where
        it is the server, or the way to it, that hangs."""

        def give_up() -> None:
            self._cut = True
            with suppress(Exception):  # it may have answered just now
                cut()

        cut = _cutter(connection.connection.dbapi_connection)
        timer = threading.Timer(self._network.deadline_s + min(self._network.timeout_s, 1), give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _engine(self, url: URL) -> Engine:
        from sqlalchemy import create_engine, event
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError
        from sqlalchemy.pool import NullPool

        if self.file is not None:
            return create_engine("sqlite://", creator=self._open_file, poolclass=NullPool)
        more: dict[str, Any] = {}
        if url.get_backend_name() == "postgresql":
            more["isolation_level"] = "REPEATABLE READ"
            more["execution_options"] = {"postgresql_readonly": True}
            if url.get_driver_name() == "psycopg":
                more["connect_args"] = {"connect_timeout": math.ceil(self._network.timeout_s)}
        try:
            engine = create_engine(url, poolclass=NullPool, **more)
        except ModuleNotFoundError as error:
            raise FeedError(f"{self.where}: the driver is missing; install the package {error.name}") from error
        except (NoSuchModuleError, ArgumentError, TypeError, ValueError) as error:
            raise FeedError(f"{self.where}: no address of a database ({self._masked(error)}); mend `url`") from error
        if url.get_driver_name() == "psycopg":
            event.listen(engine, "connect", _read_any_date)
        return engine

    def _open_file(self) -> sqlite3.Connection:
        """SQLite, read-only by the way it is opened and once more by a pragma, which an attached file obeys as well."""
        assert self.file is not None
        connection = sqlite3.connect(
            f"{self.file.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=self._network.timeout_s,
            check_same_thread=False,  # who gives up waiting is another thread
        )
        connection.text_factory = self._text
        connection.execute("pragma query_only = on")
        return connection

    def _text(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:  # SQLite stores whatever bytes it was given
            return decode(data, self._encoding)

    def _told(self, error: Exception) -> FeedError:
        """What the database says, without the statement that SQLAlchemy adds and without the password."""
        from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, TimeoutError

        if self._cut:
            return OutageError(f"{self.where}: no answer within network.deadline_s ({self._network.deadline_s:g} s)")
        original = getattr(error, "orig", None) or error
        said = self._masked(original)
        state = str(getattr(original, "sqlstate", None) or "")
        code = getattr(original, "sqlite_errorcode", None)
        plight = isinstance(error, OperationalError | InterfaceError | TimeoutError)
        if state:
            plight = state.startswith(_PLIGHT)
        elif code is not None:
            plight = code & 0xFF in _SQLITE_PLIGHT
        if plight or (isinstance(error, DBAPIError) and error.connection_invalidated):
            return OutageError(f"{self.where}: {said}")
        return FeedError(f"{self.where}: the database refuses the query: {said}; mend `options.query`")

    def _masked(self, error: object) -> str:
        said = " ".join(str(error).split())[:_LONGEST_MESSAGE]
        return said.replace(self._password, "***") if self._password else said


#: Settings of one transaction, so that neither the server's configuration nor its zone shows in what is read.
_POSTGRESQL_SESSION = """select set_config('TimeZone', :zone, true), set_config('DateStyle', 'ISO, MDY', true),
set_config('IntervalStyle', 'postgres', true), set_config('lock_timeout', :lock, true),
set_config('statement_timeout', :statement, true)"""


def _address(feed: Feed, password: str) -> tuple[Path | None, URL]:
    """The SQLite file of a feed, or None, and its address."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(feed.url or "sqlite://")
    except (ArgumentError, ValueError) as error:
        raise FeedError(
            f"feed {feed.name}: `url` is no address of a database; write it like postgresql://host/database"
        ) from error
    if url.password or any(_SECRET_ARGUMENT.search(f"{k}={v}") for k, v in url.query.items()):
        raise FeedError(f"feed {feed.name}: `url` has a secret in it; put it into `credentials.password`")
    if url.get_backend_name() == "sqlite":
        return _sqlite_file(feed, url), url
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if feed.credentials.user:
        url = url.set(username=feed.credentials.user)
    return None, url.set(password=password) if password else url


def _sqlite_file(feed: Feed, url: URL) -> Path:
    if url.query or (url.database or "").startswith((":", "file:")):
        raise FeedError(f"feed {feed.name}: name the SQLite file by `location` and leave `url` out")
    if not url.database:
        if feed.location.is_dir():
            raise FeedError(f"feed {feed.name}: name the database by `url`, or an SQLite file by `location`")
        return feed.location
    path = Path(url.database)
    if not path.is_absolute():
        raise FeedError(
            f"feed {feed.name}: {feed.url} would start wherever the program does; write `location: {path}`, which "
            "starts at the folder of facility.yaml, and leave `url` out"
        )
    return path


def _cutter(driver: Any) -> Callable[[], object]:
    """How to end a wait from another thread: SQLite and Oracle can be asked, elsewhere the socket is shut."""
    for name in ("interrupt", "cancel"):
        if name == "cancel" and callable(getattr(driver, "fileno", None)):
            break  # psycopg cancels over a second connection, which may hang as well
        if callable(method := getattr(driver, name, None)):
            return lambda: method()
    return lambda: _shut(driver)


def _shut(driver: Any) -> None:
    with socket.socket(fileno=socket.dup(driver.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


def _read_any_date(driver: Any, _record: object) -> None:
    """Hand on as text the dates that Python has none for: infinity, years before Christ or above 9999. One such row
    must not cost the whole listing."""
    import psycopg
    from psycopg.types import datetime as loaders

    def lenient(loader: type[Any]) -> type[Any]:
        def load(self: Any, data: Any) -> object:
            try:
                return loader.load(self, data)
            except psycopg.Error:
                return bytes(data).decode()

        return type(f"Lenient{loader.__name__}", (loader,), {"load": load})

    for name, loader in (
        ("date", loaders.DateLoader),
        ("timestamp", loaders.TimestampLoader),
        ("timestamptz", loaders.TimestamptzLoader),
        ("interval", loaders.IntervalLoader),
        ("time", loaders.TimeLoader),
        ("timetz", loaders.TimetzLoader),
    ):
        driver.adapters.register_loader(name, lenient(loader))
