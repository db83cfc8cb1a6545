"""What of a release is held in memory: rows by name and vectors, exactly as the tables have them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from lancedb.table import Table

from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.tables import chunks_schema
from query import Corpus
from query import held as held_vectors
from query.filters import Filters, reader
from query.held import Named, Shelved, Vectors
from query.meaning import Meaning
from tests.released import Written, write_release

SIZE, DIMENSIONS = 60, 16


def chunk(number: int) -> str:
    return f"BELY:{number}#0.0"


def written(folder: Path, vectors: np.ndarray) -> Table:
    """A table of chunks in several pieces, of whose first rows some have been deleted."""
    schema = chunks_schema(vectors.shape[1])
    table = lancedb.connect(folder).create_table("chunks", schema=schema)
    for start in range(0, len(vectors), 20):
        rows = [
            {
                "rid": number, "chunk_id": chunk(number), "passage_id": f"BELY:{number}#0", "key": f"BELY:{number}",
                "source": "bely" if number % 3 else "wiki", "feed": "bely", "text": f"entry {number}",
                "access": ["public"] if number % 4 else ["ops"], "vector": vectors[number],
                "created_at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number),
            }
            for number in range(start, min(start + 20, len(vectors)))
        ]  # fmt: skip
        table.add(pa.Table.from_pylist(rows, schema=schema))
    table.delete("rid < 5")
    return table


@pytest.fixture
def vectors() -> np.ndarray:
    made = np.random.default_rng(3).standard_normal((SIZE, DIMENSIONS)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were too many vectors to compare all."""
    monkeypatch.setattr(held_vectors, "_COMPARED_WHOLE", 0)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("kept", [np.float16, np.float32])
def test_many_vectors_are_held_exactly_in_as_little_as_holds_them(
    tmp_path: Path, vectors: np.ndarray, kept: type
) -> None:
    stored = vectors.astype(kept).astype(np.float32)
    held = Vectors(written(tmp_path, stored))
    assert held._vectors.dtype == kept
    wanted = [chunk(number) for number in (50, 7, 33)]
    places = held.of([*wanted, chunk(3), "BELY:nothing#0.0"])  # 3 was deleted
    assert held.names(places) == wanted
    lengths = np.linalg.norm(stored[[50, 7, 33]], axis=1)
    assert held.cosines(places, vectors[0]) == pytest.approx(stored[[50, 7, 33]] @ vectors[0] / lengths, abs=1e-6)


@pytest.mark.usefixtures("many")
def test_vectors_of_which_some_need_more_room_are_all_exact(tmp_path: Path, vectors: np.ndarray) -> None:
    vectors[:30] = vectors[:30].astype(np.float16)
    held = Vectors(written(tmp_path, vectors))
    for number in (6, 25, 55):
        length = np.linalg.norm(vectors[number])
        assert held.cosines(held.of([chunk(number)]), vectors[1])[0] == pytest.approx(
            float(vectors[number] @ vectors[1] / length), abs=1e-6
        )


HELD = ["not held", "few", "many"]


def meaning_of(table: Table, held: str, request: pytest.FixtureRequest) -> Meaning:
    if held == "many":
        request.getfixturevalue("many")
    meaning = Meaning(table)
    if held != "not held":
        meaning.hold()
        assert meaning._held is not None
        assert meaning._held.few == (held == "few")
    return meaning


@pytest.mark.parametrize("held", HELD)
def test_the_nearest_of_several_questions_and_of_some_chunks(
    tmp_path: Path, vectors: np.ndarray, held: str, request: pytest.FixtureRequest
) -> None:
    meaning = meaning_of(written(tmp_path, vectors), held, request)
    asked = vectors[[11, 42]]
    for vector, hits in zip(asked, meaning.near(asked, Filters(), 6), strict=True):
        order = [number for number in np.argsort(-(vectors @ vector)) if number >= 5][:6]
        assert [hit.chunk_id for hit in hits] == [chunk(number) for number in order]
        assert [hit.score for hit in hits] == pytest.approx([float(vectors[n] @ vector) for n in order], abs=1e-6)
    some = meaning.among(vectors[11], 2, [chunk(number) for number in (9, 11, 30, 3)])
    assert some[0].chunk_id == chunk(11)
    assert {hit.chunk_id for hit in some} < {chunk(number) for number in (9, 11, 30)}
    assert meaning.among(vectors[11], 2, []) == []


