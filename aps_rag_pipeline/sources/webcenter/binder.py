"""Replies of a content server: local data and result sets, or an error that comes with a good HTTP status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError

Row = Mapping[str, str]

_NOT_FOUND, _DENIED, _SIGN_IN = -16, -18, -20
#: Keys of messages that say so of the item itself. `csUnableToGetRevInfo2` wraps errors of every kind and says nothing.
_ABSENT = frozenset(("csGetFileUnableToFindRevision", "csItemNoLongerExists", "csItemNoLongerExists2"))
_FORBIDDEN = "csUserInsufficientAccess"
_KEY = re.compile(r"(?<!\\)!(\w+)")
#: Only for servers that send no keys, in the words of the English ones.
_ABSENT_WORDS = re.compile(r"no longer exists|unable to find .{0,60}\brevision\b", re.IGNORECASE)


class DeniedError(RefusedError):
    """The account is known and may not see this item."""


@dataclass(frozen=True)
class Binder:
    """A reply. All values are text, as the server sends them."""

    local: Row
    sets: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)

    def rows(self, name: str) -> tuple[Row, ...]:
        return self.sets.get(name, ())

    def number(self, name: str) -> int | None:
        """A whole number of the local data; None where there is none."""
        text = self.local.get(name, "").strip()
        return int(text) if text.isdecimal() else None


def read_binder(value: Any, place: str) -> Binder:
    """The reply in a JSON value.

    Raises:
        GoneError: the server says that there is no such item.
        DeniedError: it says that the account may not see it.
        OutageError: it says anything else but success, or the value is no reply of a content server.
    """
    local = value.get("LocalData") if isinstance(value, dict) else None
    if not isinstance(local, dict):
        raise OutageError(f"{place}: JSON came, but no reply of a content server; check `url`")
    said = {str(name): _text(entry) for name, entry in local.items()}
    _check_status(said, place)
    sets = value.get("ResultSets") or {}
    try:
        return Binder(said, {str(name): _rows(found) for name, found in sets.items()})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OutageError(f"{place}: a result set of the reply is damaged ({error})") from error


def _check_status(local: Row, place: str) -> None:
    code = local.get("StatusCode", "").strip() or "0"
    if code == "0":
        return
    message = " ".join(local.get("StatusMessage", "").split())[:300]
    said = f"{place}: StatusCode {code}" + (f": {message}" if message else "")
    keys = set(_KEY.findall(local.get("StatusMessageKey", "")))
    if code == str(_SIGN_IN):
        raise RefusedError(f"{said}; the server wants a sign-in, check the feed's `credentials`")
    if code == str(_DENIED) or _FORBIDDEN in keys:
        raise DeniedError(f"{said}; give the account Read on its security group and account")
    absent = bool(keys & _ABSENT) if keys else bool(_ABSENT_WORDS.search(message))
    if code == str(_NOT_FOUND) or absent:
        raise GoneError(said)
    raise OutageError(said)


def _rows(found: Any) -> tuple[Row, ...]:
    names = [str(column["name"]) for column in found["fields"]]
    return tuple(dict(zip(names, map(_text, row), strict=True)) for row in found["rows"])


def _text(value: Any) -> str:
    return "" if value is None else str(value)
