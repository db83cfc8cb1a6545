"""How conversations are put into words: who spoke and when, and the title of what was said."""

from __future__ import annotations

from datetime import datetime, tzinfo

_TITLE_LENGTH = 120


def attribution(author: str, moment: datetime | None, zone: tzinfo) -> str:
    """`author, 2025-11-21 10:38` in the readers' zone; what is unknown is left out."""
    time = moment.astimezone(zone).strftime("%Y-%m-%d %H:%M") if moment else ""
    return ", ".join(part for part in (author, time) if part)


def headline(text: str) -> str:
    """A text as a title: one line, cut between words."""
    words = " ".join(text.split())
    return words if len(words) <= _TITLE_LENGTH else words[:_TITLE_LENGTH].rsplit(" ", 1)[0] + " …"
