"""Other wordings of a question: they widen what is found by words and meaning, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from query import Corpus
from query.filters import Filters
from query.retrieval import AHEAD, Found, capped
from tests.released import Written, write_release

RECORDS = [
    Written("bely", "1", "Cooling", ("The chiller lost its coolant and the magnets grew hot.",)),
    Written("bely", "2", "Refrigeration", ("A refrigerator leaked freon through a cracked elbow.",)),
    Written("teams", "3", "Hidden", ("A refrigerator leaked freon in the vault.",), access=("rf",)),
    *(Written("wiki", f"page{n}", f"Page {n}", (f"Instructions number {n} for the beamline.",)) for n in range(30)),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    home = write_release(tmp_path_factory.mktemp("variants"), RECORDS)
    with Corpus.open(home, set()) as opened:
        yield opened


def ranks(corpus: Corpus, text: str, *variants: str) -> dict[str, dict[str, int]]:
    return {hit.key: hit.channels for hit in corpus.search(text, k=50, variants=variants).hits}


def test_a_wording_finds_by_words_what_the_question_does_not(corpus: Corpus) -> None:
    assert "sparse" not in ranks(corpus, "chiller coolant trouble").get("BELY:2", {})
    found = ranks(corpus, "chiller coolant trouble", "refrigerator freon leaked")
    assert found["BELY:1"]["sparse"] <= 2
    assert found["BELY:2"]["sparse"] <= 2
    assert found["BELY:2"]["dense"] <= 2


def test_the_same_wording_again_changes_nothing(corpus: Corpus) -> None:
    text = "why did the chiller lose its coolant?"
    assert corpus.search(text, variants=[text, f"  {text}  ", ""]).to_dict() == corpus.search(text).to_dict()


def test_the_question_alone_says_what_is_asked_for(corpus: Corpus) -> None:
    asked = corpus.search("chiller coolant", variants=["BELY:2 yesterday", "sector 4"])
    assert asked.understanding == corpus.search("chiller coolant").understanding
    assert all("exact" not in hit.channels for hit in asked.hits)


def test_a_wording_finds_nothing_that_the_reader_may_not_see(corpus: Corpus) -> None:
    assert "TEAMS:3" not in ranks(corpus, "chiller", "refrigerator leaked freon in the vault")


def test_answers_take_wordings_too(corpus: Corpus) -> None:
    answer = corpus.ask("chiller coolant", variants=["refrigerator leaked freon"])
    assert {"BELY:1", "BELY:2"} <= {item.key for item in answer.evidence or answer.nearest}


def test_one_text_is_not_taken_letter_by_letter(corpus: Corpus) -> None:
    with pytest.raises(TypeError, match="one text"):
        corpus.search("chiller", variants="coolant")


@pytest.mark.parametrize("flood", [30, 90, 150, 400])
def test_looking_ahead_gives_what_asking_again_gives(flood: int) -> None:
    hits = [
        *(Found(f"PV:{n}#0.0", "epics", 1 - n / 1000) for n in range(flood)),
        *(Found(f"BELY:{n}#0.0", "bely", 0.9 - n / 500) for n in range(70)),
        *(Found(f"WIKI:{n}#0.0", "wiki", 0.7 - n / 900) for n in range(60)),
    ]
    asked: list[Filters] = []

    def fetch(filters: Filters, limit: int) -> list[Found]:
        asked.append(filters)
        there = [hit for hit in hits if hit.source not in filters.without]
        return sorted(there, key=lambda hit: -hit.score)[:limit]

    again = capped(fetch, Filters())
    ahead = fetch(Filters(), AHEAD)
    asked.clear()
    assert capped(fetch, Filters(), ahead=ahead) == again
    assert all(filters == replace(Filters(), without=filters.without) for filters in asked)
    if flood < 100:
        assert asked == []  # nothing had to be asked for again


def test_the_release_is_let_go_with_its_threads(tmp_path: Path) -> None:
    home = write_release(tmp_path, RECORDS[:2])
    with Corpus.open(home, None) as opened:
        opened.search("chiller")
        pool = opened._snapshot.pool
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(print)
