"""Rows of databases as records: the query, the looks, and SQLite files. PostgreSQL has a module of its own."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from aps_rag_pipeline.content.tables import cell_text, read_tables
from aps_rag_pipeline.demo.write import write
from aps_rag_pipeline.settings import Credentials, Feed, Limits, Network, SecretPlace, Settings
from aps_rag_pipeline.sources.base import FeedError, Ignored
from aps_rag_pipeline.sources.live import Memory
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.sql.options import one_select
from tests.live_cases import downtime_sql, work_requests_sql
from tests.looking import Look, look, opened


class Table:
    """A table of an SQLite file, and a feed of it."""

    def __init__(self, folder: Path, columns: str = "id, title, description, updated") -> None:
        self.file = folder / "rows.db"
        self.connection = sqlite3.connect(self.file, isolation_level=None)
        self.connection.execute("pragma journal_mode = memory")
        self.connection.execute("pragma synchronous = off")
        self.connection.execute(f"create table items ({columns})")

    def run(self, statement: str, *values: Any) -> None:
        self.connection.execute(statement, values)

    def feed(self, query: str = "select * from items", columns: dict[str, str] | None = None, **more: Any) -> Feed:
        options = {"query": query, **more.pop("options", {})}
        return Feed(
            name="wr", source=more.pop("source", "work_requests"), form="sql", location=more.pop("location", self.file),
            columns=columns or {}, options=options, **more,
        )  # fmt: skip

    def source(self, *query: str, **more: Any) -> Any:
        return opened(self.feed(*query, **more))

    def trusting(self, **more: Any) -> Any:
        """A source that believes the column `updated`."""
        return self.source(columns={"updated": "updated"}, options=more)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    table = Table(tmp_path)
    yield table
    table.connection.close()


@pytest.fixture
def filled(table: Table) -> Table:
    for number in range(1, 31):
        table.run("insert into items values (?, ?, ?, ?)", number, f"Pump {number}", f"It leaks {number}.", day(number))
    return table


def day(number: int) -> str:
    return f"2025-03-{number:02d} 08:00:00"


# what a query is


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("select 1 as id", "select 1 as id"),
        ("  with x as (select 1 as id) select * from x ; -- all;", "with x as (select 1 as id) select * from x"),
        ("(select 1 as id) union select 2;", "(select 1 as id) union select 2"),
        2 * ("select ';' as id, 'it''s; --' as t, \"delete from\" as u /* ; */ from items -- ; drop",),
        2 * ("select updated, last_update as deleted from items order by updated",),
        2 * ("select $$; it's$$, $a$ ( $a$",),
    ],
)
def test_one_select(query: str, kept: str) -> None:
    assert one_select(query) == kept


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("delete from items", "not a SELECT"),
        ("", "not a SELECT"),
        ("pragma writable_schema = 1", "not a SELECT"),
        ("select 1; delete from items", "more than one"),
        ("with x as (delete from items returning *) select * from x", "'delete from' writes"),
        ("with x as (update items set a = 1 returning *) select * from x", "'update items set' writes"),
        ("select * into copy from items", "'into' writes"),
        ("select * from items for update", "'for update' writes"),
        ("select 1) q; select (1", "more than one"),
        ("select 1) q, (select 2", "parentheses"),
        ("select 'it", "not closed"),
        ("select 1 /* open", "not closed"),
    ],
)
def test_anything_but_one_select_is_refused(table: Table, query: str, said: str) -> None:
    table.run("insert into items values (1, 'a', 'b', null)")
    with pytest.raises(FeedError, match=r"options\.query: ") as told:
        look(table.source(query))
    assert said in str(told.value)
    assert table.connection.execute("select count(*) from items").fetchone() == (1,)


def test_options_are_told_apart(table: Table) -> None:
    with pytest.raises(FeedError, match=r"options\.query: Field required"):
        look(opened(Feed(name="wr", source="work_requests", form="sql", location=table.file)))
    with pytest.raises(FeedError, match=r"options\.page_rows: .*; options\.pages: Extra"):
        look(table.source(options={"page_rows": 0, "pages": 3}))


# SQLite


@pytest.mark.parametrize("columns", [{}, {"updated": "updated"}])
def test_two_looks_and_what_moves_between(filled: Table, columns: dict[str, str]) -> None:
    source = filled.source(columns=columns)
    first = look(source)
    assert len(first.records) == 30
    assert first.records["7"].title == "Pump 7"
    assert first.records["7"].parts[0].text == "It leaks 7."
    assert first.records["7"].modified_at == datetime(2025, 3, 7, 14, tzinfo=UTC)
    fingerprint = source.fingerprint()
    again = look(source, first.cursor)
    assert not again.news
    assert again.cursor == first.cursor
    assert source.fingerprint() == fingerprint

    filled.run("update items set description = 'Mended.', updated = '2025-04-01 09:00' where id = 3")
    filled.run("delete from items where id = 4")
    filled.run("insert into items values (99, 'Late', 'An old one.', '1999-01-01 00:00:00')")
    assert source.fingerprint() != fingerprint
    second = look(source, again.cursor)
    assert {"3", "99"} <= second.records.keys()
    # With a trusted column those that the newest value leaves behind are looked at once more.
    assert second.records.keys() <= {"3", "99", "29", "30"}
    assert second.records["3"].parts[0].text == "Mended."
    assert "4" in second.complete
    assert not look(source, second.cursor).news


def test_an_edit_within_the_resolution_of_the_column(filled: Table) -> None:
    source = filled.trusting()
    cursor = look(source).cursor
    filled.run("update items set description = 'Again.' where id = 30")  # the same second, the same value
    second = look(source, cursor)
    assert second.records.keys() == {"30"}
    filled.run("update items set description = 'And again.' where id = 29")  # a day before the newest
    third = look(source, second.cursor)
    assert third.records.keys() == {"29"}
    # One that leaves the column alone is found when everything is read again.
    filled.run("update items set description = 'By hand.' where id = 2")
    assert not look(source, third.cursor).news
    whole = look(source, source.again(third.cursor))
    assert whole.records["2"].parts[0].text == "By hand."
    # Or at once, where the column is not trusted.
    careful = filled.trusting(trust_updated=False)
    cursor = look(careful).cursor
    filled.run("update items set description = 'By hand 2.' where id = 2")
    assert look(careful, cursor).records.keys() == {"2"}


def test_values_that_no_clock_orders_are_always_looked_at(filled: Table) -> None:
    filled.run("update items set updated = null where id = 1")
    filled.run("update items set updated = 'last week' where id = 2")
    filled.run("update items set updated = '2999-01-01' where id = 3")  # must not make all others look settled
    source = filled.trusting()
    cursor = look(source).cursor
    for number in (1, 2, 3, 30):
        filled.run("update items set description = 'Again.' where id = ?", number)
        second = look(source, cursor)
        assert second.records.keys() == {str(number)}
        cursor = second.cursor


def test_a_value_that_goes_back_is_a_move(filled: Table) -> None:
    source = filled.trusting()
    cursor = look(source).cursor
    filled.run("update items set description = 'Restored.', updated = '2001-01-01 00:00:00' where id = 9")
    assert look(source, cursor).records["9"].parts[0].text == "Restored."


def test_reverted_deleted_and_given_again(filled: Table) -> None:
    source = filled.source()
    first = look(source)
    filled.run("update items set title = 'Other' where id = 5")
    changed = look(source, first.cursor)
    filled.run("update items set title = 'Pump 5' where id = 5")
    assert look(source, changed.cursor).records["5"] == first.records["5"]
    filled.run("delete from items where id = 6")
    filled.run("insert into items values (6, 'A new one', 'with the old number', null)")
    assert look(source, first.cursor).records["6"].title == "A new one"


def test_rows_without_an_id(filled: Table) -> None:
    filled.run("insert into items values (null, 'Lost', 'a', null), ('  ', 'Blank', 'b', null), ('n/a', 'c', '', null)")
    for source in (filled.source(), filled.trusting()):
        first = look(source)
        assert len(first.records) == 30
        assert {f.reason for f in first.failures} == {'no id: the column "id" is blank'}
        assert sorted(f.place.partition(": ")[2] for f in first.failures) == [
            "a row without id (Blank)", "a row without id (Lost)", "a row without id (c)",
        ]  # fmt: skip
        assert all(f.permanent and f.item == f.place for f in first.failures)
        assert not look(source, first.cursor).news
    filled.run("update items set id = 77 where title = 'Lost'")
    mended = look(source, first.cursor)
    assert mended.records.keys() == {"77"}
    assert {f.unit for f in first.failures if "Lost" in f.place} <= mended.complete  # it is forgotten
    filled.run("update items set id = null")
    with pytest.raises(FeedError, match='no row has an id in the column "id"'):
        look(source, mended.cursor)


def test_an_id_given_twice(filled: Table) -> None:
    filled.run("insert into items values (7, 'Zebra', 'The same number.', null)")
    filled.run("insert into items values ('8', 'Pump 8', 'It leaks 8.', '2025-03-08 08:00:00')")  # all the same
    for source in (filled.source(), filled.trusting()):
        first = look(source)
        assert first.records["7"].title == "Pump 7"
        (twice,) = first.failures
        assert twice.unit == "7"
        assert "id 7, row 2 of 2" in twice.place
        assert "id 7, row 1 of 2" in twice.reason
        assert [i.place.partition(": ")[2] for i in first.ignored] == ["id 8, row 2 of 2"]
        assert not look(source, first.cursor).news
    filled.run("update items set description = 'Edited.' where title = 'Zebra'")
    assert {f.unit for f in look(source, first.cursor).failures} == {"7"}
    filled.run("delete from items where title = 'Zebra'")
    assert not look(source, first.cursor).failures


def test_a_block_is_asked_by_id_and_a_row_gone_meanwhile_is_gone(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.connection.executemany("insert into items values (?, 'x', 'y', null)", [(n,) for n in range(1203)])
    stream = table.source(options={"page_rows": 100}).changes(None)
    changes = [next(stream)]
    table.run("delete from items where id = 1200")
    table.run("insert into items values (5000, 'late', 'y', null)")
    changes.extend(stream)
    table.connection.close()
    first = Look(changes)
    assert len(first.records) == 1202
    assert "1200" not in first.cursor["units"]
    assert "5000" not in first.records  # with the next look


def test_nothing_is_not_a_state(filled: Table) -> None:
    source = filled.source()
    cursor = look(source).cursor
    filled.run("delete from items")
    with pytest.raises(FeedError, match="nothing is listed, but 30 items"):
        look(source, cursor)
    with pytest.raises(FeedError, match="the query gives no row"):
        source.check()


def test_check_and_inventory(filled: Table) -> None:
    source = filled.source()
    found = source.check()
    assert found.units == 30
    assert "30 rows" in found.detail
    assert "description: description" in found.detail
    assert set(source.inventory()) == {str(n) for n in range(1, 31)}


def test_columns_that_are_not_there(filled: Table) -> None:
    with pytest.raises(FeedError) as told:
        look(filled.source(columns={"id": "WR", "status": "State"}))
    assert (
        'the query gives no column "WR" (for id), "State" (for status); its columns are "id", "title", "description", '
        '"updated"; mend `columns`' in str(told.value)
    )
    with pytest.raises(FeedError, match="has no meaning for colour"):
        look(filled.source(columns={"colour": "title"}))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select id from from items", "syntax error"),
        ("select * from nowhere", "no such table"),
        ("select a.x", "no such col"),
    ],
)
def test_wrong_sql_is_told_with_the_databases_words(filled: Table, query: str, said: str) -> None:
    with pytest.raises(FeedError) as told:
        filled.source(query).fingerprint()
    assert said in str(told.value)
    assert not isinstance(told.value, OutageError)
    assert str(filled.file) in str(told.value)


def test_colons_percents_and_comments_in_a_query(filled: Table) -> None:
    source = filled.source("select id, 'at 12:30 :now 100% \\:x' as title from items where title like 'Pump 1%' -- all")
    assert look(source).records["10"].title == "at 12:30 :now 100% \\:x"


def test_a_locked_file_is_an_outage(filled: Table) -> None:
    filled.run("begin exclusive")
    with pytest.raises(OutageError, match="database is locked"):
        look(filled.source())
    filled.run("rollback")
    assert len(look(filled.source()).records) == 30


def test_a_writer_is_not_held_up_between_the_rows(filled: Table) -> None:
    stream = filled.source().changes(None)
    next(stream)
    filled.connection.execute("pragma busy_timeout = 0")
    filled.run("update items set title = 'Written meanwhile' where id = 30")
    changes = Look(list(stream))
    assert look(filled.source(), changes.cursor).news <= {"30"}


def test_a_file_that_somebody_writes_ahead(filled: Table) -> None:
    filled.run("pragma journal_mode = wal")
    filled.run("begin immediate")
    filled.run("update items set title = 'Not yet' where id = 1")
    first = look(filled.source())
    assert first.records["1"].title == "Pump 1"
    filled.run("commit")
    assert look(filled.source(), first.cursor).records["1"].title == "Not yet"


def test_a_file_is_opened_for_reading_only(filled: Table) -> None:
    scan = filled.source().scan(Memory())
    try:
        for statement in ("delete from items", "create table other (id)"):
            with pytest.raises(FeedError, match="readonly"):
                list(scan.database.rows(text(statement), 1))
    finally:
        scan.close()
    assert len(look(filled.source()).records) == 30


def test_the_library_is_loaded_when_a_database_is_asked() -> None:
    program = "import sys, aps_rag_pipeline.sources.work_requests; print('sqlalchemy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"


def test_a_query_without_end_is_cut(filled: Table) -> None:
    endless = "with recursive n(id) as (select 1 union all select id + 1 from n) select id from n where id < 0"
    feed = filled.feed(endless)
    with pytest.raises(OutageError, match=r"no answer within network.deadline_s \(0.1 s\)"):
        look(opened(feed, Network(timeout_s=0.1, deadline_s=0.1)))


def test_files_that_are_no_database(tmp_path: Path, filled: Table) -> None:
    with pytest.raises(OutageError, match="no such file; mend `location`"):
        look(filled.source(location=tmp_path / "absent.db"))
    assert not (tmp_path / "absent.db").exists()
    other = tmp_path / "other.db"
    other.write_text("id,title\n1,a table but no database\n" * 50)
    with pytest.raises(OutageError, match="file is not a database"):
        look(filled.source(location=other))
    with pytest.raises(FeedError, match="name the database by `url`, or an SQLite file by `location`"):
        look(filled.source(location=tmp_path))


def test_relative_paths_start_at_the_folder_of_the_settings(filled: Table) -> None:
    feed = {"name": "wr", "source": "work_requests", "form": "sql", "options": {"query": "select * from items"}}
    for place in (
        {"location": "rows.db"},
        {"location": "rows.db", "url": "sqlite://"},
        {"url": f"sqlite:///{filled.file}"},
    ):
        facility = Settings.build({"feeds": [feed | place]}, filled.file.parent / "facility.yaml")
        assert len(look(opened(facility.feeds[0])).records) == 30
    facility = Settings.build({"feeds": [feed | {"url": "sqlite:///rows.db"}]}, filled.file.parent / "facility.yaml")
    with pytest.raises(FeedError, match=r"write `location: rows\.db`, which starts at the folder of facility\.yaml"):
        look(opened(facility.feeds[0]))


def test_text_that_is_no_utf8_and_bytes(table: Table) -> None:
    table.run("insert into items values (1, cast(x'5374f6727467' as text), ?, null)", "Störung".encode())
    table.run("insert into items values (2, 'Drawing', ?, null)", b"%PDF-1.7\x00\x01\x02\xff\xfe\x00")
    table.run("insert into items values (?, 'Binary id', 'x', null)", bytes(range(16)))
    first = look(table.source())
    assert first.records["1"].title == "Störtg"
    assert first.records["1"].parts[0].text == "Störung"
    assert not first.records["2"].parts
    assert [i.reason for i in first.ignored] == ['the column "description" holds 14 bytes that are no text']
    assert first.records["000102030405060708090a0b0c0d0e0f"].title == "Binary id"
    assert not look(table.source(), first.cursor).news


def test_the_address_never_holds_a_secret(table: Table) -> None:
    for url in ("postgresql://h/db?password=geheim", "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Dgeheim"):
        with pytest.raises(FeedError, match=r"credentials\.password") as told:
            look(opened(table.feed(url=url)))
        assert "geheim" not in str(told.value)
    with pytest.raises(FeedError, match="the driver is missing; install the package oracledb"):
        look(opened(table.feed(url="oracle+oracledb://h/db")))
    with pytest.raises(FeedError, match="no address of a database"):
        look(opened(table.feed(url="nonsense://h/db")))
    with pytest.raises(FeedError, match="`url` is no address"):
        look(opened(table.feed(url="not an address")))
    secret = Credentials(password=SecretPlace(env="APS_RAG_TEST_NOT_SET"))
    with pytest.raises(FeedError, match="APS_RAG_TEST_NOT_SET is not set"):
        look(opened(table.feed(url="postgresql://h/db", credentials=secret)))


def test_a_server_that_accepts_and_says_nothing(table: Table) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/db"
        with pytest.raises(OutageError, match=r"127\.0\.0\.1.*timeout"):
            look(opened(table.feed(url=url)))
    with pytest.raises(OutageError, match="refused"):
        look(opened(table.feed(url=url)))


# the same rows as the file form


def load_folder(folder: Path, source: Any, file: Path) -> set[str]:
    """The tables of a feed's files as one SQLite table `items` with the same headings; returns the ids of rows that
    have a day in a column of times, which a workbook shows without its midnight and a database with it."""
    connection = sqlite3.connect(file)
    headings: tuple[str, ...] = ()
    days: set[str] = set()
    for path in sorted(folder.iterdir()):
        for found in read_tables(path.read_bytes(), path.name, source.wanted, Limits()):
            assert not isinstance(found, Ignored)
            if not headings:
                headings = found.headings
                connection.execute("create table items (" + ", ".join(f'"{h}"' for h in headings) + ")")
            ours = {heading: name for name, heading in found.columns.items()}
            for row in found.rows:
                cells = [row.values.get(ours.get(h, "")) if h in ours else row.others.get(h) for h in headings]
                if any(type(cell) is date for cell in cells):
                    days.add(str(row.values["id"]))
                connection.execute(
                    f"insert into items values ({', '.join('?' * len(headings))})", [stored(cell) for cell in cells]
                )
    connection.commit()
    connection.close()
    return days


def stored(cell: Any) -> Any:
    if type(cell) is date:
        return f"{cell} 00:00:00"
    return cell if cell is None or isinstance(cell, int | float) else cell_text(cell)


def test_the_demos_rows_are_those_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "demo", seed=7, records=300)
    facility = Settings.load(tmp_path / "demo" / "facility.yaml")
    for key in ("work_requests", "downtime"):
        (feed,) = facility.feeds_of(key)
        files = opened(feed, zone=facility.zone)
        days = load_folder(feed.location, files, tmp_path / f"{key}.db")
        options = {"query": "select * from items", **feed.options}
        rows = feed.model_copy(update={"form": "sql", "location": tmp_path / f"{key}.db", "options": options})
        expected, found = look(files).records, look(opened(rows, zone=facility.zone)).records
        assert len(expected) > 10 * len(days)
        assert {k: v for k, v in found.items() if k not in days} == {k: v for k, v in expected.items() if k not in days}
        assert [found[k].fields for k in days] == [expected[k].fields for k in days]


@pytest.mark.parametrize("module", [work_requests_sql, downtime_sql])
def test_the_case_of_the_shared_rules(module: Any) -> None:
    case = module.Case()
    try:
        for number in range(1, 6):
            case.put(number, f"word{number}")
        source = opened(case.feed(""))
        first = look(source)
        case.put(2, "other")
        case.delete(3)
        second = look(source, first.cursor)
        assert second.records.keys() >= {"2"}
        assert "3" in second.complete
        records = first.records | second.records
        for record_id, text in case.wanted().items():
            assert any(text in part.text for part in records[record_id].parts)
    finally:
        case.close()


#: Minutes that pass before an edit: none, so that stamps are the same; some; days, so that rows settle.
PAUSES = st.sampled_from([0, 0, 0, 0, 1, 3000])
#: Minutes by which the clock is late that stamps this edit.
LATE = st.sampled_from([0, 700])
EDITS = st.tuples(st.sampled_from(["put", "put", "look", "delete"]), st.integers(1, 2), PAUSES, LATE)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(EDITS, min_size=4, max_size=12))
@example([("put", 1, 0, 0), ("look", 1, 0, 0), ("put", 1, 0, 0)])
@example([("put", 1, 0, 0), ("put", 2, 0, 700), ("look", 1, 0, 0), ("put", 2, 0, 700)])
def test_whatever_the_stamps_what_was_read_is_what_is_there(edits: list[tuple[str, int, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(Table(Path(folder)).connection) as connection:
        feed = Feed(
            name="wr", source="work_requests", form="sql", location=Path(folder) / "rows.db",
            columns={"updated": "updated"}, options={"query": "select * from items", "page_rows": 2},
        )  # fmt: skip
        source, clock, read, cursor = opened(feed), datetime(2025, 1, 1), dict[str, str](), None
        connection.execute("insert into items values (0, 'Always there', 'first', '2024-12-31 00:00')")
        for count, (what, number, pause, late) in enumerate([*edits, ("look", 0, 0, 0)]):
            clock += timedelta(minutes=pause)
            if what == "look":
                cursor = follow(read, look(source, cursor))
                there = connection.execute("select id, description from items").fetchall()
                assert read == {str(n): text for n, text in there}
                continue
            connection.execute("delete from items where id = ?", (number,))
            if what == "put":
                stamp = (clock - timedelta(minutes=late)).isoformat(" ", "minutes")
                connection.execute("insert into items values (?, 'x', ?, ?)", (number, f"text {count}", stamp))


def follow(read: dict[str, str], found: Look) -> Any:
    """Take over what a look has found, as a catalog would."""
    for unit in found.complete - found.records.keys():
        read.pop(unit, None)
    read.update({n: record.parts[0].text for n, record in found.records.items()})
    return found.cursor
