"""The fields of EPICS records that somebody sets, apart from those that are measured."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from aps_rag_pipeline.sources.pvs.model import MANY_STATES, TWO_STATES

_LIMITS = ("HOPR", "LOPR", "DRVH", "DRVL", "HIHI", "HIGH", "LOW", "LOLO")
#: Upper and lower limits that are both 0 where nobody set them.
_PAIRS = (("HOPR", "LOPR"), ("DRVH", "DRVL"), ("HIHI", "LOLO"), ("HIGH", "LOW"))
#: Limits of control that repeat the ones of display where a record has none of its own.
_SAME = (("DRVH", "HOPR"), ("DRVL", "LOPR"))
_NUMBERS = frozenset({*_LIMITS, "PREC", "HYST", "ADEL", "MDEL", "NELM"})
#: What these say where nobody has said anything.
_DEFAULTS = {"PREC": "0", "HYST": "0", "ADEL": "0", "MDEL": "0", "SCAN": "Passive"}
#: Fields that somebody sets and that stay; all others may be values of the moment.
_LASTING = frozenset(
    {
        *_NUMBERS,
        *TWO_STATES,
        *MANY_STATES,
        *("DESC", "EGU", "SCAN", "DTYP", "FTVL", "HHSV", "HSV", "LSV", "LLSV", "ZSV", "OSV", "COSV", "UNSV", "CALC"),
        *("INP", "OUT", "FLNK", "DOL", "ASG", "PINI", "OMSL", "EVNT", "IVOA", "EGUF", "EGUL", "LINR"),
    }
)
_INPUT = re.compile(r"INP[A-U]|OUT[A-U]|LNK[0-9A-F]")


def lasting(fields: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a record that are set and not measured, as a database file would state them: numbers in their
    shortest form, and no limits where none are set."""
    found = {
        key: plain(value) if key in _NUMBERS else str(value)
        for key, value in fields.items()
        if (key in _LASTING or _INPUT.fullmatch(key)) and value is not None
    }
    for pair in _PAIRS:
        if all(found.get(key, "0") in ("0", "") for key in pair):
            for key in pair:
                found.pop(key, None)
    for control, display in _SAME:
        if found.get(control) == found.get(display):
            found.pop(control, None)
    return {key: value for key, value in found.items() if value and _DEFAULTS.get(key) != value}


def plain(value: Any) -> str:
    """A number in its shortest form; empty for NaN and infinities, which stand for what is not set."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "" if value is None else str(value).strip()
    return format(number, ".15g") if math.isfinite(number) else ""
