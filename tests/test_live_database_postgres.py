"""Rows of a real PostgreSQL as records: its types, its snapshots, and all that it does to a reader."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aps_rag_pipeline.settings import Credentials, Feed, Network, SecretPlace
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.sources.net.errors import OutageError
from tests.looking import Look, look, opened
from tests.postgres import Postgres, PostgresMissing, postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(postgres())
        except PostgresMissing as missing:
            pytest.skip(str(missing))
        yield running


@pytest.fixture
def pg(server: Postgres) -> Iterator[Postgres]:
    server.run(
        "create table wr (nr integer primary key, title text, words text, cost numeric(10, 2), opened timestamp, "
        "done timestamptz, due date, urgent boolean, scan bytea, more jsonb, sectors text[], labels text, "
        "changed timestamptz default '2025-03-01T12:00Z', spent interval, at time)"
    )
    yield server
    server.run("drop table if exists wr cascade")


COLUMNS = {"id": "nr", "title": "title", "description": "words", "created": "opened", "completed": "done"}


def pg_feed(server: Postgres, query: str = "select * from wr", user: str = "owner", **more: Any) -> Feed:
    columns = more.pop("columns", COLUMNS)
    options = {"query": query, **more.pop("options", {})}
    return Feed(
        name="wr",
        source="work_requests",
        form="sql",
        url=server.address(user),
        columns=columns,
        options=options,
        **more,
    )


def fill(server: Postgres, count: int = 20) -> None:
    server.run(
        "insert into wr (nr, title, words, opened, changed) select n, 'Pump ' || n, 'It leaks ' || n, "
        "'2025-03-04 12:00', timestamptz '2025-03-01T12:00Z' + n * interval '1 day' from generate_series(1, %s) n",
        count,
    )


def test_every_type(pg: Postgres) -> None:
    pg.run(
        "insert into wr values (1, 'Fuse', 'Replaced', 12.50, '2025-03-04 12:00', '2025-03-04T18:00:00.25Z', "
        "'2025-03-09', true, '\\x00ff00', '{\"b\": [1, 2], \"a\": null}', '{S35,S36}', 'ops', now(), '90 min', '08:30')"
    )
    record = look(opened(pg_feed(pg))).records["1"]
    assert record.created_at == datetime(2025, 3, 4, 18, tzinfo=UTC)  # no zone: the feed's
    expected = {
        "completed": "2025-03-04T18:00:00.250000Z",
        "cost": 12.5,
        "due": "2025-03-09",
        "urgent": True,
        "more": '{"a": null, "b": [1, 2]}',
        "sectors": "S35, S36",
        "labels": "ops",
        "spent": 5400.0,
        "at": "08:30:00",
    }
    assert {name: record.fields.get(name) for name in expected} == expected
    details = record.parts[-1].text
    assert "cost: 12.50" in details
    assert "done: 2025-03-04 12:00:00-06:00" in details
    assert "scan" not in record.fields


def test_labels_of_rows(pg: Postgres) -> None:
    fill(pg, 3)
    pg.run("update wr set labels = 'rf, ops' where nr = 1")
    records = look(opened(pg_feed(pg, columns={**COLUMNS, "access": "labels"}))).records
    assert [records[n].access for n in "123"] == [("ops", "rf"), (), ()]


def test_dates_beyond_pythons(pg: Postgres) -> None:
    fill(pg, 3)
    pg.run("update wr set opened = 'infinity', done = '-infinity', due = '0044-03-15 BC' where nr = 1")
    pg.run("update wr set opened = '24000-01-01', done = '24000-01-01', due = 'infinity' where nr = 2")
    records = look(opened(pg_feed(pg))).records
    assert records["1"].created_at is None
    assert records["1"].fields["created_raw"] == "infinity"
    assert records["1"].fields["due"] == "0044-03-15 BC"
    assert records["2"].fields["created_raw"] == "24000-01-01 00:00:00"
    assert records["3"].created_at is not None


@pytest.mark.parametrize("columns", [COLUMNS, {**COLUMNS, "updated": "changed"}])
def test_a_change_of_the_servers_zone_changes_nothing(pg: Postgres, columns: dict[str, str]) -> None:
    fill(pg)
    pg.run("update wr set done = '2025-03-04T18:00Z'")
    query = "select wr.*, done::text as said, done::date as day, done at time zone 'UTC' as utc from wr"
    source = opened(pg_feed(pg, query, columns=columns))
    first = look(source)
    fingerprint = source.fingerprint()
    try:
        pg.run("alter role owner set timezone = 'Asia/Tokyo'")
        pg.run("alter role owner set datestyle = 'German, DMY'")
        pg.run("alter role owner set intervalstyle = 'iso_8601'")
        assert not look(source, first.cursor).news
        assert source.fingerprint() == fingerprint
    finally:
        pg.run("alter role owner reset all")


@pytest.mark.parametrize("columns", [COLUMNS, {**COLUMNS, "updated": "changed"}])
def test_rows_written_during_the_scan_are_seen_with_the_next(pg: Postgres, columns: dict[str, str]) -> None:
    fill(pg)
    source = opened(pg_feed(pg, columns=columns))
    stream = source.changes(None)
    changes = [next(stream)]
    pg.run("update wr set words = 'Meanwhile', changed = '2025-05-01' where nr in (1, 20)")
    pg.run("delete from wr where nr = 19")
    pg.run("insert into wr (nr, title) values (50, 'Late')")
    changes.extend(stream)
    first = Look(changes)
    assert first.records.keys() == {str(n) for n in range(1, 21)}  # one snapshot, bodies and all
    assert first.records["20"].parts[0].text == "It leaks 20"
    second = look(source, first.cursor)
    assert {"1", "20", "50"} <= second.records.keys()
    assert second.records["20"].parts[0].text == "Meanwhile"
    assert "19" in second.complete


def test_a_transaction_that_commits_late_is_seen(pg: Postgres) -> None:
    fill(pg)
    source = opened(pg_feed(pg, columns={**COLUMNS, "updated": "changed"}))
    with pg.connect() as writer:
        writer.autocommit = False
        writer.execute("update wr set words = 'Stamped early', changed = '2025-03-02T12:30Z' where nr = 1")
        pg.run("update wr set words = 'Newer', changed = '2025-06-01T12:00Z' where nr = 2")
        first = look(source)
        writer.commit()
    assert look(source, first.cursor).records["1"].parts[0].text == "Stamped early"


def test_the_fingerprint_moves_with_everything(pg: Postgres) -> None:
    fill(pg)
    sources = [opened(pg_feed(pg, columns=columns)) for columns in (COLUMNS, {**COLUMNS, "updated": "changed"})]
    seen = [{source.fingerprint()} for source in sources]
    for statement in (
        "update wr set words = 'edited', changed = '1999-01-01' where nr = 1",
        "update wr set words = 'once more' where nr = 20",
        "delete from wr where nr = 2",
        "insert into wr (nr, changed) values (2, '2025-03-03T12:01Z')",
        "update wr set nr = 21 where nr = 20",
    ):
        pg.run(statement)
        for source, told in zip(sources, seen, strict=True):
            told.add(source.fingerprint())
    assert [len(told) for told in seen] == [6, 6]
    assert [source.fingerprint() in told for source, told in zip(sources, seen, strict=True)] == [True, True]


WRITES = [
    "with x as (delete from wr returning *) select * from x",
    "with x as (d/**/elete from wr returning *) select * from x",
    "select nr, title, words, opened, done from gone()",
    "select nr, title, words, opened, done from wr, lateral (select nextval('numbers')) s",
    "select nr, title, words, opened, done from wr, (select set_config('transaction_read_only', 'off', true)) s",
]


@pytest.mark.parametrize("query", WRITES)
def test_a_query_that_writes_changes_nothing(pg: Postgres, query: str) -> None:
    fill(pg)
    pg.run("create sequence if not exists numbers")
    pg.run(
        "create or replace function gone() returns setof wr language plpgsql as "
        "'begin return query delete from wr returning *; end'"
    )
    try:
        with pytest.raises(FeedError) as told:
            look(opened(pg_feed(pg, query)))
        assert not isinstance(told.value, OutageError)
        assert pg.rows("select count(*) from wr") == [(20,)]
        assert pg.rows("select is_called from numbers") == [(False,)]
    finally:
        pg.run("drop function gone()")


def test_past_the_check_the_parentheses_and_the_session_hold(pg: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(pg)
    monkeypatch.setattr("aps_rag_pipeline.sources.sql.options.one_select", lambda query: query)
    for query in (WRITES[0], "select 1 as nr) q; delete from wr; select (1"):
        with pytest.raises(FeedError):
            look(opened(pg_feed(pg, query)))
    assert pg.rows("select count(*) from wr") == [(20,)]


def test_a_role_that_only_reads(pg: Postgres) -> None:
    fill(pg)
    pg.run("create role reader login")
    try:
        with pytest.raises(FeedError, match="permission denied for table wr"):
            look(opened(pg_feed(pg, user="reader")))
        pg.run("grant select on wr to reader")
        assert len(look(opened(pg_feed(pg, user="reader"))).records) == 20
        by_credentials = pg_feed(pg, user="nobody_of_that_name", credentials=Credentials(user="reader"))
        assert len(look(opened(by_credentials)).records) == 20
    finally:
        pg.run("drop owned by reader")
        pg.run("drop role reader")


def test_the_password_is_given_and_never_told(pg: Postgres, tmp_path: Path) -> None:
    fill(pg, 3)
    (tmp_path / "secret").write_text("geheim:/@wort\n")
    secret = Credentials(password=SecretPlace(file=tmp_path / "secret"))
    assert len(look(opened(pg_feed(pg, credentials=secret))).records) == 3
    with pytest.raises(FeedError, match=r'column "\*\*\*" does not exist') as told:
        look(opened(pg_feed(pg, 'select "geheim:/@wort" from wr', credentials=secret)))
    assert "geheim" not in str(told.value)


def test_a_table_that_is_locked_is_an_outage_not_a_wait(pg: Postgres) -> None:
    fill(pg)
    source = opened(pg_feed(pg))
    cursor = look(source).cursor
    with pg.connect() as other, other.transaction():
        other.execute("lock table wr in access exclusive mode")
        with pytest.raises(OutageError, match="lock timeout"):
            look(source, cursor)
    assert not look(source, cursor).news


def test_a_slow_statement_is_ended_by_the_server(pg: Postgres) -> None:
    fill(pg)
    query = "select wr.* from wr, lateral (select pg_sleep(60) where nr > 0) s"
    with pytest.raises(OutageError, match="statement timeout"):
        look(opened(pg_feed(pg, query), Network(timeout_s=2, deadline_s=0.3)))
    assert not pg.rows("select pid from pg_stat_activity where query like '%pg_sleep(60)%' and state = 'active' "
                       "and pid <> pg_backend_pid()")  # fmt: skip


def test_a_deadlock_is_an_outage(pg: Postgres) -> None:
    """The reader holds what it has read of one table and waits for another, whose holder waits for the first."""
    fill(pg)
    pg.run("create table other as select nr from wr")
    query = "select wr.* from wr, lateral (select wait_for_other(nr)) s"
    pg.run("alter role owner set deadlock_timeout = '20ms'")
    pg.run(
        "create function wait_for_other(n int) returns int language plpgsql as "
        "'begin perform pg_advisory_xact_lock(1); perform count(*) from other; return n; end'"
    )
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        with pg.connect() as rival, rival.transaction():
            rival.execute("set local deadlock_timeout = '60s'")
            rival.execute("lock table other in access exclusive mode")
            holds.set()
            until = time.monotonic() + 10
            while time.monotonic() < until and not pg.rows(
                "select 1 from pg_locks where locktype = 'advisory' and granted"
            ):
                pass
            rival.execute("select pg_advisory_xact_lock(1)")
        done.set()

    rival = threading.Thread(target=hold)
    rival.start()
    try:
        assert holds.wait(10)
        with pytest.raises(OutageError, match="deadlock detected"):
            look(opened(pg_feed(pg, query), Network(timeout_s=10, deadline_s=20)))
        assert done.wait(10)
    finally:
        rival.join(10)
        pg.run("alter role owner reset all")
        pg.run("drop table other")
        pg.run("drop function wait_for_other")


def kill_readers(server: Postgres) -> None:
    with server.connect() as connection:
        ended = connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend' "
            "and pid <> pg_backend_pid()"
        ).fetchall()
    assert (True,) in ended


def test_a_connection_cut_in_mid_listing_is_an_outage(pg: Postgres) -> None:
    fill(pg, 500)
    source = opened(pg_feed(pg, options={"page_rows": 10}))
    cursor = look(source).cursor

    class Cut:
        """Ends the reader's connection with the first page."""

        def __init__(self, row: Callable[..., Any]) -> None:
            self.row, self.rows = row, 0

        def __call__(self, *values: Any) -> Any:
            self.rows += 1
            if self.rows == 11:
                kill_readers(pg)
            return self.row(*values)

    from aps_rag_pipeline.sources.sql import table

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "id_cell", Cut(table.id_cell))
        with pytest.raises(OutageError, match=r"terminating connection|closed|broke"):
            look(source, cursor)
    assert not look(source, cursor).news


