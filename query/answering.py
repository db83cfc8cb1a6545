"""Answers without a language model: the sentences of the evidence that fit the question best, each with its key.

A sentence counts by how much of the question it covers (rare words count more), by how close in meaning it is, and by
whether it holds the kind of thing that is asked for. Too little of both, and there is no answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aps_rag_pipeline.knowledge import identifiers
from query.checking import unsupported
from query.expansion import Passage
from query.results import Sentence, Understanding
from query.words import content_words, statements, stems

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Sentences of an answer.
MOST_SENTENCES = 4
#: A further sentence must come this close to the best one.
_NEAR_BEST = 0.72
#: Two sentences that share this part of their words say the same.
_SAME = 0.75
#: Sentences whose meaning is compared; the rest is set aside by their words alone.
_COMPARED = 12
#: By its first so many characters: one long statement would make the whole batch as slow as itself.
_COMPARED_LENGTH = 240
_FEWEST_WORDS = 3
#: The best passages count more: share of a sentence's score that a passage at the end of the evidence loses.
_RANK_SHARE = 0.4
#: A statement with fewer words that the question has not said itself tells little, and counts by this factor.
_NEWS, _ECHO = 3, 0.5
_NUMBER_OR_NAME = re.compile(r"\d")
#: Of an event, its record says first what it was.
_EVENTS, _LEAD_BONUS = ("time", "troubleshooting"), 0.1
#: What the title of a record says counts for its sentences, but less than what they say themselves.
_TITLE_SHARE = 0.5

Embed = Callable[[list[str]], "NDArray[np.float32]"]
Frequency = Callable[[str], int]


@dataclass(frozen=True)
class Thresholds:
    """When evidence is sufficient: closeness in meaning, plus the covered part of the question, less the part of it
    that the corpus has no word for, must reach `sufficient`; with more than `most_absent` of it unknown nothing is.

    A release may carry values measured on its own corpus under `answer.<name>`.
    """

    sufficient: float = 0.3
    coverage_weight: float = 1.0
    absent_weight: float = 0.5
    most_absent: float = 0.8

    @classmethod
    def of(cls, calibrations: Mapping[str, float]) -> Thresholds:
        names = cls.__dataclass_fields__
        return cls(**{name: calibrations[f"answer.{name}"] for name in names if f"answer.{name}" in calibrations})


_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
#: What is asked for, and the signs of a sentence that has it.
_CUES = [
    (re.compile(asked, re.IGNORECASE), re.compile(given))
    for asked, given in (
        (
            r"\bwhy\b|\bcause|\breason\b|what was (?:wrong|behind|at fault)",
            r"(?i)\bcaus|because|due to|\btraced to|turned out|\bfound|culprit|\broot|fault[sy]? (?:in|was)",
        ),
        (
            r"\bfix|\brepair|\bresol|\bcured?\b|brought back|restor|solve",
            r"(?i)replac|swap|fix|repair|reset|clean|tighten|restart|reboot|install|chang|restor|resol|adjust|reseat",
        ),
        (
            r"^\W*when\b|what (?:time|date|day)",
            rf"(?i)\d{{1,2}}:\d\d|\d{{4}}-\d\d-\d\d|\b\d{{1,2}}/\d{{1,2}}\b|\b(?:{_MONTHS})[a-z]*\.? \d",
        ),
        (
            r"\bhow (?:long|much|high|low|many|often|far|fast|hot)\b|what (?:was|is) the\b|\bvalue\b|\blimit\b",
            r"\d",
        ),
        (r"\b(?:pvs?|process variable|signal|channel|readback)\b", r"\w:\w"),
        (r"\b(?:work (?:request|order)|ticket|wrq?)\b", r"(?i)\b(?:wrq?|work (?:request|order))\W*\d"),
        (r"\bserial\b", r"(?i)\bserial\b|\bs/n\b"),
        (r"\b(?:procedure|instructions?|document)\b", r"(?i)\bfollow|\bprocedure|\baccording to|\w_\d{3,}"),
        (r"\bhours?\b|how long|\bduration|\bdowntime\b", r"(?i)\d\s?(?:h|hrs?|hours?|min|minutes?)\b"),
        (r"^\W*who\b|\bwhom\b", r"\b[A-Z][a-z]+ [A-Z][a-z]+\b|\bby [A-Z]|^[a-z]{3,}\b.*:"),
    )
]
_CUE_BONUS = 0.15


class Weigher:
    """Weights of a question's words: the rarer in the reader's corpus, the heavier. `absent` is the part of the words
    that stand nowhere in it."""

    def __init__(self, question: Sequence[str], frequency: Frequency, size: int) -> None:
        counts = {stem: frequency(stem) for word in question for stem in stems(word)}
        self.weights = {stem: math.log(1 + (size - n + 0.5) / (n + 0.5)) for stem, n in counts.items()}
        self.total = sum(self.weights.values())
        self.absent = sum(not n for n in counts.values()) / len(counts) if counts else 0.0

    def coverage(self, *texts: tuple[str, float]) -> float:
        """Part of the question's weight that texts hold, each text counting by its share; 1 when nothing is asked."""
        if not self.total:
            return 1.0
        held: dict[str, float] = {}
        for text, share in texts:
            for stem in set(stems(text)) & self.weights.keys():
                held[stem] = max(held.get(stem, 0.0), share)
        return sum(self.weights[stem] * share for stem, share in held.items()) / self.total


@dataclass(frozen=True)
class Candidate:
    text: str
    passage: Passage
    place: int  # in its passage
    lowered: float  # factor of a passage that ranks lower
    score: float


