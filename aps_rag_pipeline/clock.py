"""The pipeline's clock, in one place so that weeks can pass in a test."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present, aware, in UTC."""
    return datetime.now(UTC)