def test_a_connection_cut_between_the_rows_is_opened_again(pg: Postgres) -> None:
    fill(pg, 700)
    source = opened(pg_feed(pg))
    stream = source.changes(None)
    changes = [next(stream)]
    kill_readers(pg)
    changes.extend(stream)
    assert len(Look(changes).records) == 700
    assert not Look(changes).failures
    assert not look(source, Look(changes).cursor).news


def test_a_server_that_stops_answering_is_cut(pg: Postgres) -> None:
    """What the server's own limits cannot end: nothing comes over the line any more."""
    fill(pg, 50)
    heard = threading.Event()
    with Relay(pg, heard) as relay:
        feed = pg_feed(pg).model_copy(
            update={"url": f"postgresql://owner@127.0.0.1:{relay.port}/postgres?sslmode=disable"}
        )
        source = opened(feed, Network(timeout_s=0.2, deadline_s=0.3))
        stream = source.changes(None)
        next(stream)
        stream.close()
        relay.mute_after = b"FETCH"
        with pytest.raises(OutageError, match=r"no answer within network\.deadline_s"):
            list(source.changes(None))
        assert heard.is_set()


class Relay:
    """A line to the server's socket that goes dead when the client has said `mute_after`."""

    def __init__(self, server: Postgres, heard: threading.Event) -> None:
        self.server, self.heard = server, heard
        self.mute_after = b"never said"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Relay:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, what: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=what, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            line = socket.socket(socket.AF_UNIX)
            line.connect(str(self.server.folder / ".s.PGSQL.5432"))
            self._open += [client, line]
            self._start(self._pass, client, line, True)
            self._start(self._pass, line, client, False)

    def _pass(self, here: socket.socket, there: socket.socket, asks: bool) -> None:
        try:
            while data := here.recv(65536):
                if asks and self.mute_after in data:
                    self.heard.set()
                    continue
                there.sendall(data)
            there.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


