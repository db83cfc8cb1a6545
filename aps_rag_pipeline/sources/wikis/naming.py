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


def listed(value: Any) -> list[Json]:
    """A list of objects.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"a list of objects was due, not {str(value)[:40]!r}")
    return value


class FormerIds:
    """The ids that pages had before. `notes` remember them from sync to sync.

    `ids` are unit → id of its record now, `aliases` the ids that the wiki itself leads on to a unit (its redirects). An
    id that is a page's own again leads nowhere else: the pages that lost one so are to be read again, though nothing of
    them has moved.
    """

    def __init__(
        self, notes: dict[str, Any], ids: Mapping[str, str], aliases: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        before: dict[str, str] = notes.get("ids", {})
        remembered: dict[str, list[str]] = notes.get("former", {})
        taken = set(ids.values())
        self.losers: set[str] = set()
        self._found: dict[str, tuple[str, ...]] = {}
        kept: dict[str, list[str]] = {}
        for unit, now in ids.items():
            known = {*remembered.get(unit, ()), before.get(unit, now)}
            earlier = known - taken
            if earlier:
                kept[unit] = sorted(earlier)
            if known - earlier - {now}:
                self.losers.add(unit)
            self._found[unit] = tuple(sorted(earlier | (set((aliases or {}).get(unit, ())) - taken)))
        notes["ids"], notes["former"] = dict(ids), kept

    def of(self, unit: str) -> tuple[str, ...]:
        return self._found[unit]
