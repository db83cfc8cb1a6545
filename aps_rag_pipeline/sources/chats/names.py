"""What a thread is called: the same from an export and from the live service, and never as another thread of the feed.

Message ids are milliseconds and unique inside a channel only, and every team has a channel `General`: two threads can
claim one id, a bot that writes to several teams at once makes sure of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class ChannelPlace:
    """A channel by the names that people see, and by a key that no other channel of the feed has."""

    team: str
    name: str
    key: str

    @property
    def slug(self) -> str:
        return slug(self.name)


def thread_id(place: ChannelPlace, root: str, rivals: Iterable[ChannelPlace]) -> str:
    """The id of a thread: `<channel>/<id of its first message>`.

    `rivals` are the channels of equal slug with a thread of the same `root`. The first of them in order of names keeps
    the plain id; the others say their team too, and their key where even that is the same.
    """
    elders = [rival for rival in rivals if rival < place]
    if not elders:
        return f"{place.slug}/{root}"
    team = slug(place.team)
    if all(slug(elder.team) != team for elder in elders):
        return f"{team}/{place.slug}/{root}"
    mark = hashlib.blake2b(place.key.encode("utf-8", "backslashreplace"), digest_size=4).hexdigest()
    return f"{team}/{place.slug}~{mark}/{root}"


def slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name.lower()).strip("-") or "channel"
