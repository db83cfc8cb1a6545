"""An EPICS Archiver Appliance over HTTP: its addresses, its JSON, its dates."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.net.http import Http, Params, parse_json, without_halves

#: No report of an appliance is longer: what it has to be told, since every report has a limit of its own.
ALL = 2_147_483_647
_MANAGEMENT_PORT, _RETRIEVAL_PORT = 17665, 17668
_TRIES = 2
_STATUS_BLOCK = 500
#: A string among the values of an object, up to the quote behind which the object goes on or ends.
_VALUE = re.compile(r'("[^"\n]*"\s*:\s*")(.{0,4000}?)("\s*(?=\}|,\s*"[^"\n]*"\s*:))', re.DOTALL)
_BARE_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')
_TIME = re.compile(
    r"(?P<month>[A-Z][a-z]{2})/(?P<day>\d{1,2})/(?P<year>\d{4}) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:\s+(?P<zone>\S+))?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
#: Hours from UTC of the names that Java prints for the zones of laboratories.
_ZONE_HOURS = {
    **{"UTC": 0, "GMT": 0, "Z": 0, "WET": 0, "BST": 1, "WEST": 1, "CET": 1, "MEZ": 1, "CEST": 2, "MESZ": 2, "EET": 2},
    **{"EEST": 3, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "HST": -10},
    **{"JST": 9, "KST": 9, "BRT": -3, "AEST": 10, "AEDT": 11},
}


class Appliance:
    """What one appliance, or a cluster that is asked through one of its members, answers.

    `url` may be the address of the appliance, of its `mgmt` or of that's `bpl`; the retrieval side is found beside it
    (port 17668 where management has 17665) unless `retrieval_url` says otherwise.
    """

    def __init__(self, http: Http, url: str, retrieval_url: str = "") -> None:
        self.http = http
        self.base = re.sub(r"/(?:mgmt(?:/(?:bpl|ui).*)?|retrieval.*)$", "", url.rstrip("/"))
        self.mgmt = f"{self.base}/mgmt/bpl"
        self.retrieval = retrieval_url.rstrip("/") or f"{_other_port(self.base)}/retrieval"

    def ask(self, url: str, *, method: str = "GET", params: Params | None = None, **more: Any) -> Any:
        """The JSON of a reply. One that is cut off is asked for once more.

        Raises:
            GoneError: no such PV or action.
            OutageError: no answer, a web page, or JSON that is cut off.
        """
        problem: OutageError | None = None
        for _ in range(_TRIES):
            reply = self.http.request(method, url, params=params, repeatable=True, **more)
            try:
                return parse_json(reply)
            except OutageError as error:
                try:
                    return without_halves(mended_json(reply.content.decode("utf-8-sig", "replace")))
                except ValueError:
                    problem = error
        assert problem is not None
        raise problem

    def listed(self, action: str, **params: str | int) -> list[Any]:
        """A list that management gives."""
        found = self.ask(f"{self.mgmt}/{action}", params=params)
        if not isinstance(found, list):
            raise OutageError(f"{self.mgmt}/{action}: not a list but {str(found)[:200]}")
        return found

    def names(self) -> set[str]:
        """Every archived PV and every alias. Without a limit an appliance names the first 500 it comes by."""
        return {name for name in self.listed("getAllPVs", limit=-1) if isinstance(name, str) and name}

    def aliases(self) -> dict[str, str]:
        """Alias → the PV that is archived."""
        found = self.listed("getAllAliases")
        return {
            str(item["aliasName"]): str(item["srcPVName"])
            for item in found
            if isinstance(item, dict) and item.get("aliasName") and item.get("srcPVName")
        }

    def members(self) -> set[str]:
        """The appliances of the cluster that are up."""
        found = self.listed("getAppliancesInCluster")
        return {str(item["identity"]) for item in found if isinstance(item, dict) and item.get("identity")}

    def configuration(self) -> list[dict[str, Any]]:
        """How every PV is archived, from all members that answer: the others are left out without a word."""
        return [item for item in self.listed("exportConfig") if _is_of_a_pv(item)]

    def type_info(self, pv: str) -> dict[str, Any]:
        """How one PV is archived.

        Raises:
            GoneError: it is not.
        """
        return self._object(f"{self.mgmt}/getPVTypeInfo", pv)

    def metadata(self, pv: str) -> dict[str, Any]:
        """How one PV is archived, and the fields of its record that the appliance keeps, as they are now."""
        return self._object(f"{self.retrieval}/bpl/getMetadata", pv)

    def status(self, pvs: Sequence[str]) -> dict[str, dict[str, str]]:
        """The state of PVs by name, in blocks; those of which nothing is said are missing."""
        states: dict[str, dict[str, str]] = {}
        for start in range(0, len(pvs), _STATUS_BLOCK):
            block = ",".join(pvs[start : start + _STATUS_BLOCK])
            url = f"{self.mgmt}/getPVStatus"
            found = self.ask(url, method="POST", data={"pv": block})
            if not isinstance(found, list):
                raise OutageError(f"{url}: not a list but {str(found)[:200]}")
            states |= {str(item["pvName"]): item for item in found if isinstance(item, dict) and item.get("pvName")}
        return states

    def _object(self, url: str, pv: str) -> dict[str, Any]:
        found = self.ask(url, params={"pv": pv})
        if not isinstance(found, dict):
            raise OutageError(f"{url}: not an object but {str(found)[:200]}")
        return cast(dict[str, Any], found)


def mended_json(text: str) -> Any:
    """The value of JSON in which quotes inside the values of objects are not escaped, as appliances print metadata.
    Bare NaN and Infinity are numbers. Nothing else is mended.

    Raises:
        ValueError: it is damaged otherwise, or cut off.
    """

    def escaped(match: re.Match[str]) -> str:
        return match[1] + _BARE_QUOTE.sub(r'\1\\"', match[2]) + match[3]

    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_VALUE.sub(escaped, text))


def _is_of_a_pv(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("pvName"), str) and bool(item["pvName"])


def appliance_time(text: str, zone: tzinfo) -> datetime | None:
    """A time as an appliance prints it (`Oct/07/2024 18:38:10 CDT`, `... -07:00`, ISO 8601) in UTC. Where the name of
    its zone is unknown it is read in `zone`; None for `Never` and what is no time."""
    text = text.strip()
    match = _TIME.fullmatch(text)
    if match is None:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            return None
    else:
        if match["month"] not in _MONTHS:
            return None
        day, year, hour, minute, second = (int(match[part]) for part in ("day", "year", "hour", "minute", "second"))
        try:
            found = datetime(year, _MONTHS.index(match["month"]) + 1, day, hour, minute, second)
        except ValueError:
            return None
        found = found.replace(tzinfo=_zone(match["zone"] or "", found, zone))
    return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)


def _zone(name: str, moment: datetime, zone: tzinfo) -> tzinfo:
    """The zone that a name means at a moment: the facility's own names come first, CST is not the same everywhere."""
    if offset := _OFFSET.fullmatch(name):
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    for fold in (0, 1):
        local = moment.replace(tzinfo=zone, fold=fold)
        if local.tzname() == name and (away := local.utcoffset()) is not None:
            return timezone(away)
    return timezone(timedelta(hours=_ZONE_HOURS[name])) if name in _ZONE_HOURS else zone


def _other_port(base: str) -> str:
    parts = urlsplit(base)
    if parts.port != _MANAGEMENT_PORT:
        return base
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rsplit(':', 1)[0]}:{_RETRIEVAL_PORT}"))
