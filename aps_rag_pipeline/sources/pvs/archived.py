"""What an Archiver Appliance knows of a PV, as the PV: the fields of its record, and how it is archived."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

import msgspec

from aps_rag_pipeline.records import FieldValue, Link, Record
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.pvs.appliance import appliance_time
from aps_rag_pipeline.sources.pvs.model import pv_of_fields, pv_record
from aps_rag_pipeline.sources.pvs.record_fields import lasting, plain

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
        array = "array of " if kind.startswith("DBR_WAVEFORM_") else ""
        said["data type"] = array + re.sub(r"^DBR_(SCALAR_|WAVEFORM_)?", "", kind).replace("_", " ").lower()
    count = plain(info.get("elementCount"))
    if count not in ("", "0", "1"):
        said["elements"] = int(float(count))
    if since := _time(info.get("creationTime"), zone):
        said["archived since"] = since.isoformat()
    said["archiving"] = "paused" if str(info.get("paused")).lower() == "true" else "active"
    if method := str(info.get("samplingMethod") or ""):
        said["sampling method"] = method.lower()
    if period := plain(info.get("samplingPeriod")):
        said["sampling period s"] = float(period)
    if policy := str(info.get("policyName") or ""):
        said["archiving policy"] = policy
    return said


def _time(value: Any, zone: tzinfo) -> datetime | None:
    return appliance_time(str(value), zone) if value else None
