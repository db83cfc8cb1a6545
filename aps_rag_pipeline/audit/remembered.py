"""Which release was audited last and what came of it: a small file, so that the same release is not audited twice."""

from __future__ import annotations

from datetime import datetime

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import state

_FILE = "audit.json"


class LastAudit(msgspec.Struct, frozen=True):
    """`token` is that of the release's changeset: after a backup was restored a number may mean another release."""

    release: int
    token: str
    at: datetime
    findings: int


def read_last(home: Home) -> LastAudit | None:
    """The last audit of this home, None before the first."""
    return state.read(home.state / _FILE, LastAudit)


def remember(home: Home, findings: Findings) -> None:
    """Note that the newest release has been audited."""
    newest = releases.latest(home)
    if newest is None:
        return
    made = LastAudit(newest.number, newest.token, clock.now(), sum(findings.counts.values()))
    state.write(home.state / _FILE, made)


def is_audited(home: Home, last: LastAudit | None) -> bool:
    """Whether the newest release is the one that was audited last, and nothing was wrong."""
    newest = releases.latest(home)
    return newest is not None and last is not None and (last.release, last.token, last.findings) == (
        newest.number, newest.token, 0
    )  # fmt: skip
