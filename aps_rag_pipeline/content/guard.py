"""One way to meet the many ways in which a parser can fail on a damaged file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aps_rag_pipeline.sources.base import UnreadableError


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Whatever a parser raises inside becomes an `UnreadableError` that names the format; it costs this file only."""
    try:
        yield
    except (UnreadableError, MemoryError):
        raise
    except Exception as error:
        raise UnreadableError(
            f"cannot be read as {what} ({type(error).__name__}: {str(error)[:200]})",
            remedy="open it in its own program and save it again",
        ) from error
