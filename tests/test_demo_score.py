"""Scoring: an oracle gets everything, a fool nothing, and figures are matched whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from aps_rag_pipeline.demo import load_truth, score, write
from aps_rag_pipeline.demo.facility import Facility
from aps_rag_pipeline.demo.plan import make
from aps_rag_pipeline.demo.questions import make as make_questions
from aps_rag_pipeline.demo.score import first_rank, holds
from aps_rag_pipeline.demo.truth import QUESTION_TYPES, Question, Truth


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    out = tmp_path_factory.mktemp("demo") / "out"
    write(out, seed=2, records=300)
    return load_truth(out)


class Oracle:
    """Knows the truth by heart."""

    def __init__(self, truth: Truth) -> None:
        self.questions: dict[str, Question] = {question.text: question for question in truth.questions}
        self.identifiers = {known.text: (known.own or known.gold[0]) for known in truth.identifiers}

    def search(self, text: str, k: int) -> list[str]:
        if text in self.questions:
            return list(self.questions[text].gold)[:k]
        return [self.identifiers[text]]

    def ask(self, text: str) -> tuple[bool, str, list[str]]:
        question = self.questions[text]
        return question.answerable, "It was " + " and ".join(question.nuggets) + ".", list(question.gold[:1])


def test_an_oracle_gets_everything(truth: Truth) -> None:
    oracle = Oracle(truth)
    table = score(truth, oracle.search, oracle.ask)
    assert [row.type for row in table.types] == list(QUESTION_TYPES)
    for row in (*table.types, table.all):
        assert (row.hit_1, row.hit_5, row.mrr, row.nuggets, row.answered, row.cited) == (1, 1, 1, 1, 1, 1)
    assert (table.refusal_precision, table.refusal_recall) == (1, 1)
    assert {row.kind: row.first for row in table.identifiers} == {
        "content_id": 1, "device": 1, "key": 1, "number": 1, "pv": 1,
    }  # fmt: skip
    assert table.failed == ()
    assert table.all.questions + table.unanswerable == len(truth.questions)


def test_one_that_knows_nothing_and_says_so_only_refuses_rightly_by_chance(truth: Truth) -> None:
    table = score(truth, lambda text, k: [], lambda text: (False, "", []))
    assert (table.all.hit_5, table.all.mrr, table.all.nuggets, table.all.answered) == (0, 0, 0, 0)
    assert table.refusal_recall == 1
    assert table.refusal_precision == pytest.approx(table.unanswerable / len(truth.questions))
    assert len(table.failed) == table.all.questions
    assert all(row.first == 0 and len(row.misses) == row.identifiers for row in table.identifiers)


def test_one_that_always_talks_is_told_so(truth: Truth) -> None:
    table = score(truth, lambda text, k: ["BELY:1"], lambda text: (True, "42", ["BELY:1"]))
    assert (table.refusal_precision, table.refusal_recall) == (0, 0)
    assert table.all.answered == 1
    assert table.all.cited == 0


def test_ranks_below_the_first_count_less(truth: Truth) -> None:
    oracle = Oracle(truth)
    third = score(truth, lambda text, k: ["BELY:1", "BELY:2", *oracle.search(text, k)], oracle.ask)
    assert (third.all.hit_1, third.all.hit_5) == (0, 1)
    assert third.all.mrr == pytest.approx(1 / 3)
    assert all(row.misses[0][1] == 3 for row in third.identifiers)


@pytest.mark.parametrize(
    ("answer", "nugget", "right"),
    [
        ("it drew 3.4 A", "3.4", True),
        ("it drew 13.4 A", "3.4", False),
        ("it drew 3.45 A", "3.4", False),
        ("The Blower  B2 had seized.", "blower B2", True),
        ("blower B21", "blower B2", False),
        ("total 7.9 h.", "7.9", True),
        ("2 events", "2", True),
        ("in Q2 2025", "2", False),
        ("it read -0.17 mm then", "-0.17 mm", True),
        ("S12A:Q3:DacAI moved", "S12A:Q3:DacAI", True),
        ("1,234 h", "1", False),
        ("", "3", False),
    ],
)
def test_nuggets_are_matched_whole(answer: str, nugget: str, right: bool) -> None:
    assert holds(answer, nugget) is right


def test_first_rank_counts_from_one_and_is_zero_without_gold() -> None:
    assert first_rank(["a", "b", "c"], {"b", "c"}) == 2
    assert first_rank(["a"], {"b"}) == 0
    assert first_rank([], {"b"}) == 0


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_any_seed_asks_enough_and_each_question_once(seed: int, held_out: bool) -> None:
    questions = make_questions(make(seed, 300 + seed * 500, held_out))
    answerable = [question for question in questions if question.answerable]
    for kind in QUESTION_TYPES:
        assert sum(question.type == kind for question in answerable) >= 12
    assert len({question.text for question in questions}) == len(questions)
    assert all(question.gold and question.nuggets for question in answerable)
    assert all("{" not in question.text for question in questions)


def test_names_of_the_facility_are_unique() -> None:
    devices = Facility(1).devices
    signals = [device.pv(signal.suffix) for device in devices for signal in device.kind.signals]
    assert len({device.name for device in devices}) == len(devices)
    assert len(set(signals)) == len(signals)
    assert not set(signals) & {device.name for device in devices}


def test_the_demo_folder_needs_a_truth(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_truth(tmp_path)