@pytest.mark.parametrize("id_type", ["bigint", "numeric(12)", "text", "char(8)", "uuid", "date", "double precision"])
def test_ids_of_every_type_are_asked_for_in_their_own(pg: Postgres, id_type: str) -> None:
    made = {
        "uuid": "md5(n::text)::uuid",
        "date": "date '2025-01-01' + n",
        "text": "'A ' || n || '''\"%'",
        "char(8)": "n::text",
    }.get(id_type, "n")
    pg.run(f"create table typed as select ({made})::{id_type} as id, 'Row ' || n as title from generate_series(1, 9) n")
    try:
        source = opened(pg_feed(pg, "select * from typed", columns={}))
        first = look(source)
        assert {record.title for record in first.records.values()} == {f"Row {n}" for n in range(1, 10)}
        assert not first.failures
        if id_type in ("bigint", "numeric(12)", "char(8)", "double precision"):
            assert first.records.keys() == {str(n) for n in range(1, 10)}
        assert not look(source, first.cursor).news
    finally:
        pg.run("drop table typed")


def test_a_view_with_joins_and_groups(pg: Postgres) -> None:
    fill(pg, 30)
    query = (
        "with late as (select nr, max(changed) as newest from wr group by nr) "
        'select wr.nr as "WR No", wr.title, string_agg(wr.words, \'; \') as words, newest as "Last Change" '
        "from wr join late using (nr) group by 1, 2, 4 order by 1 desc"
    )
    columns = {"id": "WR No", "title": "title", "description": "words", "updated": "last_change"}
    source = opened(pg_feed(pg, query, columns=columns))
    first = look(source)
    assert len(first.records) == 30
    assert first.records["3"].modified_at == datetime(2025, 3, 4, 12, tzinfo=UTC)
    pg.run("update wr set words = 'Other', changed = changed + interval '1 minute' where nr = 3")
    assert look(source, first.cursor).records.keys() == {"3"}


