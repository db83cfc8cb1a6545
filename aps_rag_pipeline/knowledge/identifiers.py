"""Identifiers: tokens that must match exactly. Found by shape, compared in one normal form.

The same function serves the index and the query, so that what was found in a text is found by asking for it.
"""

from __future__ import annotations

import re

#: Letters and digits joined by the signs that facilities put inside names; no blank, so prose falls apart into words.
_TOKEN = re.compile(r"[A-Za-z0-9](?:[\w.\-:#/+]*[\w#+])?")
_KEY = re.compile(r"^(?:BELY|ICMS|WRQ|TEAMS|DOWN|SDDS|CODE|WIKI|PV):\S+$", re.IGNORECASE)
_SPACED_NUMBER = re.compile(
    r"\b(WRQ|WR|work\s+(?:request|order)|BELY|LOG|log\s+entry|ICMS|DOWN|downtime(?:\s+(?:record|event))?|SDDS)"
    r"(?:\s+(?:no\.?|number))?[\s#:-]{1,3}(\d[\w-]*)\b",
    re.IGNORECASE,
)
_ALIASES = {"wr": "wrq", "work": "wrq", "log": "bely", "downtime": "down"}
#: A number with its unit, an ordinal or a time of day: a value, not a name.
_QUANTITY = re.compile(
    r"^\d[\d.,]*(?:e[+-]?\d+)?-?"
    r"(?:st|nd|rd|th|am|pm|h|hrs?|hours?|mins?|minutes?|s|secs?|days?|d|y|x|k|"
    r"[kmgtunpµμ]?(?:v|a|w|hz|ev|ohm|ohms|torr|pa|bar|m|m2|m3|j|t|g|l|s|f|h|b|bps|rad|vdc|vac|va|wh)|[kmg]?ib|"
    r"degc?|degf|c|dbm?|gpm|lpm|psi[ag]?|rpm|cm|in|ft|lb|lbs|gauss|pct|ppm|ppb|px|bit|bits|bytes|turns?|pole|phase)$",
    re.IGNORECASE,
)


def normal(token: str) -> str:
    """The form in which identifiers are compared: lower case, blanks as colons."""
    return re.sub(r"\s+", ":", token.strip()).lower()


def looks_like_identifier(token: str) -> bool:
    """A citation key, or a token with a digit or an inner sign that plain words do not have."""
    if token.isalpha():  # most words of a text, at a tenth of the cost of looking closer
        return False
    if _KEY.match(token):
        return True
    if len(token) < 2 or token.isdigit():
        return len(token) >= 4
    if _QUANTITY.match(token):
        return False
    has_digit, has_letter = any(c.isdigit() for c in token), any(c.isalpha() for c in token)
    inner = token[1:-1]
    if any(sign in inner for sign in ":_#"):
        return has_letter
    return has_digit and has_letter


def find(text: str) -> list[str]:
    """Normal forms of the identifiers in a text, each once, in order of appearance.

    A PV with a field (`S1:Q1.VAL`) also gives the PV without it; `WRQ 20417` and `work request 20417` also give
    `wrq:20417`.
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
        prefix = match.group(1).lower().split()[0]
        found[f"{_ALIASES.get(prefix, prefix)}:{match.group(2).lower()}"] = None
    return list(found)
