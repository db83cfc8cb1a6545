"""What searches have shown of the entries of documents, kept small.

A sighting is an entry and the time of its last change. The token of a document is the exclusive or of the digests of
all its sightings, so that it neither depends on their order nor moves when old ones are folded together: only those
after the start of the next search are kept one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aps_rag_pipeline.sources.live import digest

#: Name of a document → entry → time of its last change, ISO 8601 in UTC at whole seconds.
Seen = Mapping[str, Mapping[str, str]]


class Sightings:
    """The sightings that a feed remembers; `notes` restores them."""

    def __init__(self, notes: Mapping[str, Any] | None = None) -> None:
        notes = notes or {}
        self._recent: dict[str, dict[str, str]] = {name: dict(seen) for name, seen in notes.get("recent", {}).items()}
        self._folded: dict[str, int] = {name: int(token, 16) for name, token in notes.get("folded", {}).items()}

    def look(self, seen: Seen, after: str) -> None:
        """Take in a search for what changed after a time: what it no longer shows was changed again, or deleted."""
        self.fold(after)
        self._recent = {name: dict(entries) for name, entries in seen.items()}

    def fold(self, until: str) -> None:
        """Keep sightings up to a time as a token alone."""
        for name, entries in list(self._recent.items()):
            for entry, time in list(entries.items()):
                if time <= until:
                    self._folded[name] = self._folded.get(name, 0) ^ _token(entry, entries.pop(entry))
            if not entries:
                del self._recent[name]

    def keep(self, names: Iterable[str]) -> None:
        """Forget all but these."""
        wanted = set(names)
        self._recent = {name: seen for name, seen in self._recent.items() if name in wanted}
        self._folded = {name: token for name, token in self._folded.items() if name in wanted and token}

    def token(self, name: str) -> str:
        token = self._folded.get(name, 0)
        for entry, time in self._recent.get(name, {}).items():
            token ^= _token(entry, time)
        return f"{token:x}"

    def newest(self, name: str) -> str:
        """The time of the latest sighting that is kept, or nothing."""
        return max(self._recent.get(name, {}).values(), default="")

    def notes(self) -> dict[str, Any]:
        return {"recent": self._recent, "folded": {name: f"{token:x}" for name, token in self._folded.items()}}


def _token(entry: str, time: str) -> int:
    return int(digest(entry, time), 16)
