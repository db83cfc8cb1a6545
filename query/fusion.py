"""Reciprocal-rank fusion, weighted by what a question asks, under which no exact hit is ever lost.

With weights of .9 and .1 a hit that only BM25 finds, at its rank 1, scores below every hit of the dense channel down to
rank 488: weights alone would bury the one record that was asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from query.results import Intent

K = 60
#: How many fused hits are looked at further; an exact hit is never ranked behind this.
DEPTH = 50
#: At most so many of the places in `DEPTH` are kept for exact hits that fusion ranked lower.
RESERVED = 20
#: A word that no more chunks hold is rare: those that have it are a channel of their own.
RARE = 3

Weights = Mapping[str, float]
#: The best hits may support each other: so many hits, at most so many records one, and what each lends, by intent.
SUPPORT_DEPTH = 30
SUPPORTERS = 3
SUPPORT: dict[Intent, float] = {"troubleshooting": 0.3, "multi_hop": 0.3, "time": 0.3}
#: An identifier in more chunks than this ties nothing together.
TOO_COMMON = 30
#: Fixed weights instead of those by intent.
PROFILES: dict[str, Weights] = {
    "dense-heavy": {"dense": 0.9, "sparse": 0.1, "rare": 0.1, "exact": 0.1, "focus": 0.1, "period": 0.3},
    "even": {"dense": 0.5, "sparse": 0.5, "rare": 0.5, "exact": 0.5, "focus": 0.5, "period": 0.3},
}
WEIGHTS: dict[Intent, Weights] = {
    "identifier": {"dense": 0.1, "sparse": 0.3, "rare": 0.3, "exact": 1.0, "focus": 0.1, "period": 0.3},
    "fact": {"dense": 0.5, "sparse": 0.5, "rare": 0.5, "exact": 0.5, "focus": 2.0, "period": 0.3},
    "statistics": {"dense": 0.4, "sparse": 0.6, "rare": 0.5, "exact": 0.5, "focus": 1.0, "period": 0.3},
    "troubleshooting": {"dense": 0.5, "sparse": 0.5, "rare": 0.5, "exact": 0.5, "focus": 2.0, "period": 0.3},
    "multi_hop": {"dense": 0.5, "sparse": 0.5, "rare": 0.5, "exact": 0.5, "focus": 2.0, "period": 0.3},
    "concept": {"dense": 0.6, "sparse": 0.4, "rare": 0.5, "exact": 0.3, "focus": 0.5, "period": 0.3},
    "time": {"dense": 0.5, "sparse": 0.5, "rare": 0.5, "exact": 0.5, "focus": 1.0, "period": 0.3},
}
#: A list of process variables, or a script, names everything and tells little of what happened: unless a question asks
#: for those kinds, their scores count for less.
_INVENTORY = {"epics": 0.6, "code": 0.7, "sdds_docs": 0.7}
#: What is so in general stands in pages and documents rather than in what happened one day.
_GENERAL = {"bely": 0.7, "work_requests": 0.7, "teams": 0.7, "downtime": 0.7, **_INVENTORY, "sdds_docs": 0.9}
PRIORS: dict[Intent, Weights] = {
    "identifier": {},
    "fact": _INVENTORY,
    "statistics": _INVENTORY,
    "troubleshooting": _INVENTORY,
    "multi_hop": _INVENTORY,
    "concept": _GENERAL,
    "time": _INVENTORY,
}


def reciprocal_ranks(channels: Mapping[str, Sequence[str]], weights: Weights, k: int = K) -> dict[str, float]:
    """Score of every id of the channels: the sum of weight / (k + rank), ranks counted from 1; best first.

    A channel that `weights` does not name counts nothing, but its ids are kept. Equal scores keep the order of the
    channels. An id that stands twice in a channel counts by its better rank.
    """
    scores: dict[str, float] = {}
    for name, ids in channels.items():
        for rank, item in enumerate(dict.fromkeys(ids), start=1):
            scores[item] = scores.get(item, 0.0) + weights.get(name, 0.0) / (k + rank)
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def preferred(scores: Mapping[str, float], prior: Callable[[str], float]) -> dict[str, float]:
    """Scores times what is known beforehand of each id, best first."""
    return dict(sorted(((item, score * prior(item)) for item, score in scores.items()), key=lambda pair: -pair[1]))


def supported(
    scores: Mapping[str, float],
    named: Mapping[str, Collection[str]],
    record: Callable[[str], str],
    common: Callable[[str], bool],
    share: float,
) -> dict[str, float]:
    """Scores of hits, to each of which others lend a share of theirs: those of other records that name the same rare
    thing. An event that a log entry, a work request and a downtime record tell of is likelier meant than a lone match.

    Args:
        named: identifiers in the text of each of the best hits; hits that are not in it lend and gain nothing.
        record: the record of a hit; hits of one record do not support each other.
        common: whether an identifier stands in too many texts to tie any two together.
        share: part of its score that a hit lends; at most `SUPPORTERS` records lend to a hit.
    """
    holders: dict[str, list[str]] = {}
    for item in named:
        for token in named[item]:
            holders.setdefault(token, []).append(item)
    tying = {token: items for token, items in holders.items() if len(items) > 1 and not common(token)}
    raised = dict(scores)
    for item in named:
        lenders: dict[str, float] = {}
        for other in (other for token in named[item] for other in tying.get(token, ())):
            if record(other) != record(item):
                lenders[record(other)] = max(lenders.get(record(other), 0.0), scores[other])
        raised[item] += share * sum(sorted(lenders.values(), reverse=True)[:SUPPORTERS])
    return dict(sorted(raised.items(), key=lambda pair: -pair[1]))


def protect(
    order: Sequence[str], exact: Sequence[str], first: Sequence[str] = (), depth: int = DEPTH, reserved: int = RESERVED
) -> list[str]:
    """The fused order, in which `first` stand first and the best `reserved` exact hits stand within `depth`.

    Room is made by the worst hits that nobody asked for by name; nothing is dropped, and the rest keeps its order.
    """
    heads = list(dict.fromkeys(first))
    rest = [item for item in dict.fromkeys([*order, *exact]) if item not in heads]
    room = max(depth - len(heads), 0)
    inside, outside = rest[:room], rest[room:]
    wanted = [item for item in dict.fromkeys(exact) if item not in heads][: min(reserved, room)]
    late = [item for item in wanted if item not in inside]
    movable = [item for item in inside if item not in wanted]
    moved = set(movable[len(movable) - len(late) :]) if late else set()
    inside = [item for item in inside if item not in moved] + late
    return heads + inside + [item for item in rest if item in moved or (item in outside and item not in late)]
