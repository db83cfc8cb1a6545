"""Which release was audited last and what came of it: a small file, so that nothing is proved twice."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import state

_FILE = "audit.json"
#: After so long everything is looked at again, also where nobody reconciles.
_WHOLE_EVERY = timedelta(days=8)
#: Releases of fewer chunks are looked at as a whole each time: it takes a second or two.
WHOLE_BELOW = 2_000


class LastAudit(msgspec.Struct, frozen=True):
    """`token` is that of the release's changeset: after a backup was restored a number may mean another release.
    `versions` and `model` are what it was made with; `whole_at` is when everything was looked at last."""

    release: int
    token: str
    at: datetime
    findings: int
    changeset: int = 0
    versions: dict[str, str] = {}
    model: str = ""
    whole_at: datetime | None = None


def read_last(home: Home) -> LastAudit | None:
    """The last audit of this home, None before the first."""
    return state.read(home.state / _FILE, LastAudit)


def remember(home: Home, findings: Findings) -> None:
    """Note that the newest release has been audited."""
    newest, now, last = releases.latest(home), clock.now(), read_last(home)
    if newest is None:
        return
    whole_at = now if findings.whole or last is None else last.whole_at
    made = LastAudit(
        newest.number, newest.token, now, sum(findings.counts.values()),
        newest.changeset, newest.versions, newest.model.fingerprint, whole_at,
    )  # fmt: skip
    state.write(home.state / _FILE, made)


def proved_until(home: Home, catalog: Catalog, last: LastAudit | None) -> int | None:
    """The changeset up to which the last audit proved what the newest release holds, so that only what has moved since
    is to be looked at; None where everything is: the release is small or made otherwise, something was wrong, or
    everything was looked at too long ago."""
    newest = releases.latest(home)
    if newest is None or last is None or last.findings or last.whole_at is None:
        return None
    if newest.counts.get("chunks", 0) < WHOLE_BELOW:
        return None
    if clock.now() - last.whole_at >= _WHOLE_EVERY:
        return None
    if (last.versions, last.model) != (newest.versions, newest.model.fingerprint):
        return None
    known = catalog.value("select token from changesets where number = ?", (last.changeset,))
    return last.changeset if known == last.token else None


def is_audited(home: Home, last: LastAudit | None) -> bool:
    """Whether the newest release is the one that was audited last, and nothing was wrong."""
    newest = releases.latest(home)
    return newest is not None and last is not None and (last.release, last.token, last.findings) == (
        newest.number, newest.token, 0
    )  # fmt: skip
