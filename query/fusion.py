"""Reciprocal-rank fusion, weighted by what a question asks, under which no exact hit is ever lost.

With weights of .9 and .1 a hit that only BM25 finds, at its rank 1, scores below every hit of the dense channel down to
rank 488: weights alone would bury the one record that was asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from query.results import Intent

K = 60
#: How many fused hits are looked at further; an exact hit is never ranked behind this.
DEPTH = 50
#: At most so many of the places in `DEPTH` are kept for exact hits that fusion ranked lower.
RESERVED = 20

Weights = Mapping[str, float]
#: Fixed weights instead of those by intent.
PROFILES: dict[str, Weights] = {
    "dense-heavy": {"dense": 0.9, "sparse": 0.1, "exact": 0.1, "focus": 0.1},
    "even": {"dense": 0.5, "sparse": 0.5, "exact": 0.5, "focus": 0.5},
}
WEIGHTS: dict[Intent, Weights] = {
    "identifier": {"dense": 0.1, "sparse": 0.3, "exact": 1.0, "focus": 0.1},
    "fact": {"dense": 0.5, "sparse": 0.5, "exact": 0.5, "focus": 2.0},
    "statistics": {"dense": 0.4, "sparse": 0.6, "exact": 0.5, "focus": 1.0},
    "troubleshooting": {"dense": 0.5, "sparse": 0.5, "exact": 0.5, "focus": 2.0},
    "multi_hop": {"dense": 0.5, "sparse": 0.5, "exact": 0.5, "focus": 2.0},
    "concept": {"dense": 0.6, "sparse": 0.4, "exact": 0.3, "focus": 0.5},
    "time": {"dense": 0.5, "sparse": 0.5, "exact": 0.5, "focus": 1.0},
}
#: A list of process variables, or a script, names everything and tells little of what happened: unless a question asks
#: for those kinds, their scores count for less.
_INVENTORY = {"epics": 0.6, "code": 0.7}
PRIORS: dict[Intent, Weights] = {
    "identifier": {},
    "fact": _INVENTORY,
    "statistics": _INVENTORY,
    "troubleshooting": _INVENTORY,
    "multi_hop": _INVENTORY,
    "concept": {"epics": 0.6},
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
