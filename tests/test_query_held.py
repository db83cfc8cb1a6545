"""What of a release is held in memory: rows by name and vectors, exactly as the tables have them."""

from __future__ import annotations

from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from lancedb.table import Table

from aps_rag_pipeline.stores.tables import chunks_schema
from query.filters import Filters
from query.held import Named, Shelved, Vectors
from query.meaning import Meaning

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
                "source": "bely", "feed": "bely", "access": ["public"], "text": f"entry {number}",
                "vector": vectors[number],
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


@pytest.mark.parametrize("kept", [np.float16, np.float32])
def test_vectors_are_held_exactly_in_as_little_as_holds_them(tmp_path: Path, vectors: np.ndarray, kept: type) -> None:
    stored = vectors.astype(kept).astype(np.float32)
    held = Vectors(written(tmp_path, stored))
    assert held._vectors.dtype == kept
    wanted = [chunk(number) for number in (50, 7, 33)]
    places = held.of([*wanted, chunk(3), "BELY:nothing#0.0"])  # 3 was deleted
    assert held.names(places) == wanted
    lengths = np.linalg.norm(stored[[50, 7, 33]], axis=1)
    assert held.cosines(places, vectors[0]) == pytest.approx(stored[[50, 7, 33]] @ vectors[0] / lengths, abs=1e-6)


def test_vectors_of_which_some_need_more_room_are_all_exact(tmp_path: Path, vectors: np.ndarray) -> None:
    vectors[:30] = vectors[:30].astype(np.float16)
    held = Vectors(written(tmp_path, vectors))
    for number in (6, 25, 55):
        length = np.linalg.norm(vectors[number])
        assert held.cosines(held.of([chunk(number)]), vectors[1])[0] == pytest.approx(
            float(vectors[number] @ vectors[1] / length), abs=1e-6
        )


def test_the_nearest_of_several_questions_and_of_some_chunks(tmp_path: Path, vectors: np.ndarray) -> None:
    meaning = Meaning(written(tmp_path, vectors))
    asked = vectors[[11, 42]]
    for vector, hits in zip(asked, meaning.near(asked, Filters(), 6), strict=True):
        order = [number for number in np.argsort(-(vectors @ vector)) if number >= 5][:6]
        assert [hit.chunk_id for hit in hits] == [chunk(number) for number in order]
        assert [hit.score for hit in hits] == pytest.approx([float(vectors[n] @ vector) for n in order], abs=1e-6)
    some = meaning.among(vectors[11], 2, [chunk(number) for number in (9, 11, 30, 3)])
    assert some[0].chunk_id == chunk(11)
    assert {hit.chunk_id for hit in some} < {chunk(number) for number in (9, 11, 30)}
    assert meaning.among(vectors[11], 2, []) == []


def test_rows_are_read_by_name_without_looking_through_the_table(tmp_path: Path, vectors: np.ndarray) -> None:
    shelved = Shelved(written(tmp_path, vectors), "key")
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
    assert Shelved(table, "key").read(["BELY:1"], ["key"]) == []
    assert Meaning(table).near(np.ones((1, DIMENSIONS), np.float32) / 4, Filters(), 5) == [[]]
