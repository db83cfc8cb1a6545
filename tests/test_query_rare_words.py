"""A word that few records hold finds them, whatever the vectors of the others say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from query import Corpus
from tests.small_facility import Facility

WORDS = [f"zqx{letter}bbchbb" for letter in "abcdefgh"]


@pytest.fixture(scope="module")
def facility(tmp_path_factory: pytest.TempPathFactory) -> Facility:
    made = Facility(tmp_path_factory.mktemp("rare"))
    made.log = {"shift": {n: f"Pump {n} tripped" for n in range(1, 301)}}
    for n, word in enumerate(WORDS, start=1):
        # Among so many other words a vector says little of this one, and short entries come nearer to it by chance.
        made.log["shift"][10 * n] = " ".join([f"remark{n}{k}" for k in range(60)] + [f"its tag says {word}"])
    made.write().sync()
    return made


@pytest.fixture(scope="module")
def corpus(facility: Facility) -> Iterator[Corpus]:
    with Corpus.open(facility.home, None) as opened:
        yield opened


@pytest.mark.parametrize(("place", "word"), enumerate(WORDS, start=1))
def test_a_rare_word_alone_finds_its_record_first(corpus: Corpus, place: int, word: str) -> None:
    found = corpus.search(word, k=5)
    assert found.hits[0].key == f"BELY:{10 * place}"
    assert len(found.hits) == 5


@pytest.mark.parametrize(("place", "word"), enumerate(WORDS, start=1))
def test_a_rare_word_among_common_ones_counts_too(corpus: Corpus, place: int, word: str) -> None:
    found = corpus.search(f"which pump is {word}", k=5)
    assert f"BELY:{10 * place}" in [hit.key for hit in found.hits]


def test_each_of_two_rare_words_finds_its_own(corpus: Corpus) -> None:
    found = corpus.search(f"{WORDS[2]} or {WORDS[5]}", k=2)
    assert {hit.key for hit in found.hits} == {"BELY:30", "BELY:60"}


def test_a_word_is_as_rare_for_every_reader_and_after_edits(corpus: Corpus, facility: Facility) -> None:
    for key in (10, 20):
        facility.log["shift"][key] += " again"
    facility.write().sync()
    for groups in (None, ()):
        with Corpus.open(facility.home, groups) as opened:
            channels = opened.search(WORDS[0], k=1).hits[0].channels
            assert channels["rare"] == 1


def test_a_common_word_alone_is_left_to_fusion(corpus: Corpus) -> None:
    assert len(corpus.search("pump", k=30).hits) == 30
