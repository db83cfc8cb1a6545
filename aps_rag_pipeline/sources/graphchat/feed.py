"""The form `graph` of `teams`: channels read from Microsoft Graph."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.sources.base import Failure, FeedError, Found
from aps_rag_pipeline.sources.live import LiveSource, Memory

if TYPE_CHECKING:
    from aps_rag_pipeline.sources.graphchat.scan import GraphScan


class TeamsGraph(LiveSource[Any]):
    """Threads of Teams channels, with their pictures. A look costs a request for each fifty threads."""

    key = "teams"
    version = 1

    def scan(self, memory: Memory) -> GraphScan:
        # Whoever reads files alone needs none of the libraries behind it.
        from aps_rag_pipeline.sources.graphchat.scan import GraphScan

        return GraphScan(self.feed, self.context, memory)

    def check(self) -> Found:
        """Teams and channels are looked at, messages are not."""
        from aps_rag_pipeline.sources.graphchat.listing import Room

        with closing(self.scan(Memory())) as scan:
            found = list(scan.rooms())
        rooms = [item for item in found if isinstance(item, Room)]
        failed = [item for item in found if isinstance(item, Failure)]
        if not rooms:
            why = failed[0].reason if failed else "the app sees no team with a channel that options.membership names"
            raise FeedError(f"{self.feed.place}: answers, but there is nothing to read: {why}")
        detail = f"{self.feed.place} answers; {len(rooms)} channels of {len({room.team_id for room in rooms})} teams"
        return Found(len(rooms), detail + (f"; {failed[0].reason}" if failed else ""))
