"""How long a service may be waited for that answers at large and hangs on single things."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from aps_rag_pipeline.settings import Network
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError

#: So many times network.deadline_s may be lost before the rest waits for the next sync.
_DEADLINES = 3


class NotAskedError(OutageError):
    """Too much time went to others."""


class Patience:
    """Time lost to things of one kind, `at_a_time` of which are waited for together."""

    def __init__(self, network: Network, at_a_time: int) -> None:
        self._left_s = _DEADLINES * network.deadline_s
        self._at_a_time = at_a_time

    @contextmanager
    def spent_on(self, what: str) -> Iterator[None]:
        """Count the time if what happens inside ends as an outage; an answer that says no is none.

        Raises:
            NotAskedError: too much was lost already; nothing is asked for.
        """
        if self._left_s < 0:
            raise NotAskedError(f"{what} was not asked for, since too much time went to others that did not come")
        started = time.monotonic()
        try:
            yield
        except (GoneError, RefusedError):
            raise
        except OutageError:
            self._left_s -= (time.monotonic() - started) / self._at_a_time
            raise
