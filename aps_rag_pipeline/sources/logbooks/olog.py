"""Log entries of the Phoebus Olog service, and of the Olog services before it, in plain keys."""

from __future__ import annotations

import re

from aps_rag_pipeline.content.tables import slug
from aps_rag_pipeline.sources.jsonfiles import JsonObject, at, mapping, sequence, string

#: The property by which the service holds an entry and its replies together.
GROUP = "Log Entry Group"

_PICTURE_SIZE = re.compile(r"(\]\([^()\n]*\))\{[^{}\n]*\}")
_ADDRESS = re.compile(r"[\w.:-]+")


def plain(log: JsonObject) -> JsonObject:
    """An entry in the keys that the dialect `olog` reads; what the service keeps in sets is put in order."""
    properties = [mapping(item) for item in sequence(log.get("properties"))]
    group = next((_attributes(item).get("id", "") for item in properties if item.get("name") == GROUP), "")
    instants = [at(event, "instant") for event in sequence(log.get("events"))]
    return {
        "id": log.get("id"),
        "text": _text(log),
        "title": log.get("title"),
        "author": log.get("owner"),
        "created": log.get("createdDate"),
        "modified": log.get("modifyDate") or log.get("modifiedDate"),
        "event": min((instant for instant in instants if isinstance(instant, int)), default=None),
        "group": group,
        "state": log.get("state"),
        "level": log.get("level"),
        "logbook": _names(log.get("logbooks")),
        "tags": _names(log.get("tags")),
        "properties": _property_fields(properties),
        "attachments": [_file(string(log.get("id")), mapping(item)) for item in sequence(log.get("attachments"))],
        **({"access": log["access"]} if "access" in log else {}),
    }


def _text(log: JsonObject) -> str:
    """What was written, in Markdown. Olog before version 3 keeps the writer's network address in `source`."""
    source, description = str(log.get("source") or ""), str(log.get("description") or "")
    if source and (not description or not _ADDRESS.fullmatch(source) or _ADDRESS.fullmatch(description)):
        return _PICTURE_SIZE.sub(r"\1", source)
    return _PICTURE_SIZE.sub(r"\1", description)


def _names(items: object) -> list[str]:
    return sorted({string(at(item, "name")) for item in sequence(items)} - {""})


def _attributes(item: JsonObject) -> dict[str, str]:
    """Attributes by name: pairs in the present service, an object in the ones before."""
    attributes = item.get("attributes")
    if isinstance(attributes, dict):
        return {string(name): string(value) for name, value in attributes.items()}
    return {string(at(pair, "name")): string(at(pair, "value")) for pair in sequence(attributes)}


def _property_fields(properties: list[JsonObject]) -> JsonObject:
    fields: dict[str, object] = {}
    for item in sorted(properties, key=lambda item: string(item.get("name"))):
        if item.get("name") == GROUP:
            continue
        for name, value in sorted(_attributes(item).items()):
            if value:
                fields[slug(f"{string(item.get('name'))} {name}")] = value
    return fields


def _file(log_id: str, attachment: JsonObject) -> JsonObject:
    """The address by which texts embed an attachment, `attachment/<id>`; the one by name where there are no ids."""
    name = string(attachment.get("filename")) or string(attachment.get("fileName"))
    stored = string(attachment.get("id"))
    return {"path": f"attachment/{stored}" if stored else f"logs/attachments/{log_id}/{name}", "filename": name}
