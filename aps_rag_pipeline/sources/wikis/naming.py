"""What live wikis have in common: checked options, secrets, and the ids that a page had before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from aps_rag_pipeline.settings import Feed, SecretPlace, SettingsError
from aps_rag_pipeline.sources.base import FeedError

Json = dict[str, Any]


class Options(BaseModel):
    """Base of what a form understands in `options`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Chosen = TypeVar("Chosen", bound=Options)


def read_options(feed: Feed, model: type[Chosen]) -> Chosen:
    """The options of a feed.

    Raises:
        FeedError: one is unknown or has a value that cannot be used, or `url` is missing.
    """
    if not feed.url.startswith(("http://", "https://")):
        raise FeedError(f"feed {feed.name}: `url` is missing or not an http(s) address: {feed.url!r}")
    try:
        return model.model_validate(feed.options)
    except ValidationError as error:
        said = "; ".join(f"options.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise FeedError(f"feed {feed.name}: {said}; there are: {', '.join(model.model_fields)}") from error


def read_secret(feed: Feed, place: SecretPlace) -> str:
    """A password or token.

    Raises:
        FeedError: it is not where it should be.
    """
    try:
        return place.read().get_secret_value()
    except SettingsError as error:
        raise FeedError(f"feed {feed.name}: credentials: {error}") from error


def former_ids(
    notes: dict[str, Any], ids: Mapping[str, str], aliases: Mapping[str, Iterable[str]]
) -> dict[str, tuple[str, ...]]:
    """The earlier ids of each unit, for `ids`, unit → its record's id now. `notes` remember them from sync to sync.

    `aliases` are ids that the wiki itself leads on to the unit (its redirects). An id that is a page's own again leads
    nowhere else.
    """
    before: dict[str, str] = notes.get("ids", {})
    remembered: dict[str, list[str]] = notes.get("former", {})
    taken = set(ids.values())
    kept: dict[str, list[str]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for unit, now in ids.items():
        earlier = {*remembered.get(unit, ()), before.get(unit, now)} - taken
        if earlier:
            kept[unit] = sorted(earlier)
        if every := earlier | (set(aliases.get(unit, ())) - taken):
            found[unit] = tuple(sorted(every))
    notes["ids"], notes["former"] = dict(ids), kept
    return found
