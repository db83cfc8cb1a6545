"""Weighted reciprocal-rank fusion, and the promise that no exact hit is lost in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.fusion import DEPTH, PROFILES, RESERVED, WEIGHTS, protect, reciprocal_ranks

DENSE_HEAVY = PROFILES["dense-heavy"]
ids = st.lists(st.integers(0, 60).map(str), max_size=60)


def dense_only(count: int) -> list[str]:
    return [f"d{rank}" for rank in range(1, count + 1)]


def rank_of(item: str, scores: dict[str, float]) -> int:
    return list(scores).index(item) + 1


def test_with_nine_to_one_a_bm25_hit_alone_loses_to_488_dense_hits() -> None:
    scores = reciprocal_ranks({"dense": dense_only(600), "sparse": ["only"]}, DENSE_HEAVY)
    assert all(scores[f"d{rank}"] > scores["only"] for rank in range(1, 489))
    assert scores["d489"] == pytest.approx(scores["only"])
    assert scores["d490"] < scores["only"]


@pytest.mark.parametrize(("dense_rank", "fused_rank"), [(8, 1), (20, 10), (50, 32), (100, 64)])
def test_a_hit_of_both_channels_gains_modestly_with_nine_to_one(dense_rank: int, fused_rank: int) -> None:
    dense = [*dense_only(dense_rank - 1), "both", *(f"later{n}" for n in range(30))]
    scores = reciprocal_ranks({"dense": dense, "sparse": ["both"]}, DENSE_HEAVY)
    assert abs(rank_of("both", scores) - fused_rank) <= 1


def test_dense_rank_nine_is_not_enough_for_the_first_place_with_nine_to_one() -> None:
    dense = [*dense_only(8), "both"]
    assert rank_of("both", reciprocal_ranks({"dense": dense, "sparse": ["both"]}, DENSE_HEAVY)) > 1


def test_even_weights_tie_the_two_first_hits() -> None:
    scores = reciprocal_ranks({"dense": ["a"], "sparse": ["b"]}, PROFILES["even"])
    assert scores["a"] == scores["b"] == pytest.approx(0.5 / 61)


def test_repeated_ids_count_by_their_better_rank() -> None:
    assert reciprocal_ranks({"dense": ["a", "b", "a"]}, {"dense": 1.0}) == {"a": 1 / 61, "b": 1 / 62}


def test_every_intent_weighs_every_channel() -> None:
    for weights in (*WEIGHTS.values(), *PROFILES.values()):
        assert set(weights) == {"dense", "sparse", "rare", "exact", "focus", "period"}
        assert all(weight > 0 for weight in weights.values())


@given(dense=ids, sparse=ids, weight=st.floats(0.01, 0.99))
def test_fusion_keeps_every_id_once_and_agreement_never_harms(
    dense: list[str], sparse: list[str], weight: float
) -> None:
    weights = {"dense": weight, "sparse": 1 - weight}
    scores = reciprocal_ranks({"dense": dense, "sparse": sparse}, weights)
    assert set(scores) == {*dense, *sparse}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    alone = reciprocal_ranks({"dense": dense}, weights)
    assert all(scores[item] >= alone[item] for item in alone)


def test_a_sparse_only_exact_hit_survives_whatever_the_weights() -> None:
    for weights in (DENSE_HEAVY, {"dense": 1.0, "sparse": 0.0, "exact": 0.0}, *WEIGHTS.values()):
        channels = {"dense": dense_only(600), "sparse": ["wanted"], "exact": ["wanted"]}
        order = protect(list(reciprocal_ranks(channels, weights)), channels["exact"])
        assert "wanted" in order[:DEPTH]


@given(order=ids, exact=ids, first=st.lists(st.integers(0, 60).map(str), max_size=3), depth=st.integers(1, 50))
def test_protection_loses_nothing_and_keeps_its_promise(
    order: list[str], exact: list[str], first: list[str], depth: int
) -> None:
    kept = protect(order, exact, first, depth)
    heads = list(dict.fromkeys(first))
    assert sorted(kept) == sorted({*order, *exact, *first})
    assert kept[: len(heads)] == heads
    wanted = [item for item in dict.fromkeys(exact) if item not in heads][: min(RESERVED, max(depth - len(heads), 0))]
    assert set(wanted) <= set(kept[: max(depth, len(heads))])


def test_protection_leaves_an_order_alone_that_holds_all_exact_hits() -> None:
    assert protect(["a", "b", "c"], ["c"], depth=3) == ["a", "b", "c"]
    assert protect(["a", "b", "c", "x"], ["x"], depth=3) == ["a", "b", "x", "c"]
