"""Stretches of text."""

from __future__ import annotations

from collections.abc import Iterable

#: Start and end of a stretch of text.
Span = tuple[int, int]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same stretches in order, overlapping ones as one."""
    result: list[Span] = []
    for start, stop in sorted(set(spans)):
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result
