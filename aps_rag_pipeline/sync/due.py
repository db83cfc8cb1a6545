"""Whether a source's job should run now: from small state files and the feeds' fingerprints, never from the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from aps_rag_pipeline.settings import Feed, Settings
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.fetch import config_digest, reader

#: A day, less the slack that keeps an hourly look from slipping by an hour every day.
DAILY = timedelta(hours=23, minutes=30)


@dataclass(frozen=True)
class Decision:
    launch: bool
    reason: str


def decide(settings: Settings, source: str, now: datetime) -> Decision:
    """Launch when a day has passed and a feed or its configuration moved, when a feed was told of a change or has
    items to retry, after a failure, and when something applied is not released."""
    feeds = settings.feeds_of(source)
    home = Home(settings.home)
    if not feeds:
        return Decision(False, f"no feed of {source} is configured")
    reasons = [reason for feed in feeds if (reason := _reason(settings, home, feed, now))]
    pipeline = state.read_pipeline(home)
    if pipeline.applied > pipeline.released:
        reasons.append(f"changeset {pipeline.applied} is not released")
    if pipeline.pictures_retry_at is not None and pipeline.pictures_retry_at <= now:
        reasons.append("pictures that could not be read are due again")
    if reasons:
        return Decision(True, "; ".join(reasons))
    return Decision(False, f"nothing moved in {', '.join(feed.name for feed in feeds)}")


def _reason(settings: Settings, home: Home, feed: Feed, now: datetime) -> str:
    known = state.read_feed(home, feed.source, feed.name)
    if known.attempted_at is None:
        return f"{feed.name} was never read"
    if known.error:
        return f"{feed.name} failed: {known.error}"
    if known.retry_at is not None and known.retry_at <= now:
        return f"{feed.name} has items to retry"
    if known.succeeded_at is None:
        return f"{feed.name} was never read to its end"
    nudged = state.read_nudge(home, feed.name)
    if nudged is not None and nudged >= known.attempted_at:
        return f"{feed.name} was told of a change"
    if now - known.succeeded_at < DAILY:
        return ""
    source = reader(settings, feed, home.blobs)
    if known.config != config_digest(settings, feed, source.version):
        return f"the configuration of {feed.name} moved"
    looked = state.read_look(home, feed.name)
    if looked is not None and looked > known.succeeded_at and now - looked < source.look_every:
        return ""
    try:
        found = source.fingerprint()
    except FeedError as error:
        return f"{feed.name} cannot be reached: {error}"  # the run notes the failure where people look
    if found is None or found != known.fingerprint:
        return f"{feed.name} moved"
    if source.look_every:
        state.write_look(home, feed.name, now)
    return ""
