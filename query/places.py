"""Places that a question names ("sector 32", "RF station 1"), and the identifiers that stand for things there.

People ask about a place and write about a device. How the two are tied is learned from what the released sources state:
components located in "sector 4" are called S4A:Q1 or ID04u, so for "sector 32" names that begin with S32 or ID32 count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

#: Words of a place before its number.
LONGEST_PLACE = 3
#: A beginning of names is tied to a kind of place when it is found there this often,
_FEWEST = 3
#: and when this part of the names with that beginning bear the number of their place.
_AGREEMENT = 0.6
_NUMBERED = re.compile(r"\b([A-Za-z][\w-]*(?:\s+[A-Za-z][\w-]*){0,2})\s+#?0*(\d{1,4})\b(?![:.-]?\d|[A-Za-z])")
_BEGINNING = re.compile(r"^([a-z]+)[:_-]?0*(\d+)(?!\d)")


@dataclass(frozen=True)
class Place:
    """A kind of place and its number, with the beginnings of the names of what stands in places of that kind."""

    kind: str
    number: int
    beginnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"

    @property
    def pattern(self) -> str | None:
        """A regular expression over whole identifiers in normal form; None where no name is tied to the place."""
        if not self.beginnings:
            return None
        return f"(?:{'|'.join(map(re.escape, self.beginnings))})[:_-]?0*{self.number}(?:[^0-9].*)?"


def numbered(text: str) -> list[tuple[str, int]]:
    """Every stretch of a text that could name a place, the longest first: words and the number behind them."""
    found = []
    for match in _NUMBERED.finditer(text):
        words = match[1].lower().split()
        found += [(" ".join(words[start:]), int(match[2])) for start in range(len(words))]
    return sorted(dict.fromkeys(found), key=lambda item: -len(item[0].split()))


def beginnings(located: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Beginnings of names that bear the number of their place, from (name in lower case, name of its place)."""
    agreed: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for name, place in set(located):
        number = place.rpartition(" ")[2]
        match = _BEGINNING.match(name)
        if match is None or not number.isdigit():
            continue
        seen[match[1]] += 1
        agreed[match[1]] += int(match[2]) == int(number)
    return tuple(sorted(b for b, n in agreed.items() if n >= _FEWEST and n >= _AGREEMENT * seen[b]))
