"""What the demo's Archiver Appliance holds: PVs with their type infos, and their samples."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from aps_rag_pipeline.content.epicsdb import DbRecord, parse_db

_SINCE = datetime(2019, 3, 4, 17, 20, 5, 123000, UTC)
_HOUR = 3600
_DBR_TYPES = {"bi": "ENUM", "bo": "ENUM", "mbbi": "ENUM", "mbbo": "ENUM", "stringin": "STRING", "longin": "INT"}


class Sample(NamedTuple):
    """`val` is a number, a text, or a list of numbers; `severity` and `status` are EPICS' own numbers."""

    secs: int
    val: float | str | list[float]
    nanos: int = 0
    severity: int = 0
    status: int = 0


@dataclass
class Archived:
    """One archived PV. `fields` are those of its record that the policy archives; limits are kept among them."""

    name: str
    fields: dict[str, str] = field(default_factory=dict)
    dbr_type: str = "DBR_SCALAR_DOUBLE"
    elements: int = 1
    created: datetime = _SINCE
    modified: datetime = _SINCE
    paused: bool = False
    sampling_method: str = "MONITOR"
    sampling_period: float = 1.0
    appliance: str = "appliance0"
    controlling: str = ""
    samples: list[Sample] = field(default_factory=list)
    invented: bool = False

    def between(self, start: float, end: float) -> Iterator[Sample]:
        """Samples up to `end`, begun by the last one before `start`, as an appliance gives them."""
        if self.invented:
            yield from self._invented(start, end)
            return
        before = [sample for sample in self.samples if sample.secs < start]
        if before:
            yield before[-1]
        yield from (sample for sample in self.samples if start <= sample.secs <= end)

    def _invented(self, start: float, end: float) -> Iterator[Sample]:
        """A value an hour, the same whenever it is asked for."""
        seed = int.from_bytes(hashlib.blake2b(self.name.encode(), digest_size=2).digest(), "big")
        first = max(int(self.created.timestamp()), int(start)) // _HOUR
        for hour in range(first, min(int(end) // _HOUR, first + 20_000) + 1):
            wave = math.sin((hour + seed) / 9) + 0.05 * math.sin(hour * (seed % 13 + 2))
            states = self.dbr_type.endswith("ENUM")
            yield Sample(hour * _HOUR, float(wave > 0) if states else round(20 + seed % 80 + wave, 3), seed * 1000)


@dataclass
class Store:
    """A cluster. `down` names members that do not answer; `starting` is the time before an appliance is ready."""

    pvs: dict[str, Archived] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    members: list[str] = field(default_factory=lambda: ["appliance0"])
    down: set[str] = field(default_factory=set)
    requested: set[str] = field(default_factory=set)
    starting: bool = False
    zone_style: str = "name"

    def put(self, pv: Archived) -> None:
        self.pvs[pv.name] = pv

    def real(self, name: str) -> Archived | None:
        return self.pvs.get(self.aliases.get(name, name))

    def up(self) -> list[Archived]:
        """PVs of the members that answer, in an order of no meaning."""
        found = [pv for pv in self.pvs.values() if pv.appliance not in self.down]
        return sorted(found, key=lambda pv: hashlib.blake2b(pv.name.encode(), digest_size=8).digest())


def read_folder(folder: Path) -> dict[str, Archived]:
    """The PVs of the demo's lists and databases."""
    found: dict[str, Archived] = {}
    for path in sorted(folder.rglob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                fields = {"DESC": row.get("description", ""), "EGU": row.get("units", "")}
                found.setdefault(row["name"], Archived(row["name"], fields, invented=True))
    for path in sorted(folder.rglob("*.db")):
        for statement in parse_db(path.read_text(encoding="utf-8")):
            if isinstance(statement, DbRecord):
                dbr = f"DBR_SCALAR_{_DBR_TYPES.get(statement.type, 'DOUBLE')}"
                fields = {"RTYP": statement.type, **statement.fields}
                found[statement.name] = Archived(statement.name, fields, dbr, invented=True)
    return found
