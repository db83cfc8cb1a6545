"""Clients that sign in with what a feed's `credentials` name: a bearer token, or a user and a password."""

from __future__ import annotations

from aps_rag_pipeline.settings import Feed, Network
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.sources.net.http import Http
from aps_rag_pipeline.sources.options import read_secret


def signed_in(feed: Feed, network: Network) -> Http:
    """A client for the feed's service; without credentials it asks as anybody.

    Raises:
        FeedError: a secret cannot be read, a user is named without one, or a token besides: a request has one header
            for either.
    """
    told = feed.credentials
    if told.token is not None:
        if told.user or told.password is not None:
            raise FeedError(
                f"feed {feed.name}: credentials name a `token` and a `user` or `password`, and a request can carry but "
                "one of them; leave out the other"
            )
        return Http(network, headers={"Authorization": f"Bearer {read_secret(feed, told.token)}"})
    if told.password is not None:
        return Http(network, auth=(told.user, read_secret(feed, told.password)))
    if told.user:
        raise FeedError(f"feed {feed.name}: credentials name {told.user}, but no `password`")
    return Http(network)
