"""Indexes of large tables: what they find, that they stay fresh, and that filters go through them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from aps_rag_pipeline.stores import indexing
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.tables import chunks_schema
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync.publish import lookups
from query.filters import Filters
from query.meaning import Meaning

SIZE, ROWS, WIDE = 32, 6_000, 100
NAME = "chunks_of_a_test"
WANTED = next(columns for table, columns in lookups("of_a_test").items() if table == NAME)
START = datetime(2020, 1, 1, tzinfo=UTC)
PREFIX = {"bely": "BELY", "epics": "PV", "wiki": "WIKI"}
GROUPS = ("public", "public", "ops", "rf")


def vectors(count: int, seed: int) -> np.ndarray:
    """Clustered, as texts are: sixty subjects with more or less of a spread."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((60, SIZE))
    subject = rng.integers(60, size=count)
    made = centres[subject] + rng.standard_normal((count, SIZE)) * (0.2 + subject[:, None] / 60)
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def rows(first: int, made: np.ndarray, labels: tuple[str, ...] = GROUPS) -> pa.RecordBatch:
    numbers = range(first, first + len(made))
    sources = [list(PREFIX)[n % len(PREFIX)] for n in numbers]
    keys = [f"{PREFIX[source]}:{n}" for source, n in zip(sources, numbers, strict=True)]
    columns = {
        "rid": list(numbers),
        "key": keys,
        "source": sources,
        "feed": sources,
        "access": [[labels[n % len(labels)]] for n in numbers],
        "chunk_id": [f"{key}#0.0" for key in keys],
        "passage_id": [f"{key}#0" for key in keys],
        "created_at": [START + timedelta(hours=n) for n in numbers],
        "text": [f"text {n}" for n in numbers],
        "vector": list(made),
    }
    return pa.RecordBatch.from_pydict(columns, schema=chunks_schema(SIZE))


