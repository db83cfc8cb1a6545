"""What a feed says of its Graph service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints

from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.sources.options import Options

Membership = Literal["standard", "private", "shared"]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class GraphOptions(Options):
    """`options` of a feed of the form `graph`."""

    tenant: str = Field("", description="directory id or domain, for signing in with a client secret")
    client_id: str = Field("", description="the app's id; `credentials.user` is taken where this is left out")
    authority: str = Field("", description="where to sign in; Microsoft's public cloud when left out")
    scope: str = Field("", description="what to sign in for; `<host of url>/.default` when left out")
    teams: tuple[Name, ...] = Field((), description="teams to read, by id or name; all that the app sees when empty")
    membership: tuple[Membership, ...] = Field(
        ("standard",), min_length=1, description="kinds of channel to read; private and shared ones are for few eyes"
    )


@dataclass(frozen=True)
class Service:
    """Where Graph is. `base` is an address with the version in it, without a slash at its end."""

    base: str
    origin: str
    host: str
    scope: str


def read_service(feed: Feed, options: GraphOptions) -> Service:
    """Raises:
    FeedError: `url` is missing, or a token would travel in the open.
    """
    url = urlsplit(feed.url.rstrip("/"))
    if not url.scheme or not url.hostname:
        raise FeedError(f"feed {feed.name}: `url` is missing; it is https://graph.microsoft.com in the public cloud")
    if url.scheme != "https" and url.hostname not in _LOOPBACK:
        raise FeedError(f"feed {feed.name}: {feed.url}: the token would travel unencrypted; write https://")
    origin = f"{url.scheme}://{url.netloc}"
    scope = options.scope or f"{url.scheme}://{url.hostname}/.default"
    return Service(origin + (url.path or "/v1.0"), origin, url.hostname, scope)
