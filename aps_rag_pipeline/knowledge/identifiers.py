"""Identifiers: tokens that must match exactly. Found by shape, compared in one normal form.

The same function serves the index and the query, so that what was found in a text is found by asking for it.
"""

from __future__ import annotations

import re

#: Letters and digits joined by the signs that facilities put inside names; no blank, so prose falls apart into words.
_TOKEN = re.compile(r"[A-Za-z0-9](?:[\w.\-:#/+]*[\w#+])?")
_KEY = re.compile(r"^(?:BELY|ICMS|WRQ|TEAMS|DOWN|SDDS|CODE|WIKI|PV):\S+$", re.IGNORECASE)
_SPACED_NUMBER = re.compile(r"\b(WRQ|WR|BELY|LOG|ICMS|DOWN|SDDS)[\s#:-]{1,3}(\d[\w-]*)\b", re.IGNORECASE)
_ALIASES = {"wr": "wrq", "log": "bely"}


def normal(token: str) -> str:
    """The form in which identifiers are compared: lower case, blanks as colons."""
    return re.sub(r"\s+", ":", token.strip()).lower()


def looks_like_identifier(token: str) -> bool:
    """A citation key, or a token with a digit or an inner sign that plain words do not have."""
    if _KEY.match(token):
        return True
    if len(token) < 2 or token.isdigit():
        return len(token) >= 4
    inner = token[1:-1]
    if any(sign in inner for sign in ":_#"):
        return True
    has_digit, has_letter = any(c.isdigit() for c in token), any(c.isalpha() for c in token)
    return has_digit and has_letter


def find(text: str) -> list[str]:
    """Normal forms of the identifiers in a text, each once, in order of appearance.

    A PV with a field (`S1:Q1.VAL`) also gives the PV without it; `WRQ 20417` also gives `wrq:20417`.
    """
    found: dict[str, None] = {}
    for match in _TOKEN.finditer(text):
        token = match.group().rstrip(".-:/+")
        if not looks_like_identifier(token):
            continue
        found[normal(token)] = None
        head, dot, tail = token.rpartition(".")
        if dot and ":" in head and tail.isupper():
            found[normal(head)] = None
    for match in _SPACED_NUMBER.finditer(text):
        prefix = match.group(1).lower()
        found[f"{_ALIASES.get(prefix, prefix)}:{match.group(2).lower()}"] = None
    return list(found)
