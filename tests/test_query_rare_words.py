"""A word that few records hold finds them, whatever the vectors of the others say."""

from __future__ import annotations

import pytest

from query import Corpus
from tests.small_facility import Facility

WORDS = [f"zqx{letter}bbchbb" for letter in "abcdefgh"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory):
    made = Facility(tmp_path_factory.mktemp("rare"))
    made.log = {"shift": {n: f"Pump {n} tripped" for n in range(1, 301)}}
    for n, word in enumerate(WORDS, start=1):
        # Among so many other words a vector says little of this one, and short entries come nearer to it by chance.
        made.log["shift"][10 * n] = " ".join([f"remark{n}{k}" for k in range(60)] + [f"its tag says {word}"])
    made.write().sync()
    with Corpus.open(made.home, None) as opened:
        yield opened


@pytest.mark.parametrize(("place", "word"), enumerate(WORDS, start=1))
def test_a_rare_word_alone_finds_its_record_first(corpus: Corpus, place: int, word: str) -> None:
    found = corpus.search(word, k=5)
    assert found.hits[0].key == f"BELY:{10 * place}"
    assert len(found.hits) == 5


def test_a_common_word_alone_is_left_to_fusion(corpus: Corpus) -> None:
    assert len(corpus.search("pump", k=30).hits) == 30
