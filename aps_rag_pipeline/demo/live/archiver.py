"""An Archiver Appliance as far as knowledge is read from it: management and retrieval, with the traps of the real one.

Reports leave out members of the cluster that are down, every list has a limit that hides the rest, the report of
modifications begins with the oldest, metadata of retrieved data is not escaped, and NaN is printed bare.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from werkzeug import Request, Response

from aps_rag_pipeline.demo.live.archiver_store import Archived, Sample, Store, read_folder

_ATTRIBUTES = {
    "upperDisplayLimit": ("HOPR", "0.0"),
    "lowerDisplayLimit": ("LOPR", "0.0"),
    "upperCtrlLimit": ("DRVH", "0.0"),
    "lowerCtrlLimit": ("DRVL", "0.0"),
    "upperAlarmLimit": ("HIHI", "NaN"),
    "upperWarningLimit": ("HIGH", "NaN"),
    "lowerWarningLimit": ("LOW", "NaN"),
    "lowerAlarmLimit": ("LOLO", "NaN"),
    "precision": ("PREC", "0.0"),
}
_STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "count": len,
    "median": statistics.median,
    "std": lambda values: statistics.stdev(values) if len(values) > 1 else 0.0,
}
_BINNED = re.compile(r"(?P<operator>[A-Za-z]+)(?:_(?P<bin>\d+))?\((?P<pv>.+)\)")
_STORES = [f"pb://localhost?name={name}&rootFolder=${{ARCHAPPL_FOLDER}}" for name in ("STS", "MTS", "LTS")]


class Server:
    """A WSGI application over a store, which tests change between requests."""

    def __init__(self, store: Store | None = None, zone: str = "America/Chicago") -> None:
        self.store = store or Store()
        self.zone = ZoneInfo(zone)
        self._folder: Path | None = None
        self._seen: tuple[tuple[str, int, int], ...] = ()
        self._lock = threading.Lock()
        self._actions: dict[str, Callable[[Request], Any]] = {
            "getAllPVs": self._all_names,
            "getAllAliases": self._all_aliases,
            "getAppliancesInCluster": self._members,
            "getVersions": self._versions,
            "exportConfig": self._export,
            "getPVTypeInfo": self._one_type_info,
            "getRecentlyAddedPVs": self._recently_added,
            "getRecentlyModifiedPVs": self._recently_modified,
            "getPVStatus": self._statuses,
        }

    @classmethod
    def of_folder(cls, folder: Path) -> Server:
        """Serve the lists and databases of the demo, as they are at each request."""
        server = cls()
        server._folder = folder
        return server

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self._refresh()
        return self._answer(Request(environ))(environ, start_response)

    def _refresh(self) -> None:
        if self._folder is None:
            return
        with self._lock:
            files = sorted(path for path in self._folder.rglob("*") if path.is_file())
            seen = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
            if seen == self._seen:
                return
            found, now = read_folder(self._folder), datetime.now(UTC)
            for name, pv in found.items():
                before = self.store.pvs.get(name)
                if before is not None and before.fields == pv.fields:
                    found[name] = before
                elif before is not None or self._seen:
                    pv.modified = now
                    pv.created = before.created if before else now
            self.store.pvs, self._seen = found, seen

    def _answer(self, request: Request) -> Response:
        parts = request.path.strip("/").split("/")
        handler: Callable[[Request], Any] | None = None
        retrieval = parts[0] == "retrieval"
        if self.store.starting and parts[-1] not in ("ping", "startupState"):
            return Response("", 503 if retrieval else 500)
        match parts:
            case ["mgmt", "bpl", action]:
                handler = self._actions.get(action)
            case ["retrieval", "bpl", "getMetadata"]:
                handler = self._metadata
            case ["retrieval", "data", "getData.json"]:
                handler = self._data
            case ["retrieval", "data", "getDataAtTime"]:
                handler = self._data_at
        if handler is None:
            return Response("", 404)
        found = handler(request)
        return found if isinstance(found, Response) else _json(found)

    # management

    def _all_names(self, request: Request) -> Any:
        names = [*(pv.name for pv in self._all()), *self.store.aliases]
        if pattern := request.values.get("pv"):
            names = [name for name in names if fnmatchcase(name, pattern)]
        elif regex := request.values.get("regex"):
            names = [name for name in names if re.fullmatch(regex, name)]
        return _limited(names, request, 500)

    def _all_aliases(self, request: Request) -> Any:
        return [{"aliasName": alias, "srcPVName": real} for alias, real in self.store.aliases.items()]

    def _members(self, request: Request) -> Any:
        up = [name for name in self.store.members if name not in self.store.down]
        return [{"identity": name, "mgmtURL": f"http://{name}:17665/mgmt/bpl"} for name in up]

    def _versions(self, request: Request) -> Any:
        return {"mgmt_version": "Archiver Appliance Version 2.0.7"}

    def _export(self, request: Request) -> Any:
        return [_type_info(pv) for pv in self.store.up()]

    def _one_type_info(self, request: Request) -> Any:
        pv = self._asked(request)
        return _type_info(pv) if pv else Response("", 404)

    def _recently_added(self, request: Request) -> Any:
        pvs = sorted(self.store.up(), key=lambda pv: pv.created)
        told = [{"pvName": pv.name, "instance": pv.appliance, "creationTime": self._said(pv.created)} for pv in pvs]
        return _limited(told, request, 100, report=True)

    def _recently_modified(self, request: Request) -> Any:
        pvs = sorted((pv for pv in self.store.up() if pv.modified != pv.created), key=lambda pv: pv.modified)
        told = [{"pvName": p.name, "instance": p.appliance, "modificationTime": self._said(p.modified)} for p in pvs]
        return _limited(told, request, 100, report=True)

    def _statuses(self, request: Request) -> Any:
        names = [name for name in request.values.get("pv", "").split(",") if name]
        return [self._status(name) for name in names]

    def _status(self, name: str) -> dict[str, str]:
        pv = self.store.real(name)
        if pv is None:
            state = "Initial sampling" if name in self.store.requested else "Not being archived"
            return {"pvName": name, "status": state}
        if pv.appliance in self.store.down:
            return {"pvName": name, "status": "Appliance Down"}
        told = {"pvName": name, "pvNameOnly": name, "appliance": pv.appliance}
        if pv.paused:
            return told | {"status": "Paused"}
        last = max((sample.secs for sample in pv.samples), default=None)
        return told | {
            "status": "Being archived",
            "lastRotateLogs": "Never",
            "connectionState": "true",
            "lastEvent": self._said(datetime.fromtimestamp(last, UTC)) if last else "Never",
            "samplingPeriod": str(pv.sampling_period),
            "isMonitored": str(pv.sampling_method == "MONITOR").lower(),
            "connectionFirstEstablished": self._said(pv.created),
            "connectionLastRestablished": "Never",
            "connectionLossRegainCount": "0",
        }

    def _all(self) -> list[Archived]:
        """Every PV: where each belongs is known to the whole cluster, also while its member is down."""
        away = [pv for pv in self.store.pvs.values() if pv.appliance in self.store.down]
        return [*self.store.up(), *away]

    def _asked(self, request: Request) -> Archived | None:
        pv = self.store.real(request.values.get("pv", ""))
        return None if pv is None or pv.appliance in self.store.down else pv

    def _said(self, moment: datetime) -> str:
        local = moment.astimezone(self.zone)
        offset = f"{local:%z}"
        zone = local.tzname() if self.store.zone_style == "name" else f"{offset[:3]}:{offset[3:]}"
        return f"{local:%b/%d/%Y %H:%M:%S} {zone}"

    # retrieval

    def _metadata(self, request: Request) -> Any:
        pv = self._asked(request)
        if pv is None:
            return Response("", 404)
        info = {key: value for key, value in _type_info(pv).items() if isinstance(value, str)}
        return info | pv.fields

    def _data(self, request: Request) -> Response:
        asked = request.args.get("pv", "")
        now = datetime.now(UTC)
        try:
            start = _moment(request.args.get("from"), now - timedelta(days=1))
            end = _moment(request.args.get("to"), now + timedelta(hours=1))
        except ValueError:
            return Response("", 400)
        if end < start or asked.count("(") != asked.count(")"):
            return Response("", 400)
        binned = _BINNED.fullmatch(asked)
        pv = self.store.real(binned["pv"] if binned else asked)
        if pv is None:
            return Response("", 404)
        samples: Iterable[Sample] = [] if pv.appliance in self.store.down else pv.between(start, end)
        if binned:
            samples = _binned(binned["operator"], int(binned["bin"] or 900), samples, start)
        return Response(_printed(asked if not binned else pv.name, pv, samples), mimetype="application/json")

    def _data_at(self, request: Request) -> Any:
        at = _moment(request.args.get("at"), datetime.now(UTC))
        names = request.get_json() if request.is_json else request.form.get("pv", "").split(",")
        found = {}
        for name in names:
            pv = self.store.real(name)
            known = [sample for sample in pv.between(at, at) if sample.secs <= at] if pv else []
            if known:
                found[name] = known[-1]._asdict()
        return found


def _type_info(pv: Archived) -> dict[str, Any]:
    """All values are texts. Fields other than limits, precision and units are known when they are archived alone."""
    info: dict[str, Any] = {key: _double(pv.fields.get(name), unset) for key, (name, unset) in _ATTRIBUTES.items()}
    scalar = pv.elements == 1
    return info | {
        "pvName": pv.name,
        "DBRType": pv.dbr_type if scalar else pv.dbr_type.replace("SCALAR", "WAVEFORM"),
        "scalar": str(scalar).lower(),
        "elementCount": str(pv.elements),
        "units": pv.fields.get("EGU", ""),
        "paused": str(pv.paused).lower(),
        "creationTime": _iso(pv.created),
        "modificationTime": _iso(pv.modified),
        "samplingMethod": pv.sampling_method,
        "samplingPeriod": str(pv.sampling_period),
        "policyName": "Default",
        "applianceIdentity": pv.appliance,
        "hostName": "ioc01.lakeside.example",
        "computedEventRate": "0.98333335",
        "dataStores": _STORES,
        "archiveFields": sorted({"HIHI", "HIGH", "LOW", "LOLO", "LOPR", "HOPR"} | pv.fields.keys() - {"RTYP"}),
        "extraFields": {"NAME": pv.name, "SCAN": "Passive", "ADEL": "0.0", "MDEL": "0.0"}
        | {key: value for key, value in pv.fields.items() if key in ("RTYP", "SCAN", "ADEL", "MDEL")},
        **({"controllingPV": pv.controlling} if pv.controlling else {}),
    }


def _binned(operator: str, width: int, samples: Iterable[Sample], start: float) -> Iterator[Sample]:
    inside = [sample for sample in samples if sample.secs >= start]
    if operator == "ncount":
        yield Sample(int(start), float(len(inside)))
        return
    bins: dict[int, list[Sample]] = {}
    for sample in inside:
        bins.setdefault(sample.secs // width, []).append(sample)
    for number, held in sorted(bins.items()):
        if operator in ("firstSample", "lastSample"):
            yield held[0 if operator == "firstSample" else -1]
        else:
            values = [float(sample.val) for sample in held if isinstance(sample.val, int | float)]
            worst = max(sample.severity for sample in held)
            result = float(_STATISTICS[operator](values)) if operator in _STATISTICS else math.nan
            yield Sample(number * width + width // 2, result, severity=worst)


def _printed(name: str, pv: Archived, samples: Iterable[Sample]) -> Iterator[str]:
    """Data as it is printed: bit by bit, metadata as it is, values of no number bare."""
    meta = {key: pv.fields[key] for key in ("EGU", "PREC", "DESC") if pv.fields.get(key)}
    yield '[ \n{ "meta": { "name": "' + name + '" ' + "".join(f', "{k}": "{v}" ' for k, v in meta.items()) + "},\n"
    yield '"data": [ \n'
    for number, sample in enumerate(samples):
        yield (",\n" if number else "") + (
            f'{{ "secs": {sample.secs}, "val": {json.dumps(sample.val)}, "nanos": {sample.nanos}, '
            f'"severity":{sample.severity}, "status":{sample.status} }}'
        )
    yield "] }\n ]\n"


def _json(value: Any) -> Response:
    return Response(json.dumps(value).replace("/", "\\/"), mimetype="application/json")


def _limited(found: list[Any], request: Request, default: int, *, report: bool = False) -> Any:
    """A list up to its limit. -1 lifts the one of names; a report of a member that is asked for -1 fails and is left
    out, so that nothing remains."""
    try:
        limit = int(request.values.get("limit", default))
    except ValueError:
        return Response("", 500)
    if limit < 0:
        return [] if report else found
    return found[:limit]


def _moment(text: str | None, default: datetime) -> float:
    moment = default if text is None else datetime.fromisoformat(text.replace(" ", "+"))
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment.timestamp()


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _double(text: str | None, unset: str) -> str:
    try:
        return unset if text is None else repr(float(text))
    except ValueError:
        return unset
