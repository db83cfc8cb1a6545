"""Whether a source's job should run now: from small state files and the feeds' fingerprints, never from the catalog."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta

from aps_rag_pipeline.settings import Feed, Settings
from aps_rag_pipeline.sources.base import Source
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.fetch import config_digest, reader, shown_safely

#: A day, less the slack that keeps an hourly look from slipping by an hour every day.
DAILY = timedelta(hours=23, minutes=30)
#: Seconds for one look: Dagster ends a tick after sixty.
LOOK_S = 20.0


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
    if reason := pressing(home, known, now):
        return reason
    if known.succeeded_at is not None and now - known.succeeded_at < DAILY:
        return ""
    return moved(settings, home, known, feed, now)


def pressing(home: Home, known: state.FeedState, now: datetime) -> str:
    """Why a feed is to be read without a look at it, whenever that was done last; empty when there is no reason."""
    name = known.feed
    if known.attempted_at is None:
        return f"{name} was never read"
    if known.error:
        return f"{name} failed: {known.error}"
    if known.retry_at is not None and known.retry_at <= now:
        return f"{name} has items to retry"
    if known.succeeded_at is None:
        return f"{name} was never read to its end"
    nudged = state.read_nudge(home, name)
    if nudged is not None and nudged >= known.attempted_at:
        return f"{name} was told of a change"
    return ""


def moved(settings: Settings, home: Home, known: state.FeedState, feed: Feed, now: datetime) -> str:
    """How a look at a feed, or at its configuration, shows that it is to be read; empty when nothing moved."""
    try:
        source = reader(settings, feed, home.blobs)
    except Exception as error:
        return shown_safely(f"{feed.name} cannot be opened: {error}", settings.secrets())
    if known.config != config_digest(settings, feed, source.version):
        return f"the configuration of {feed.name} moved"
    looked = state.read_look(home, feed.name)
    since = known.succeeded_at or now
    if looked is not None and looked > since and now - looked < source.look_every:
        return ""
    try:
        found = _look(source)
    except TimeoutError:
        return f"looking at {feed.name} takes longer than a sensor may"
    except Exception as error:
        # The run notes the failure where people look.
        return shown_safely(f"{feed.name} cannot be looked at: {error}", settings.secrets())
    if found is None or found != known.fingerprint:
        return f"{feed.name} moved"
    if source.look_every:
        state.write_look(home, feed.name, now)
    return ""


def _look(source: Source) -> str | None:
    """The fingerprint, within the time that a sensor has. A look that takes longer ends in its own thread.

    Raises:
        TimeoutError: it takes longer.
    """
    outcome: list[str | Exception | None] = []

    def look() -> None:
        try:
            outcome.append(source.fingerprint())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=look, name=f"look-{source.feed.name}", daemon=True)
    thread.start()
    thread.join(LOOK_S)
    if not outcome:
        raise TimeoutError
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]