class Kept:
    """A table of chunks that is changed and settled as a pipeline does, and what must be in it."""

    def __init__(self, folder: Path) -> None:
        self.tables = LanceTables(Home(folder).create())
        self.there: dict[int, tuple[np.ndarray, str, datetime]] = {}

    def put(self, first: int, made: np.ndarray, gone: range = range(0)) -> None:
        numbers = range(first, first + len(made))
        self.tables.replace(NAME, chunks_schema(SIZE), "rid", [*gone, *numbers], [rows(first, made)])
        for n in gone:
            self.there.pop(n, None)
        self.there |= {
            n: (vector, GROUPS[n % len(GROUPS)], START + timedelta(hours=n))
            for n, vector in zip(numbers, made, strict=True)
        }

    def settle(self) -> Meaning:
        self.tables.settle(NAME, WANTED)
        return Meaning(self.tables.table(NAME))

    def index_names(self) -> list[str]:
        return [index.name for index in self.tables.table(NAME).list_indices() if "vector" in index.columns]

    def recall(self, meaning: Meaning, filters: Filters, asked: np.ndarray) -> float:
        admitted = {
            n: vector
            for n, (vector, label, created) in self.there.items()
            if (filters.groups is None or label in filters.groups)
            and (filters.since is None or created >= filters.since)
        }
        numbers, stored = np.array(list(admitted)), np.array(list(admitted.values()))
        depth, shares = min(WIDE, len(numbers)), []
        for vector, hits in zip(asked, meaning.near(asked, filters, WIDE), strict=True):
            nearest = set(numbers[np.argsort(-(stored @ vector))[:depth]].tolist())
            shares.append(len(nearest & {int(hit.chunk_id.split(":")[1].split("#")[0]) for hit in hits}) / depth)
        return float(np.mean(shares))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds for a table of thousands of rows."""
    monkeypatch.setattr(indexing, "SCALAR_FROM_ROWS", 1_000)
    monkeypatch.setattr(indexing, "VECTOR_FROM_ROWS", 3_000)
    monkeypatch.setattr(indexing, "PARTITION_ROWS", 40)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    made = Kept(tmp_path)
    made.put(0, vectors(ROWS, 1))
    return made


ASKED = vectors(25, 99)
FILTERS = {
    "none": Filters(),
    "most": Filters(groups=frozenset({"public"})),
    "a quarter": Filters(groups=frozenset({"rf"})),
    "late": Filters(since=START + timedelta(hours=ROWS - 700)),
    "late and labelled": Filters(groups=frozenset({"ops"}), since=START + timedelta(hours=ROWS - 300)),
}


def test_the_index_finds_what_is_nearest_under_every_filter(kept: Kept) -> None:
    meaning = kept.settle()
    assert kept.index_names() == [f"vector_{ROWS}"]
    for name, filters in FILTERS.items():
        assert kept.recall(meaning, filters, ASKED) >= 0.98, name


def test_scores_are_cosines_with_and_without_an_index(kept: Kept) -> None:
    exact = Meaning(kept.tables.table(NAME)).near(ASKED, Filters(), WIDE)
    indexed = kept.settle().near(ASKED, Filters(), WIDE)
    for vector, one, other in zip(ASKED, exact, indexed, strict=True):
        for hits in (one, other):
            cosines = [float(kept.there[int(hit.chunk_id.split(":")[1].split("#")[0])][0] @ vector) for hit in hits]
            assert [hit.score for hit in hits] == pytest.approx(cosines, abs=1e-5)
            assert cosines == sorted(cosines, reverse=True)
        assert one[0] == pytest.approx(other[0]) or one[0].chunk_id == other[0].chunk_id


def test_filters_go_through_their_indexes(kept: Kept) -> None:
    kept.settle()
    table = kept.tables.table(NAME)
    for filters, index in (
        (Filters(groups=frozenset({"rf", "public"})), "access_idx(LabelList)"),
        (Filters(sources=("bely",)), "source_idx(Bitmap)"),
        (Filters(without=("bely",)), "source_idx(Bitmap)"),
        (Filters(feeds=("bely",)), "feed_idx(Bitmap)"),
        (Filters(since=START), "created_at_idx(BTree)"),
    ):
        condition = filters.narrowing()
        assert condition is not None
        plan = table.search(ASKED[0], vector_column_name="vector").where(condition, prefilter=True).explain_plan(True)
        assert index in plan
        assert "full_filter" not in plan


def test_the_owner_needs_no_condition_and_still_sees_only_what_is_labelled() -> None:
    assert Filters().narrowing() is None
    assert Filters(sources=("bely",)).narrowing() == "source in ('bely')"
    assert Filters(groups=frozenset({"rf"})).narrowing() == "array_has_any(access, ['rf'])"
    assert not Filters().admits([])


def test_rows_added_edited_and_deleted_are_found_so_at_once(kept: Kept) -> None:
    kept.settle()
    new, edited = vectors(1, 5)[0], vectors(1, 6)[0]
    kept.put(ROWS, np.array([new]))
    kept.put(17, np.array([edited]))
    kept.tables.replace(NAME, chunks_schema(SIZE), "rid", [23], [])
    gone = kept.there.pop(23)[0]
    for meaning in (Meaning(kept.tables.table(NAME)), kept.settle()):  # before and after the index knows of them
        best = [hits[0].chunk_id for hits in meaning.near(np.array([new, edited]), Filters(), 5)]
        assert [chunk.split(":")[1] for chunk in best] == [f"{ROWS}#0.0", "17#0.0"]
        assert not any(":23#" in hit.chunk_id for hit in meaning.near(gone[None], Filters(), ROWS)[0])
    table = kept.tables.table(NAME)
    assert all(table.index_stats(index.name).num_unindexed_rows == 0 for index in table.list_indices())


def test_many_releases_do_not_wear_the_index_out(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_MOST_PIECES", 3)
    kept.settle()
    pieces = []
    for day in range(6):
        kept.put(ROWS + 60 * day, vectors(60, 10 + day), gone=range(60 * day, 60 * day + 40))
        meaning = kept.settle()
        table = kept.tables.table(NAME)
        pieces.append(table.index_stats(kept.index_names()[0]).num_indices)
        assert all(table.index_stats(index.name).num_unindexed_rows == 0 for index in table.list_indices())
    assert max(pieces) <= 3
    assert len(kept.index_names()) == 1
    for name, filters in FILTERS.items():
        assert kept.recall(meaning, filters, ASKED) >= 0.98, name


def test_the_centres_are_found_anew_when_the_table_has_grown(kept: Kept) -> None:
    kept.settle()
    kept.put(ROWS, vectors(ROWS // 4, 3))
    kept.settle()
    assert kept.index_names() == [f"vector_{ROWS}"]
    kept.put(2 * ROWS, vectors(ROWS, 4))
    kept.settle()
    assert kept.index_names() == [f"vector_{2 * ROWS + ROWS // 4}"]


def test_an_index_that_a_dead_run_left_beside_its_successor_goes(kept: Kept) -> None:
    from lancedb.index import IvfSq

    kept.settle()
    # Larger than the table, so that it counts as the newer one.
    config = IvfSq(distance_type="cosine", num_partitions=20)
    kept.tables.table(NAME).create_index("vector", config=config, name=f"vector_{ROWS + 10}")
    assert len(kept.index_names()) == 2
    kept.settle()
    assert kept.index_names() == [f"vector_{ROWS + 10}"]


def test_a_small_table_has_no_index_and_is_searched_whole(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put(0, vectors(900, 1))
    meaning = kept.settle()
    assert kept.tables.table(NAME).list_indices() == []
    assert kept.recall(meaning, Filters(), ASKED) == 1.0
    assert kept.recall(meaning, Filters(groups=frozenset({"rf"})), ASKED) == 1.0
