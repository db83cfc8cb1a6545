"""Places learned from released edges, and records of one event that support each other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.fusion import SUPPORTERS, preferred, supported
from query.places import Place, beginnings, numbered

LOCATED = [
    ("s4a:q1", "Location:sector 4"),
    ("s12b:p3", "Location:sector 12"),
    ("s7:cc1", "Location:sector 7"),
    ("id04u", "Location:sector 4"),
    ("id12d", "Location:sector 12"),
    ("id31u", "Location:sector 31"),
    ("q4", "Location:sector 9"),
    ("q1", "Location:sector 2"),
    ("q2", "Location:sector 2"),
    ("q3", "Location:sector 2"),
    ("lonely5", "Location:sector 5"),
]


def test_numbered_stretches_the_longest_first() -> None:
    assert numbered("the klystron of RF station 1 tripped") == [("of rf station", 1), ("rf station", 1), ("station", 1)]
    assert numbered("in sector 032?") == [("in sector", 32), ("sector", 32)]
    assert numbered("S12A:Q3 read 82.4 kV at 08:30") == []


def test_beginnings_that_bear_the_number_of_their_place() -> None:
    assert beginnings(LOCATED) == ("id", "s")
    assert beginnings([]) == ()


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("s32a:q1", True),
        ("s32:cc3", True),
        ("s32", True),
        ("id32u", True),
        ("id032u", True),
        ("s3:q2", False),
        ("s321:q2", False),
        ("xs32a:q1", False),
    ],
)
def test_names_of_a_place(name: str, there: bool) -> None:
    pattern = Place("sector", 32, ("s", "id")).pattern
    assert pattern is not None
    assert bool(re.fullmatch(pattern, name)) is there


def test_a_place_without_names_has_no_pattern() -> None:
    assert Place("sector", 32).pattern is None


def record(item: str) -> str:
    return item.partition("#")[0]


def test_records_that_name_the_same_rare_thing_lift_each_other() -> None:
    scores = {"LONE#0": 1.0, "LOG#0": 0.9, "WRQ#0": 0.8, "DOWN#0": 0.7}
    named = {"LONE#0": {"x1", "everywhere"}, "LOG#0": {"s1"}, "WRQ#0": {"s1", "everywhere"}, "DOWN#0": {"s1"}}
    raised = supported(scores, named, record, lambda token: token == "everywhere", share=0.5)
    assert list(raised) == ["LOG#0", "WRQ#0", "DOWN#0", "LONE#0"]
    assert raised["LONE#0"] == 1.0
    assert raised["LOG#0"] == pytest.approx(0.9 + 0.5 * (0.8 + 0.7))


def test_passages_of_one_record_do_not_support_each_other() -> None:
    scores = {"DOC#0": 1.0, "DOC#1": 0.9}
    assert supported(scores, {"DOC#0": {"s1"}, "DOC#1": {"s1"}}, record, lambda _: False, share=0.5) == scores


@given(st.lists(st.integers(1, 100), min_size=1, max_size=20, unique=True))
def test_support_is_bounded_and_loses_nothing(values: list[int]) -> None:
    scores = {f"R{n}#0": 1.0 for n in values}
    raised = supported(scores, {item: {"s1"} for item in scores}, record, lambda _: False, share=0.3)
    assert set(raised) == set(scores)
    assert all(value <= 1.0 + 0.3 * SUPPORTERS + 1e-9 for value in raised.values())


def test_priors_reorder() -> None:
    assert list(preferred({"PV:a": 1.0, "BELY:b": 0.9}, lambda item: 0.5 if item.startswith("PV") else 1.0)) == [
        "BELY:b",
        "PV:a",
    ]
