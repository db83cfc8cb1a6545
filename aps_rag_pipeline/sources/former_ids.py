"""The ids that records had before their pages, threads or channels were renamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class FormerIds:
    """The former ids of a feed's units. `notes` remember them from sync to sync.

    `ids` are unit → id of its record now, `aliases` the ids that the service itself leads on to a unit (the redirects
    of a wiki). An id that is a unit's own again leads nowhere else: those that lost one so are to be read again, though
    nothing of them has moved.
    """

    def __init__(
        self, notes: dict[str, Any], ids: Mapping[str, str], aliases: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        before: dict[str, str] = notes.get("ids", {})
        remembered: dict[str, list[str]] = notes.get("former", {})
        taken = set(ids.values())
        self.losers: set[str] = set()
        self._found: dict[str, tuple[str, ...]] = {}
        kept: dict[str, list[str]] = {}
        for unit, now in ids.items():
            known = {*remembered.get(unit, ()), before.get(unit, now)}
            earlier = known - taken
            if earlier:
                kept[unit] = sorted(earlier)
            if known - earlier - {now}:
                self.losers.add(unit)
            self._found[unit] = tuple(sorted(earlier | (set((aliases or {}).get(unit, ())) - taken)))
        notes["ids"], notes["former"] = dict(ids), kept

    def of(self, unit: str) -> tuple[str, ...]:
        return self._found[unit]
