"""Slips of the eye in identifiers, settled by the names that are known; what is not known is left as it was read.

The text as read stays as it is; what it was taken for is said beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_READING = re.compile(
    r"([+-]?\d+\.\d+)(p?A|[mnuµk]A|[mnuµkM]?V|[muµkMG]?W|[kMG]?Hz|K|°C|[mu]?Torr|[mnuµ]?bar|psi|gpm|[mnuµ]?[ms]|[nµu]?C|h|%)"
)
#: Signs and pairs of them that Tesseract takes for one another, each by one that stands for all.
_ALIKE = re.compile(r"S\$|rn|[0OoQD1lI|!;:$S5B8‘'’`,.]")
_ONE = {
    **dict.fromkeys(("0", "O", "o", "Q", "D"), "0"),
    **dict.fromkeys(("1", "l", "I", "|", "!"), "1"),
    **dict.fromkeys((":", ";"), ":"),
    **dict.fromkeys((".", ","), "."),
    **dict.fromkeys(("S", "$", "S$", "5"), "S"),
    **dict.fromkeys(("B", "8"), "B"),
    **dict.fromkeys(("‘", "'", "’", "`"), ""),
    "rn": "m",
}
_SHORTEST = 5
_EDGES = "()[]{}<>\"“”,;.:!?'‘’`"


def spaced(word: str) -> str:
    """A reading of a screen with the blank before its unit, which screens draw too narrow to be seen."""
    reading = _READING.fullmatch(word)
    return word if reading is None else f"{reading[1]} {reading[2]}"


def shape(name: str) -> str:
    """What a name looks like: equal for names that differ by signs that look alike only."""
    return _ALIKE.sub(lambda found: _ONE[found[0]], name)


def shapes_in(text: str) -> set[str]:
    """The shapes of the words that may be names."""
    return {shape(word.strip(_EDGES)) for word in text.split() if len(word) >= _SHORTEST}


def names_within(variable: str) -> list[str]:
    """A process variable and the devices that its name runs through: `S35:KICKER:HVPS:VoltageM` names the device
    `S35:KICKER:HVPS` too."""
    steps = variable.split(":")
    return [variable, *(":".join(steps[:count]) for count in range(len(steps) - 1, 1, -1))]


class KnownNames:
    """The names of process variables and devices, by their looks; each with the labels of those who may see it."""

    def __init__(self, names: Iterable[tuple[str, frozenset[str]]]) -> None:
        self._by_shape: dict[str, dict[str, frozenset[str]]] = {}
        for name, access in names:
            if len(name) >= _SHORTEST and any(char.isalpha() for char in name):
                alike = self._by_shape.setdefault(shape(name), {})
                alike[name] = alike.get(name, frozenset()) | access

    def meant(self, word: str, access: Iterable[str]) -> str | None:
        """The one known name that `word` looks like, where every reader with `access` may see it.

        None where it is known itself, where no name looks like it, or where more than one does.
        """
        seen = word.strip(_EDGES)
        alike = self._by_shape.get(shape(seen), {})
        if len(seen) < _SHORTEST or len(alike) != 1 or seen in alike:
            return None
        name, visible = next(iter(alike.items()))
        return name if visible.issuperset(access) else None

    def notes(self, text: str, access: Iterable[str]) -> list[str]:
        """For each word that was misread, `name (for word)`, in the order of the text."""
        labels = tuple(access)
        words = dict.fromkeys(word.strip(_EDGES) for word in text.split())
        return [f"{name} (for {word})" for word in words if (name := self.meant(word, labels)) is not None]
