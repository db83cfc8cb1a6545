"""How well a search finds and answers what the demo planted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from aps_rag_pipeline.demo.truth import QUESTION_TYPES, Identifier, Question, Truth

#: text, k -> citation keys, best first.
Search = Callable[[str, int], list[str]]
#: text -> (answered, answer, cited keys).
Ask = Callable[[str], tuple[bool, str, list[str]]]
_DEPTH = 10


class TypeScore(msgspec.Struct, frozen=True):
    """Scores of one type of question, all from 0 to 1. `nuggets`, `answered` and `cited` are about the answers."""

    type: str
    questions: int
    hit_1: float
    hit_5: float
    mrr: float
    nuggets: float
    answered: float
    cited: float


class IdentifierScore(msgspec.Struct, frozen=True):
    """Bare identifiers: how often the right record comes first. `misses` are (text, rank or 0 when not found)."""

    kind: str
    identifiers: int
    first: float
    misses: tuple[tuple[str, int], ...]


class ScoreTable(msgspec.Struct, frozen=True):
    """`refusal_precision`: of what was refused, the share that has no answer; `refusal_recall`: of what has none, the
    share that was refused. `failed`: ids of questions whose gold is not among the first five, or wrongly (not) refused.
    """

    types: tuple[TypeScore, ...]
    all: TypeScore
    refusal_precision: float
    refusal_recall: float
    unanswerable: int
    identifiers: tuple[IdentifierScore, ...]
    failed: tuple[str, ...]


class _Result(msgspec.Struct, frozen=True):
    question: Question
    rank: int
    answered: bool
    nuggets: float
    cited: bool


def score(truth: Truth, search: Search, ask: Ask) -> ScoreTable:
    """Put every question and identifier of the truth to `search`, and every question to `ask`."""
    results = [_result(question, search, ask) for question in truth.questions]
    answerable = [result for result in results if result.question.answerable]
    hopeless = [result for result in results if not result.question.answerable]
    refused = [result for result in results if not result.answered]
    rightly = [result for result in hopeless if not result.answered]
    failed = [r.question.id for r in answerable if not 1 <= r.rank <= 5 or not r.answered]
    failed += [result.question.id for result in hopeless if result.answered]
    return ScoreTable(
        tuple(_type_score(name, [r for r in answerable if r.question.type == name]) for name in QUESTION_TYPES),
        _type_score("all", answerable),
        len(rightly) / len(refused) if refused else 0.0,
        len(rightly) / len(hopeless) if hopeless else 0.0,
        len(hopeless),
        identifier_scores(truth.identifiers, search),
        tuple(failed),
    )


def identifier_scores(identifiers: Sequence[Identifier], search: Search) -> tuple[IdentifierScore, ...]:
    """Per kind: an identifier that names a record must find it first; one that names none, a record of its gold set."""
    found: dict[str, list[tuple[str, int]]] = {}
    for identifier in identifiers:
        right = (identifier.own,) if identifier.own else identifier.gold
        rank = first_rank(search(identifier.text, _DEPTH), right)
        found.setdefault(identifier.kind, []).append((identifier.text, rank))
    return tuple(
        IdentifierScore(
            kind, len(ranks), _mean(rank == 1 for _, rank in ranks), tuple(pair for pair in ranks if pair[1] != 1)
        )
        for kind, ranks in sorted(found.items())
    )


def first_rank(keys: Sequence[str], gold: Iterable[str]) -> int:
    """Rank (from 1) of the first key that is right; 0 when there is none."""
    right = set(gold)
    return next((rank for rank, key in enumerate(keys, start=1) if key in right), 0)


def holds(answer: str, nugget: str) -> bool:
    """Whether an answer holds a nugget as a whole: letter case and blanks apart, and 3.4 is not in 13.45."""
    words = r"\s+".join(re.escape(word) for word in nugget.split())
    return re.search(rf"(?<![\w.]){words}(?!\w|[.,]\d)", answer, re.IGNORECASE) is not None


def _result(question: Question, search: Search, ask: Ask) -> _Result:
    answered, answer, cited = ask(question.text)
    rank = first_rank(search(question.text, _DEPTH), question.gold) if question.answerable else 0
    nuggets = _mean(answered and holds(answer, nugget) for nugget in question.nuggets)
    return _Result(question, rank, answered, nuggets, answered and bool(set(cited) & set(question.gold)))


def _type_score(name: str, results: Sequence[_Result]) -> TypeScore:
    return TypeScore(
        name,
        len(results),
        _mean(result.rank == 1 for result in results),
        _mean(1 <= result.rank <= 5 for result in results),
        _mean(1 / result.rank if result.rank else 0.0 for result in results),
        _mean(result.nuggets for result in results),
        _mean(result.answered for result in results),
        _mean(result.cited for result in results),
    )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
