"""What `options` of a feed may say, checked against the model of its form."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from aps_rag_pipeline.settings import Feed, SecretPlace, Section, SettingsError
from aps_rag_pipeline.sources.base import FeedError

Chosen = TypeVar("Chosen", bound=BaseModel)


class Options(Section):
    """Base of the models: nothing that they do not name is let pass."""


def read_options(feed: Feed, model: type[Chosen]) -> Chosen:
    """The options of a feed.

    Raises:
        FeedError: one is unknown or has a value that cannot be used.
    """
    try:
        return model.model_validate(feed.options)
    except ValidationError as error:
        said = "; ".join(
            ".".join(map(str, ("options", *each["loc"]))) + f": {each['msg'].removeprefix('Value error, ')}"
            for each in error.errors()
        )
        raise FeedError(f"feed {feed.name}: {said}; there are: {', '.join(model.model_fields)}") from error


def http_url(feed: Feed, what: str) -> str:
    """The feed's address without a slash at its end; `what` says whose it is.

    Raises:
        FeedError: there is none, or it is not one of the web.
    """
    if not feed.url.startswith(("http://", "https://")):
        shown = feed.url.rpartition("@")[2]  # without a scheme no one has seen that there is a password before it
        raise FeedError(
            f"feed {feed.name}: `url` is missing or not one of the web: {shown!r}; it is the address of {what}"
        )
    return feed.url.rstrip("/")


def demand_user_and_password(feed: Feed, service: str) -> None:
    """Let the credentials of a service that knows users by their passwords be a user with a password, or none at all.

    Raises:
        FeedError: they are something else, with which the service would be asked as by anybody.
    """
    told = feed.credentials
    if told.token is not None:
        raise FeedError(
            f"feed {feed.name}: credentials name a `token`, but {service} takes a `user` with a `password` only; give "
            "these instead"
        )
    demand_both(feed)


def demand_both(feed: Feed) -> None:
    """Let a user have a password, and a password a user.

    Raises:
        FeedError: one is named without the other.
    """
    told, name = feed.credentials, feed.name
    if told.user and told.password is None:
        raise FeedError(f"feed {name}: credentials name {told.user}, but no `password`; add it, or leave out `user`")
    if told.password is not None and not told.user:
        raise FeedError(f"feed {name}: credentials name a `password`, but no `user`; add the user, or leave it out")


def read_secret(feed: Feed, place: SecretPlace) -> str:
    """A password or token.

    Raises:
        FeedError: it is not where it should be.
    """
    try:
        return place.read().get_secret_value()
    except SettingsError as error:
        raise FeedError(f"feed {feed.name}: credentials: {error}") from error