@dataclass(frozen=True)
class Draft:
    """Checked sentences, and what speaks for the evidence as a whole: the part of the question's words that the best
    passage covers, the cosine of the closest one, and the part of the question's words that stand nowhere."""

    sentences: list[Sentence]
    coverage: float
    similarity: float
    absent: float

    def sufficient(self, thresholds: Thresholds) -> bool:
        if not self.sentences or self.absent > thresholds.most_absent:
            return False
        worth = self.similarity + thresholds.coverage_weight * self.coverage
        return worth - thresholds.absent_weight * self.absent >= thresholds.sufficient


def question_words(understanding: Understanding) -> list[str]:
    """What the question says that its answer should hold."""
    return [*understanding.words, *understanding.identifiers]


def draft(
    understanding: Understanding,
    telling: Sequence[str],
    passages: Sequence[Passage],
    weigh: Callable[[Sequence[str]], Weigher],
    similarity: Mapping[str, float],
    vector: NDArray[np.float32],
    embed: Embed,
) -> Draft:
    """The best sentences of the evidence.

    Args:
        telling: words of the question without those of the thing or place that it is about.
        similarity: cosine of the question to each passage's best chunk.
        vector: of the question, length 1.
        embed: vectors of sentences, one a row, of length 1.
    """
    cues = [given for asked, given in _CUES if asked.search(understanding.text)]
    candidates = sorted(_candidates(understanding, weigh(telling), passages, cues), key=lambda c: -c.score)
    scored = _scored(candidates[:_COMPARED], vector, embed)
    evidence = [passage.evidence() for passage in passages]
    sentences = [
        sentence for candidate in _chosen(scored) if not unsupported(sentence := _sentence(candidate), evidence)
    ]
    # That a thing is named where it is asked for says nothing; what is asked of it must be there too.
    asked = weigh(understanding.words)
    covered = max((asked.coverage((p.record.title, 1.0), (p.text, 1.0), (p.key, 1.0)) for p in passages), default=0.0)
    closest = max((similarity.get(p.passage_id, 0.0) for p in passages), default=0.0)
    return Draft(sentences, covered, closest, asked.absent)


def introduction(passages: Sequence[Passage], most: int = MOST_SENTENCES) -> list[Sentence]:
    """How a record that was asked for by name begins."""
    evidence = [passage.evidence() for passage in passages]
    found = [
        Sentence(text, [passage.key, *passage.also])
        for passage in passages
        for text in statements(passage.text, passage.kind)
        if text not in passage.title.split(" / ")  # a heading of the record says nothing of it
    ]
    return [sentence for sentence in found if not unsupported(sentence, evidence)][:most]


def cited_text(sentences: Sequence[Sentence]) -> str:
    """Sentences with their keys behind them: `The window cracked. [BELY:12345]`"""
    return " ".join(f"{sentence.text} {' '.join(f'[{key}]' for key in sentence.keys)}" for sentence in sentences)


def _candidates(
    understanding: Understanding, weigher: Weigher, passages: Sequence[Passage], cues: Sequence[re.Pattern[str]]
) -> list[Candidate]:
    """Every statement of the evidence, scored by its words and by the kind of thing it holds."""
    found = []
    said = set(stems(understanding.text))
    for rank, passage in enumerate(passages):
        lowered = 1 - _RANK_SHARE * rank / len(passages)
        heading = f"{passage.record.title} {passage.title} {passage.key}"
        for place, text in enumerate(statements(passage.text, passage.kind)):
            named = identifiers.find(text)
            if len(text.split()) < _FEWEST_WORDS and not set(named) & set(understanding.identifiers):
                continue
            coverage = weigher.coverage((heading, _TITLE_SHARE), (text, 1.0))
            bonus = _CUE_BONUS * sum(1 for cue in cues if cue.search(text))
            if place == 0 and understanding.intent in _EVENTS:
                bonus += _LEAD_BONUS
            news = len(set(stems(" ".join(content_words(text)))) - said)
            # A number or name that was not in the question is what it asks for, however short the statement.
            tells = news >= _NEWS or (bonus > 0 and bool(_NUMBER_OR_NAME.search(text)) and news > 0)
            factor = lowered if tells else lowered * _ECHO
            found.append(Candidate(text, passage, place, factor, (0.5 * coverage + bonus) * factor))
    return found


def _scored(candidates: Sequence[Candidate], vector: NDArray[np.float32], embed: Embed) -> list[Candidate]:
    """The candidates with their closeness in meaning added to their scores, best first."""
    if not candidates:
        return []
    closeness = (embed([candidate.text[:_COMPARED_LENGTH] for candidate in candidates]) @ vector).tolist()
    scored = [
        replace(candidate, score=candidate.score + 0.5 * max(close, 0.0) * candidate.lowered)
        for candidate, close in zip(candidates, closeness, strict=True)
    ]
    return sorted(scored, key=lambda c: -c.score)


def _chosen(scored: Sequence[Candidate]) -> list[Candidate]:
    """The best, and those near it that say something else; sentences of one passage in reading order."""
    chosen: list[Candidate] = []
    for candidate in scored:
        if len(chosen) == MOST_SENTENCES or candidate.score < _NEAR_BEST * scored[0].score:
            break
        words = set(stems(candidate.text))
        if all(len(words & (said := set(stems(c.text)))) < _SAME * min(len(words), len(said)) for c in chosen):
            chosen.append(candidate)
    order = {c.passage.passage_id: place for place, c in reversed(list(enumerate(chosen)))}
    return sorted(chosen, key=lambda c: (order[c.passage.passage_id], c.place))


def _sentence(candidate: Candidate) -> Sentence:
    return Sentence(candidate.text, [candidate.passage.key, *candidate.passage.also])
