"""The YAML block at the head of a page, between two lines of dashes."""

from __future__ import annotations

import re
from datetime import date, datetime

import yaml

from aps_rag_pipeline.records import FieldValue

_BLOCK = re.compile(r"\A\s*---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_MAX_CHARS = 65_536
_MAX_ITEMS = 500

#: What a front matter may hold once it is read: flat values only.
Value = FieldValue | datetime | date


def split_front_matter(text: str) -> tuple[dict[str, Value], str]:
    """Values by lower-case name, and the text below. Text that has no readable block comes back whole."""
    match = _BLOCK.match(text)
    if match is None or len(match[1]) > _MAX_CHARS:
        return {}, text
    try:
        found = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, text  # two rules around prose: a page, not a block of values
    if not isinstance(found, dict):
        return {}, text
    values: dict[str, Value] = {}
    for name, value in list(found.items())[:_MAX_ITEMS]:
        values.update(_flat(str(name).strip().lower(), value))
    return values, text[match.end() :]


def _flat(name: str, value: object) -> dict[str, Value]:
    """A value by its name; one mapping inside is laid out with underscores, anything deeper is left out."""
    if isinstance(value, str | int | float | bool | datetime | date):
        return {name: value.strip() if isinstance(value, str) else value}
    if value is None:
        return {name: ""}
    if isinstance(value, list):
        return {name: [str(item).strip() for item in value[:_MAX_ITEMS] if isinstance(item, str | int | float)]}
    if isinstance(value, dict):
        inner = list(value.items())[:_MAX_ITEMS]
        return {f"{name}_{key}": item for key, item in inner if isinstance(item, str | int | float | bool)}
    return {}
