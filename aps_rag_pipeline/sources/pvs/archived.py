"""What an Archiver Appliance knows of a PV, as the PV: the fields of its record, and how it is archived."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

import msgspec

from aps_rag_pipeline.records import FieldValue, Link, Record
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.pvs.appliance import appliance_time
from aps_rag_pipeline.sources.pvs.model import MANY_STATES, TWO_STATES, pv_of_fields, pv_record

#: Attribute of an archived PV → the field of the record it was read from.
_LIMITS = {
    "upperDisplayLimit": "HOPR",
    "lowerDisplayLimit": "LOPR",
    "upperCtrlLimit": "DRVH",
    "lowerCtrlLimit": "DRVL",
    "upperAlarmLimit": "HIHI",
    "upperWarningLimit": "HIGH",
    "lowerWarningLimit": "LOW",
    "lowerAlarmLimit": "LOLO",
}
#: Upper and lower limits that are both 0 where nobody set them.
_PAIRS = (("HOPR", "LOPR"), ("DRVH", "DRVL"), ("HIHI", "LOLO"), ("HIGH", "LOW"))
_NUMBERS = frozenset({*_LIMITS.values(), "PREC", "HYST", "ADEL", "MDEL", "NELM"})
#: What these say where nobody has said anything.
_DEFAULTS = {"PREC": "0", "HYST": "0", "ADEL": "0", "MDEL": "0", "SCAN": "Passive"}
#: Fields that somebody sets and that stay; all others may be values of the moment.
_LASTING = frozenset(
    {
        *_NUMBERS,
        *TWO_STATES,
        *MANY_STATES,
        *("DESC", "EGU", "SCAN", "DTYP", "FTVL", "HHSV", "HSV", "LSV", "LLSV", "ZSV", "OSV", "COSV", "UNSV", "CALC"),
        *("INP", "OUT", "FLNK", "DOL", "ASG", "PINI", "OMSL", "EVNT", "IVOA", "EGUF", "EGUL", "LINR"),
    }
)
_INPUT = re.compile(r"INP[A-U]|OUT[A-U]|LNK[0-9A-F]")


def lasting(fields: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a record that are set and not measured, as a database file would state them: numbers in their
    shortest form, and no limits where none are set."""
    found = {
        key: _plain(value) if key in _NUMBERS else str(value)
        for key, value in fields.items()
        if (key in _LASTING or _INPUT.fullmatch(key)) and value is not None
    }
    for pair in _PAIRS:
        if all(found.get(key, "0") in ("0", "") for key in pair):
            for key in pair:
                found.pop(key, None)
    return {key: value for key, value in found.items() if value and _DEFAULTS.get(key) != value}


def archived_record(
    info: Mapping[str, Any], metadata: Mapping[str, Any], aliases: Sequence[str], feed: Feed, zone: tzinfo
) -> Record:
    """The record of an archived PV from its type info and, where it was asked for, its metadata (`{}` otherwise)."""
    name = str(info["pvName"])
    extra = info.get("extraFields")
    fields = {field: info.get(key) for key, field in _LIMITS.items()}
    fields |= {"PREC": info.get("precision"), "EGU": info.get("units")}
    fields |= {k: v for found in (extra if isinstance(extra, dict) else {}, metadata) for k, v in found.items() if v}
    pv = pv_of_fields(name, "", str(fields.get("RTYP") or ""), lasting(fields), aliases)
    pv.others |= {heading: [value] for heading, value in _archiving(info, zone).items()}
    if controlling := str(info.get("controllingPV") or ""):
        pv.others["controlling PV"] = [controlling]
        pv.links.setdefault(Link("process_variable", controlling, "controls its archiving"))
    record = pv_record(pv, feed)
    return msgspec.structs.replace(record, modified_at=_time(info.get("modificationTime"), zone))


def _archiving(info: Mapping[str, Any], zone: tzinfo) -> dict[str, FieldValue]:
    said: dict[str, FieldValue] = {}
    if kind := str(info.get("DBRType") or ""):
        said["data type"] = kind.removeprefix("DBR_").replace("_", " ").lower()
    count = _plain(info.get("elementCount"))
    if count not in ("", "0", "1"):
        said["elements"] = int(float(count))
    if since := _time(info.get("creationTime"), zone):
        said["archived since"] = since.isoformat()
    said["archiving"] = "paused" if str(info.get("paused")).lower() == "true" else "active"
    if method := str(info.get("samplingMethod") or ""):
        said["sampling method"] = method.lower()
    if period := _plain(info.get("samplingPeriod")):
        said["sampling period s"] = float(period)
    if policy := str(info.get("policyName") or ""):
        said["archiving policy"] = policy
    return said


def _time(value: Any, zone: tzinfo) -> datetime | None:
    return appliance_time(str(value), zone) if value else None


def _plain(value: Any) -> str:
    """A number in its shortest form; empty for NaN and infinities, which stand for what is not set."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "" if value is None else str(value).strip()
    return format(number, ".15g") if math.isfinite(number) else ""
