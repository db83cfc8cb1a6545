"""JSON objects of wikis, checked as far as they are used."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def listed(value: Any) -> list[Json]:
    """A list of objects.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"a list of objects was due, not {str(value)[:40]!r}")
    return value
