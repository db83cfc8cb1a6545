"""Events that a BELY server publishes by MQTT, as far as they tell that something to read has changed.

One change of an entry gives a general event (`bely/update` of a Log, and of the EntityInfo of its document) and a
particular one (`bely/logEntry/Update`). A search gives one too, also that which a sync makes itself.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from aps_rag_pipeline.sources.jsonfiles import at, mapping, string

_GENERAL = re.compile(r"(?:.*/)?(add|update|delete)")
_PARTICULAR = re.compile(r"(?:.*/)?(logEntry|logEntryReply)/(Add|Update|Delete)")
#: What general events tell of that no reader of the log sees.
_UNREAD = frozenset({"LogReaction", "Reaction", "UserInfo", "UserSetting", "UserSession", "NotificationConfiguration"})


class MalformedEvent(ValueError):
    """A message that is no event."""


@dataclass(frozen=True)
class Event:
    """A change: of what (`Log`, `ItemDomainLogbook`, ...), how, and where the event tells it, in which document."""

    entity: str
    id: str
    action: str
    time: str
    document: str = ""
    parent: str = ""

    def same_change(self, other: Event | None) -> bool:
        """Whether the other tells the same change: their times differ by milliseconds."""
        if other is None or (self.entity, self.id, self.action) != (other.entity, other.id, other.action):
            return False
        return self.time[:19] == other.time[:19]


def read_event(topic: str, payload: bytes) -> Event | None:
    """What a message tells; None for what changes no text: reactions, searches, tests.

    Raises:
        MalformedEvent: it is not JSON, or does not say what has changed.
    """
    particular, general = _PARTICULAR.fullmatch(topic), _GENERAL.fullmatch(topic)
    if not particular and not general:
        return None
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent(f"{topic}: not JSON ({error})") from error
    event = mapping(said)
    entity, changed = string(event.get("entityName")), string(event.get("entityId"))
    changed = changed or string(at(event, "logInfo.id"))
    if not changed or not (entity or particular):
        raise MalformedEvent(f"{topic}: does not say what has changed")
    if general and entity in _UNREAD:
        return None
    action = particular[2].lower() if particular else general[1] if general else ""
    return Event(
        entity=entity or "Log",
        id=changed,
        action=action,
        time=string(event.get("eventTimestamp")),
        document=string(at(event, "parentLogDocumentInfo.id")),
        parent=string(at(event, "parentLogInfo.id") or at(event, "parentlogInfo.id")),  # both spellings occur
    )
