"""What can come back from a live service instead of what was asked for."""

from __future__ import annotations

from aps_rag_pipeline.sources.base import FeedError, UnreadableError


class OutageError(FeedError):
    """The service cannot be reached, or what it says cannot be trusted. For one item: to be asked again."""


class RefusedError(OutageError):
    """The service wants other credentials, or these may not see the item."""


class GoneError(OutageError):
    """The address names nothing: an item is gone, or a feed's `url` is wrong."""


class TooLargeError(UnreadableError):
    """An answer above the configured limit."""
