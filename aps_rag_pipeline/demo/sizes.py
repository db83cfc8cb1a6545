"""How many records each source gets."""

from __future__ import annotations

from collections.abc import Mapping

MIN_RECORDS = 300
_SHARE = {
    "epics": 0.15,
    "work_requests": 0.12,
    "teams": 0.10,
    "downtime": 0.05,
    "code": 0.03,
    "wiki": 0.04,
    "icms": 0.04,
    "sdds_docs": 0.02,
}
#: What the planted records need, and where a source has told its story: office documents are dear, devices are finite.
_LEAST = {"epics": 45, "work_requests": 36, "teams": 30, "downtime": 20, "code": 12, "wiki": 26, "icms": 38,
          "sdds_docs": 10}  # fmt: skip
_MOST = {"epics": 13_500, "code": 1_500, "wiki": 3_000, "icms": 1_500, "sdds_docs": 800}


def counts(records: int) -> Mapping[str, int]:
    """Records per source; the log book takes what the others leave.

    Raises:
        ValueError: too few records for the planted ones.
    """
    if records < MIN_RECORDS:
        raise ValueError(f"a demo facility needs at least {MIN_RECORDS} records, not {records}")
    found = {
        source: min(max(round(records * share), _LEAST[source]), _MOST.get(source, records))
        for source, share in _SHARE.items()
    }
    return {"bely": records - sum(found.values()), **found}


def incidents(records: int) -> int:
    return min(max(records // 75, 14), 400)


def extras(records: int) -> int:
    """How many late entries there are, and as many duplicates, corrections and contradictions."""
    return min(max(records // 500, 3), 20)