@pytest.mark.parametrize("held", HELD)
def test_the_nearest_of_those_that_a_filter_leaves(
    tmp_path: Path, vectors: np.ndarray, held: str, request: pytest.FixtureRequest
) -> None:
    meaning = meaning_of(written(tmp_path, vectors), held, request)
    since = datetime(2026, 1, 31, tzinfo=UTC)
    left = {
        Filters(groups=reader(None)): lambda n: True,
        Filters(groups=reader({"ops"})): lambda n: True,
        Filters(groups=reader(set())): lambda n: n % 4,
        Filters(sources=("wiki",)): lambda n: not n % 3,
        Filters(groups=reader(set()), without=("wiki",), since=since): lambda n: n % 4 and n % 3 and n >= 30,
        Filters(sources=("icms",)): lambda n: False,
    }
    for filters, leaves in left.items():
        hits = meaning.near(vectors[[8]], filters, 7)[0]
        order = [n for n in np.argsort(-(vectors @ vectors[8])) if n >= 5 and leaves(n)][:7]
        assert [hit.chunk_id for hit in hits] == [chunk(n) for n in order]
        assert [hit.score for hit in hits] == pytest.approx([float(vectors[n] @ vectors[8]) for n in order], abs=1e-6)


def test_equals_stand_in_the_order_of_their_rows(tmp_path: Path, vectors: np.ndarray) -> None:
    vectors[10:50] = vectors[10]
    meaning = Meaning(written(tmp_path, vectors))
    meaning.hold()
    hits = meaning.near(vectors[[10]], Filters(), 9)[0]
    assert [hit.chunk_id for hit in hits] == [chunk(number) for number in range(10, 19)]


@pytest.mark.parametrize("held", [False, True])
def test_rows_are_read_by_name(tmp_path: Path, vectors: np.ndarray, held: bool) -> None:
    shelved = Shelved(written(tmp_path, vectors), "key")
    if held:
        shelved.hold()
    rows = shelved.read(["BELY:44", "BELY:6", "BELY:2", "BELY:44", "WIKI:none"], ["key", "text"])
    assert sorted((row["key"], row["text"]) for row in rows) == [("BELY:44", "entry 44"), ("BELY:6", "entry 6")]
    assert shelved.read([], ["key"]) == []
    assert shelved.read(["WIKI:none"], ["key"]) == []


