"""Run history in SQLite, as Dagster keeps it, but over connections that stay open.

Dagster's own storage builds an engine, compiles the statement and opens and closes a connection for every event; a run
that finds nothing to do spends more time on that than on everything else. Files, tables and locks are the same.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import sqlalchemy
from dagster._core.storage.event_log.sqlite import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
from dagster._core.storage.runs.sqlite import SqliteRunStorage
from dagster._core.storage.schedules.sqlite import SqliteScheduleStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._core.storage.sqlite_storage import (
    DagsterSqliteStorage,
    _event_logs_directory,
    _runs_directory,
    _schedule_directory,
)

#: Databases of runs that stay open: the one that is written, and those that somebody looks at in the UI.
_OPEN_DATABASES = 8


class Engines:
    """One engine per database, the longest unused closed first."""

    def __init__(self) -> None:
        self._engines: OrderedDict[str, sqlalchemy.Engine] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, address: str) -> sqlalchemy.Engine:
        with self._lock:
            if address not in self._engines:
                self._engines[address] = _engine(address)
            self._engines.move_to_end(address)
            while len(self._engines) > _OPEN_DATABASES:
                self._engines.popitem(last=False)[1].dispose()  # what is in use closes when it is given back
            return self._engines[address]

    def close(self) -> None:
        with self._lock:
            for engine in self._engines.values():
                engine.dispose()
            self._engines.clear()


def _engine(address: str) -> sqlalchemy.Engine:
    engine = sqlalchemy.create_engine(address, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS})
    # A power failure may take the last events along, never the database: it has a write-ahead log.
    sqlalchemy.event.listen(engine, "connect", lambda connection, _: connection.execute("pragma synchronous = normal"))
    return engine


def _has_revision(engine: sqlalchemy.Engine) -> bool:
    """Whether Alembic has stamped this database, as it does last of all when one is made."""
    with engine.connect() as connection:
        return bool(
            sqlalchemy.inspect(connection).has_table("alembic_version")
            and connection.execute(sqlalchemy.text("select version_num from alembic_version")).first()
        )


class Runs(SqliteRunStorage):
    def __init__(self, conn_string: str, inst_data: Any = None) -> None:
        self._address = conn_string
        self._engines = Engines()
        super().__init__(conn_string, inst_data)

    @contextmanager
    def connect(self) -> Iterator[sqlalchemy.Connection]:
        with self._engines.get(self._address).begin() as connection:
            yield connection

    def dispose(self) -> None:
        self._engines.close()
        super().dispose()


class Events(SqliteEventLogStorage):
    def __init__(self, base_dir: str, inst_data: Any = None) -> None:
        self._engines = Engines()
        self._tables: set[str] = set()
        super().__init__(base_dir, inst_data)

    def has_table(self, table_name: str) -> bool:
        # Asked several times for each event; a table that is there stays.
        if table_name not in self._tables:
            with self._engines.get(self.conn_string_for_shard(INDEX_SHARD_NAME)).connect() as connection:
                if not sqlalchemy.inspect(connection).has_table(table_name):
                    return False
            self._tables.add(table_name)
        return True

    def _initdb(self, engine: sqlalchemy.Engine, for_index_shard: bool = False) -> None:
        # Dagster reads its forty migrations to learn that the database has a revision.
        if not _has_revision(engine):
            super()._initdb(engine, for_index_shard)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[sqlalchemy.Connection]:
        with self._db_lock:
            engine = self._engines.get(self.conn_string_for_shard(shard))
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.begin() as connection:
                yield connection

    def dispose(self) -> None:
        self._engines.close()
        super().dispose()


class History(DagsterSqliteStorage):
    """To be named as `storage: custom` in dagster.yaml."""

    def __init__(self, base_dir: str, inst_data: Any = None) -> None:
        self.base_dir = base_dir
        self._inst_data = inst_data
        self._run_storage = Runs.from_local(_runs_directory(base_dir))
        self._event_log_storage = Events(_event_logs_directory(base_dir))
        self._schedule_storage = SqliteScheduleStorage.from_local(_schedule_directory(base_dir))
        super(DagsterSqliteStorage, self).__init__()  # Dagster's own would open its two beside these

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> Self:
        return cls.from_local(inst_data=inst_data, **config_value)
