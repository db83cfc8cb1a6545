"""Syncs that take no time: a killed history and its twin then say the same to the second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from aps_rag_pipeline import clock


@contextmanager
def clock_at(moment: datetime) -> Iterator[None]:
    real = clock.now
    clock.now = lambda: moment
    try:
        yield
    finally:
        clock.now = real