class Colliding(str):
    """Names that all have one hash."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 7


def test_names_with_the_same_hash_all_come_into_question() -> None:
    names = [Colliding(name) for name in ("a", "b", "c")]
    assert sorted(Named(names, np.array([10, 20, 30], dtype=np.uint64)).rows(names[:1])) == [10, 20, 30]


def test_an_empty_table_holds_nothing(tmp_path: Path) -> None:
    table = lancedb.connect(tmp_path).create_table("chunks", schema=chunks_schema(DIMENSIONS))
    assert len(Vectors(table).of(["BELY:1#0.0"])) == 0
    shelved, meaning = Shelved(table, "key"), Meaning(table)
    for part in (None, shelved, meaning):
        if part is not None:
            part.hold()
        assert shelved.read(["BELY:1"], ["key"]) == []
        assert meaning.near(np.ones((1, DIMENSIONS), np.float32) / 4, Filters(), 5) == [[]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    texts = ("the pump tripped", "vacuum gate closed", "klystron reflected power", "beam was lost")
    entries = [Written("bely", str(n), text, (f"Entry {n}: {text}.",)) for n, text in enumerate(texts * 3, start=1)]
    return write_release(tmp_path, entries)


def holding(corpus: Corpus) -> bool:
    """Wait for what is being read, and say whether it is held."""
    for thread in threading.enumerate():
        if thread.name == "hold":
            thread.join()
    snapshot = corpus._snapshot
    return snapshot.meaning._held is not None


def test_a_process_that_asks_once_holds_nothing(home: Home) -> None:
    with Corpus.open(home, None) as corpus:
        first = corpus.search("which pump tripped?")
        corpus.status()
        assert not holding(corpus)
        second = corpus.search("which pump tripped?")
        assert holding(corpus)
        third = corpus.search("which pump tripped?")
        assert [hit.key for hit in first.hits] == [hit.key for hit in second.hits] == [hit.key for hit in third.hits]
        assert [hit.score for hit in first.hits] == pytest.approx([hit.score for hit in third.hits])


def test_a_server_can_have_everything_held_before_the_first_question(home: Home) -> None:
    with Corpus.open(home, None) as corpus:
        corpus.warm()
        assert corpus._snapshot.meaning._held is not None
        assert corpus.search("beam").hits


def test_what_cannot_be_held_is_looked_up(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Shelved) -> None:
        raise OSError("no memory for this")

    monkeypatch.setattr(Shelved, "hold", refuse)
    with Corpus.open(home, None) as corpus:
        for _ in range(3):
            assert corpus.search("klystron", k=1).hits[0].title == "klystron reflected power"
        assert not holding(corpus)
    assert "no memory for this" in caplog.text


def test_a_release_that_is_retired_meanwhile_is_given_back(home: Home) -> None:
    corpus = Corpus.open(home, None)
    snapshot = corpus._snapshot
    corpus.close()
    snapshot._hold_quietly()
    assert not releases.leased(releases.folder_of(home, 1))


def test_nothing_is_read_twice_nor_given_up_for_the_same_release(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    made = Vectors.__init__

    def counted(self: Vectors, table: Table) -> None:
        read.append(1)
        made(self, table)

    monkeypatch.setattr(Vectors, "__init__", counted)
    with Corpus.open(home, None) as corpus:
        corpus.warm()
        for _ in range(3):
            corpus.search("klystron")
        assert corpus.refresh() == 1
        assert holding(corpus)
        corpus.warm()
        assert read == [1]


@pytest.mark.usefixtures("no_collector")
def test_what_was_held_of_a_release_goes_with_it(home: Home, tmp_path: Path) -> None:
    with Corpus.open(home, None) as corpus:
        corpus.warm()
        corpus.search("klystron", sources=["bely"])
        held = weakref.ref(corpus._snapshot.meaning._held)
        write_release(tmp_path, [Written("bely", "1", "a new entry", ("Entry 1: the gun was conditioned.",))], number=2)
        assert corpus.refresh() == 2
        assert held() is None


def test_a_question_that_waited_for_the_model_does_not_outlive_its_release(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aps_rag_pipeline import models

    opened, asked = models.open_encoder, threading.Event()

    def slow(*arguments: Any, **named: Any) -> Any:
        asked.wait(30)
        return opened(*arguments, **named)

    monkeypatch.setattr(models, "open_encoder", slow)
    with Corpus.open(home, None) as corpus:
        gone = weakref.ref(corpus._snapshot)
        waiting = corpus._snapshot.once_loaded(gone)
        asked.set()
        assert waiting.result(30) is corpus._snapshot
        write_release(tmp_path, [Written("bely", "1", "a new entry", ("Entry 1: the gun was conditioned.",))], number=2)
        assert corpus.refresh() == 2
        del waiting
        gc.collect()
        assert gone() is None
        assert corpus.search("gun").hits


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_a_model_that_was_away_is_looked_for_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from aps_rag_pipeline import models

    opened = models.open_encoder

    def away(*_: object, **__: object) -> None:
        raise models.ModelError("the model's folder is not there")

    with Corpus.open(home, None) as corpus:
        monkeypatch.setattr(models, "open_encoder", away)
        with pytest.raises(models.ModelError):
            corpus.search("klystron")
        monkeypatch.setattr(models, "open_encoder", opened)
        assert corpus.search("klystron").hits
