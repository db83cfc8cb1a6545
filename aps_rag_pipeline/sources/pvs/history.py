"""Recorded values of PVs, and why there are none where there are none."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.net.http import Http
from aps_rag_pipeline.sources.pvs.answers import SEVERITIES, Value
from aps_rag_pipeline.sources.pvs.appliance import Appliance, appliance_time

#: Operators that give one value a bin, as `mean_600(PV)`.
OPERATORS = (
    *("firstSample", "lastSample", "firstFill", "lastFill", "mean", "min", "max", "count", "median", "std", "jitter"),
    *("variance", "popvariance", "kurtosis", "skewness", "ignoreflyers", "flyers"),
)
#: Why a window is empty: nobody archives the PV; the window ends before its first or begins after its last sample;
#: nothing was recorded in between; it cannot be told.
Verdict = Literal["", "never_archived", "before_archive", "after_archive", "gap", "unknown"]


@dataclass(frozen=True)
class Sample:
    """One recorded value. `severity` is a word; `fields` hold what the archiver kept beside it (lost connections)."""

    time: datetime
    value: Value
    severity: str = "NO_ALARM"
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """Samples of a window, in order. `before` is the last one before it, whose value held when it began (without an
    operator only). If there are no samples, `verdict` and `explanation` say why."""

    pv: str
    start: datetime
    end: datetime
    samples: tuple[Sample, ...] = ()
    before: Sample | None = None
    units: str = ""
    operator: str = ""
    truncated: bool = False
    verdict: Verdict = ""
    explanation: str = ""


def history(
    http: Http,
    url: str,
    pv: str,
    start: datetime,
    end: datetime,
    *,
    operator: str = "",
    bin_s: int = 0,
    max_samples: int = 10_000,
    retrieval_url: str = "",
) -> History:
    """What was recorded of a PV from `start` to `end` (aware).

    Without an `operator` the samples as they are, cut after `max_samples`; with one of `OPERATORS` a value a bin of
    `bin_s` seconds (0: so wide that at most `max_samples` come back).

    Raises:
        ValueError: a time without a zone, a window that ends before it begins, an operator that is unknown.
        OutageError: the archiver, or the appliance that keeps the PV, does not answer.
        TooLargeError: more than `network.max_response_mb`; ask for bins.
    """
    if start.tzinfo is None or end.tzinfo is None:
        raise ValueError("times need a zone")
    if end < start:
        raise ValueError("the window ends before it begins")
    if operator and operator not in OPERATORS:
        raise ValueError(f"no operator {operator!r}; there are: {', '.join(OPERATORS)}")
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    appliance = Appliance(http, url, retrieval_url)
    if operator:
        width = bin_s or max(math.ceil((end - start).total_seconds() / max(max_samples, 1)), 1)
        operator = f"{operator}_{width}"
    try:
        samples, units = _samples(appliance, f"{operator}({pv})" if operator else pv, start, end)
    except GoneError:
        verdict, explanation = _not_archived(appliance, pv)
        return History(pv, start, end, operator=operator, verdict=verdict, explanation=explanation)
    inside = [sample for sample in samples if operator or start <= sample.time <= end]
    before = next((sample for sample in reversed(samples) if sample.time < start), None) if not operator else None
    if inside:
        cut = tuple(inside[:max_samples])
        return History(pv, start, end, cut, before, units, operator, truncated=len(cut) < len(inside))
    if operator:
        earlier, units = _samples(appliance, pv, start, start)
        before = next((sample for sample in reversed(earlier) if sample.time < start), None)
    verdict, explanation = _emptiness(appliance, pv, start, end, before)
    return History(pv, start, end, (), before, units, operator, verdict=verdict, explanation=explanation)


def latest(http: Http, url: str, pv: str, *, now: datetime | None = None, retrieval_url: str = "") -> Sample | None:
    """The last recorded sample; None if nothing was ever recorded.

    Raises:
        GoneError: the PV is not archived.
        OutageError: the archiver, or the appliance that keeps the PV, does not answer.
    """
    appliance = Appliance(http, url, retrieval_url)
    found = _latest(appliance, pv, now or datetime.now(UTC))
    if found is None:
        _status(appliance, pv)
    return found


def _latest(appliance: Appliance, pv: str, now: datetime) -> Sample | None:
    """An archiver gives the last sample before a window with it; the window allows for clocks that differ."""
    samples, _ = _samples(appliance, pv, now, now + timedelta(hours=1))
    return samples[-1] if samples else None


def _samples(appliance: Appliance, asked: str, start: datetime, end: datetime) -> tuple[list[Sample], str]:
    url = f"{appliance.retrieval}/data/getData.json"
    reply = appliance.ask(url, params={"pv": asked, "from": _iso(start), "to": _iso(end)})
    if not isinstance(reply, list):
        raise OutageError(f"{url}: not a list but {str(reply)[:200]}")
    found: list[Sample] = []
    units = ""
    for part in reply:
        if isinstance(part, dict):
            meta = part.get("meta")
            units = units or (str(meta.get("EGU", "")) if isinstance(meta, dict) else "")
            found += [_sample(item) for item in part.get("data") or () if isinstance(item, dict)]
    return sorted(found, key=lambda sample: sample.time), units


def _sample(item: dict[str, Any]) -> Sample:
    moment = datetime.fromtimestamp(int(item["secs"]), UTC) + timedelta(microseconds=int(item.get("nanos", 0)) // 1000)
    severity = int(item.get("severity", 0))
    fields = item.get("fields")
    return Sample(
        moment,
        item.get("val"),
        SEVERITIES[severity] if 0 <= severity < len(SEVERITIES) else str(severity),
        {str(key): str(value) for key, value in fields.items()} if isinstance(fields, dict) else {},
    )


def _emptiness(
    appliance: Appliance, pv: str, start: datetime, end: datetime, before: Sample | None
) -> tuple[Verdict, str]:
    state = _status(appliance, pv)
    last = _latest(appliance, pv, max(datetime.now(UTC), end))
    since = _archived_since(appliance, pv)
    if last is None:
        told = f"archived since {_iso(since)}, but nothing" if since else "nothing"
        return "unknown", f"{pv}: {told} was ever recorded (status: {state or 'not told'})"
    if before is None:
        told = f"; it is archived since {_iso(since)}" if since else ""
        return "before_archive", f"{pv}: the window ends before the first recorded sample{told}"
    held = f"the last sample before the window is {before.value} at {_iso(before.time)}"
    if last.time <= before.time:
        return (
            "after_archive",
            f"{pv}: nothing is recorded after {_iso(before.time)} (status: {state or 'not told'}); {held}",
        )
    return "gap", (
        f"{pv}: nothing was recorded in the window, {held}. A monitored PV is recorded when it changes: it held that "
        "value, or it was disconnected or paused"
    )


def _not_archived(appliance: Appliance, pv: str) -> tuple[Verdict, str]:
    state = _status(appliance, pv)
    if state == "Initial sampling":
        return "never_archived", f"{pv}: archiving has been requested, but has not begun (status: {state})"
    return "never_archived", f"{pv}: it is not archived here (status: {state or 'not told'})"


def _status(appliance: Appliance, pv: str) -> str:
    """The state of a PV; empty where management does not tell.

    Raises:
        OutageError: its appliance is down, so that no data means nothing.
    """
    try:
        state = appliance.status([pv]).get(pv, {}).get("status", "")
    except OutageError:
        return ""
    if state == "Appliance Down":
        raise OutageError(f"{pv}: the appliance that keeps it does not answer")
    return state


def _archived_since(appliance: Appliance, pv: str) -> datetime | None:
    try:
        return appliance_time(str(appliance.type_info(pv).get("creationTime") or ""), UTC)
    except OutageError:
        return None


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
