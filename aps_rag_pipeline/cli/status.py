"""`aps-rag status`: feeds, how fresh they are, and the release that readers get."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from aps_rag_pipeline import clock
from aps_rag_pipeline.cli.common import EXIT_WRONG, ConfigOption, JsonOption, console, load_settings, print_json, table

if TYPE_CHECKING:
    from aps_rag_pipeline.settings import Feed, Settings
    from aps_rag_pipeline.stores.home import Home
    from aps_rag_pipeline.stores.releases import FeedFreshness, Manifest


def status(config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Feeds, their freshness and failures, and the release that readers get."""
    settings = load_settings(config_file)
    found = _status(settings)
    if as_json:
        print_json(found)
    else:
        _show_status(settings, found)
    if any(feed["error"] for feed in found["feeds"]):
        raise typer.Exit(EXIT_WRONG)


def _status(settings: Settings) -> dict[str, Any]:
    from aps_rag_pipeline.stores.home import Home
    from aps_rag_pipeline.stores.releases import latest
    from aps_rag_pipeline.sync import state

    home = Home(settings.home)
    manifest = latest(home)
    served = {feed.feed: feed for feed in manifest.feeds} if manifest else {}
    configured = {feed.name for feed in settings.feeds}
    return {
        "dropped_feeds": [
            {
                "source": known.source,
                "feed": known.feed,
                "held_removals": known.held_removals,
                "held_digest": known.held_digest,
            }
            for known in state.all_feeds(home)
            if known.feed not in configured and known.held_removals
        ],
        "facility": settings.facility,
        "home": str(settings.home),
        "release": manifest.number if manifest else None,
        "changeset": manifest.changeset if manifest else None,
        "published_at": manifest.published_at.isoformat() if manifest else None,
        "channels": _channels(home, manifest),
        "model": manifest.model.name if manifest else None,
        "counts": manifest.counts if manifest else {},
        "feeds": [_feed(home, feed, served.get(feed.name)) for feed in settings.feeds],
    }


def _feed(home: Home, feed: Feed, released: FeedFreshness | None) -> dict[str, Any]:
    import msgspec

    from aps_rag_pipeline.sync import state
    from aps_rag_pipeline.sync.freshness import stale_s

    known = state.read_feed(home, feed.source, feed.name)
    row = msgspec.to_builtins(known)
    waiting = [at for at in (known.failed_since, released.unserved_since if released else None) if at is not None]
    return {
        "source": feed.source, "feed": feed.name, "error": known.error, "failures": known.failures,
        "held_removals": known.held_removals, "held_digest": known.held_digest,
        "attempted_at": row.get("attempted_at"), "succeeded_at": row.get("succeeded_at"), "stale_s": stale_s(known),
        "released_records": released.records if released else 0,
        "newest_at": released.newest_at.isoformat() if released and released.newest_at else None,
        "lag": msgspec.to_builtins(released.lag) if released else None,
        "unserved_since": min(waiting).isoformat() if waiting and (known.error or known.failures) else None,
    }  # fmt: skip


def _channels(home: Home, manifest: Manifest | None) -> dict[str, Any]:
    """Which changeset each channel shows, and since when."""
    from aps_rag_pipeline.sync.freshness import read_projected

    released = {"changeset": manifest.changeset, "at": manifest.published_at.isoformat()} if manifest else None
    projected = read_projected(home)
    return {
        **dict.fromkeys(("dense", "sparse", "graph"), released),
        "neo4j": {"changeset": projected.changeset, "at": projected.at.isoformat()} if projected else None,
    }


def _show_status(settings: Settings, found: dict[str, Any]) -> None:
    shown = table("source", "feed", "records", "stale", "fresh", "newest change", "failures", "")
    for feed in found["feeds"]:
        notes = [feed["error"]] if feed["error"] else []
        if feed["error"] and feed["unserved_since"]:
            notes.append(f"its changes wait since {_ago(feed['unserved_since'])}")
        if feed["held_removals"]:
            notes.append(
                f"{feed['held_removals']} removals held: aps-rag sync --confirm-removals {feed['held_digest']}"
            )
        shown.add_row(
            feed["source"], feed["feed"], f"{feed['released_records']:,}", clock.span(feed["stale_s"]),
            _fresh(feed["lag"]), _ago(feed["newest_at"]), str(feed["failures"] or ""), "\n".join(notes),
        )  # fmt: skip
    for feed in found["dropped_feeds"]:
        held = f"{feed['held_removals']} removals held: aps-rag sync --confirm-removals {feed['held_digest']}"
        shown.add_row(feed["source"], feed["feed"], "", "", "", "", "", f"no longer configured; {held}")
    console().print(shown)
    if found["release"] is None:
        typer.echo("nothing has been released yet; run `aps-rag sync`")
        return
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(found["counts"].items()))
    typer.echo(f"{settings.facility}: release {found['release']}, published {_ago(found['published_at'])}; {counts}")
    typer.echo(f"model {found['model']}; home {found['home']}")
    typer.echo("stale: since it was last read; fresh: median time from change to release (~ from first sight)")


def _fresh(lag: dict[str, Any] | None) -> str:
    if lag is None:
        return ""
    return ("~" if lag["first_sight"] * 2 > lag["changed"] else "") + clock.span(lag["median_s"])


def _ago(moment: str | None) -> str:
    if moment is None:
        return "never"
    return f"{clock.span((clock.now() - datetime.fromisoformat(moment)).total_seconds())} ago"