def test_two_columns_of_one_name(pg: Postgres) -> None:
    with pytest.raises(FeedError, match="two columns the name title; name one with AS"):
        look(opened(pg_feed(pg, "select a.nr, a.title, b.title from wr a join wr b using (nr)")))


def test_downtime_with_typed_times(pg: Postgres) -> None:
    pg.run("create table down (event text, began timestamp, ended timestamp, lost boolean)")
    try:
        pg.run("insert into down values ('2025-0412', '2025-03-04 12:00', '2025-03-04 13:30', true)")
        columns = {"id": "event", "start": "began", "end": "ended", "beam_lost": "lost"}
        feed = pg_feed(pg, "select * from down", columns=columns).model_copy(update={"source": "downtime"})
        record = look(opened(feed)).records["2025-0412"]
        assert record.created_at == datetime(2025, 3, 4, 18, tzinfo=UTC)
        assert record.fields["duration_s"] == timedelta(minutes=90).total_seconds()
        assert record.fields["beam_lost"] is True
    finally:
        pg.run("drop table down")


def test_nothing_stays_open(pg: Postgres) -> None:
    fill(pg)
    source = opened(pg_feed(pg))
    look(source)
    source.check()
    stream = source.changes(None)
    next(stream)
    stream.close()
    with pytest.raises(FeedError):
        look(opened(pg_feed(pg, "select nothing from wr")))
    assert pg.alone()


def test_a_row_that_the_query_cannot_compute_costs_itself(pg: Postgres) -> None:
    fill(pg)
    query = "select nr, 'Pump ' || nr as title, words, opened, done, changed, 100 / (nr - 5) as share from wr"
    source = opened(pg_feed(pg, query, columns={**COLUMNS, "updated": "changed"}))
    first = look(source)
    assert first.records.keys() == {str(n) for n in range(1, 21) if n != 5}
    (failure,) = first.failures
    assert (failure.unit, failure.permanent) == ("5", False)
    assert "division by zero" in failure.reason
    assert look(source, first.cursor).failures[0].unit == "5"  # asked for again and again, and nothing else is
    pg.run("update wr set nr = 55 where nr = 5")
    mended = look(source, first.cursor)
    assert mended.records.keys() == {"55"}
