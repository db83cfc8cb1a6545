"""Clients that sign in with what a feed's `credentials` name: a bearer token, or a user and a password."""

from __future__ import annotations

from dataclasses import dataclass

from aps_rag_pipeline.settings import Feed, Network
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.sources.net.http import Http
from aps_rag_pipeline.sources.options import demand_both, read_secret


@dataclass(frozen=True)
class SignIn:
    """A token, or a user and a password; all empty where a service is asked as by anybody."""

    token: str = ""
    user: str = ""
    password: str = ""


def read_sign_in(feed: Feed) -> SignIn:
    """What the feed's `credentials` name.

    Raises:
        FeedError: a secret cannot be read; a user is named without a password, or a password without a user; or a token
            besides: a request has one header for either.
    """
    told = feed.credentials
    if told.token is not None:
        if told.user or told.password is not None:
            raise FeedError(
                f"feed {feed.name}: credentials name a `token` and a `user` or `password`, and a request can carry but "
                "one of them; leave out the other"
            )
        return SignIn(token=read_secret(feed, told.token))
    demand_both(feed)
    if told.password is None:
        return SignIn()
    return SignIn(user=told.user, password=read_secret(feed, told.password))


def signed_in(feed: Feed, network: Network) -> Http:
    """A client for the feed's service; without credentials it asks as anybody.

    Raises:
        FeedError: as `read_sign_in`.
    """
    found = read_sign_in(feed)
    if found.token:
        return Http(network, headers={"Authorization": f"Bearer {found.token}"})
    return Http(network, auth=(found.user, found.password)) if found.user else Http(network)
