"""Small files about the last attempt and the last success of each feed, and how far the releases are.

They are the run history that sensors and `status` look at: neither needs the catalog, so neither can block a sync.
"""

from __future__ import annotations

import contextlib
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.stores.home import Home

T = TypeVar("T")

#: Drafts older than this belong to nobody any more: writing one takes no time.
_DRAFTS_S = 60


class FeedState(msgspec.Struct, omit_defaults=True):
    source: str
    feed: str
    attempted_at: datetime | None = None
    succeeded_at: datetime | None = None
    failed_since: datetime | None = None
    error: str = ""
    fingerprint: str | None = None  # of the last state that was applied
    config: str = ""
    records: int = 0
    failures: int = 0
    held_removals: int = 0
    held_digest: str = ""
    retry_at: datetime | None = None  # the earliest dead letter that is due
    alerted: bool = False


class PipelineState(msgspec.Struct, omit_defaults=True):
    """`applied` is the newest changeset, `released` the one that the newest release serves; `pictures_retry_at` is when
    the first picture that could not be read is due again."""

    applied: int = 0
    released: int = 0
    pictures_retry_at: datetime | None = None


def read(path: Path, kind: type[T]) -> T | None:
    """What a state file says; None where there is none, or none that can be understood."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write(path: Path, value: Any) -> None:
    """Put a state file in the place of the one before, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(value)))
    passing("state.rename.before")
    os.replace(draft, path)
    passing("state.rename.after")


def read_feed(home: Home, source: str, feed: str) -> FeedState:
    return read(_path(home, feed), FeedState) or FeedState(source, feed)


def write_feed(home: Home, state: FeedState) -> None:
    write(_path(home, state.feed), state)


def forget_feed(home: Home, feed: str) -> None:
    _path(home, feed).unlink(missing_ok=True)
    _look(home, feed).unlink(missing_ok=True)
    _nudge(home, feed).unlink(missing_ok=True)


def read_look(home: Home, feed: str) -> datetime | None:
    """When a sensor last looked at a feed and found that nothing had moved."""
    return read(_look(home, feed), datetime)


def write_look(home: Home, feed: str, at: datetime) -> None:
    """Kept apart from the feed's state, which belongs to the sync."""
    write(_look(home, feed), at)


def read_nudge(home: Home, feed: str) -> datetime | None:
    """When a feed was last told of a change by its source."""
    return read(_nudge(home, feed), datetime)


def write_nudge(home: Home, feed: str, at: datetime) -> None:
    """Kept apart from the feed's state, since it is told at any moment of a sync."""
    write(_nudge(home, feed), at)


def all_feeds(home: Home) -> list[FeedState]:
    """Of every feed that was ever read and is not gone, configured or not."""
    found = (read(path, FeedState) for path in sorted(home.state.glob("feed-*.json")))
    return [feed for feed in found if feed is not None]


def read_pipeline(home: Home) -> PipelineState:
    return read(home.state / "pipeline.json", PipelineState) or PipelineState()


def write_pipeline(home: Home, state: PipelineState) -> None:
    if state != read_pipeline(home):
        write(home.state / "pipeline.json", state)


def _path(home: Home, feed: str) -> Path:
    return home.state / f"feed-{feed}.json"


def _look(home: Home, feed: str) -> Path:
    return home.state / f"look-{feed}.json"


def _nudge(home: Home, feed: str) -> Path:
    return home.state / f"nudge-{feed}.json"


def drop_drafts(home: Home) -> None:
    """Remove what writers that died have left behind."""
    for path in home.state.glob(".*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - _DRAFTS_S:
                path.unlink()
