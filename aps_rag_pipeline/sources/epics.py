"""Process variables: PV lists (tables) and EPICS databases, one record a PV."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from aps_rag_pipeline.content.epicsdb import DbAlias, DbNote, DbProblem, DbRecord, parse_db
from aps_rag_pipeline.content.tables import TABLE_PATTERNS, Row, Wanted, cell_text, read_tables
from aps_rag_pipeline.content.text import decode, is_binary
from aps_rag_pipeline.sources.base import Failure, Found, Ignored, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Unit
from aps_rag_pipeline.sources.pvs.archiver import ArchiverPvs
from aps_rag_pipeline.sources.pvs.controls import ChannelAccessPvs, PvAccessPvs
from aps_rag_pipeline.sources.pvs.model import MAX_NAME, Pv, link_target, name_words, pv_of_fields, pv_record, typed
from aps_rag_pipeline.sources.tabular import check_headings, labels

__all__ = ["FORMS", "EpicsFiles", "link_target", "name_words"]

_DATABASES = (".db", ".vdb", ".template", ".dbd")
_MAX_PROBLEMS = 1_000


class EpicsFiles(FileSource):
    """Tables with one PV a row (a PV in several rows is one record with all its groups) and EPICS database files.

    Options: `macros`, names and values for database files. A name in which a macro has no value keeps it as written.
    """

    key = "epics"
    patterns = (*TABLE_PATTERNS, *(f"*{suffix}" for suffix in _DATABASES))
    columns: ClassVar[dict[str, tuple[str, ...]]] = {
        "name": (
            "pv name",
            "pv",
            "process variable",
            "control name",
            "record name",
            "address",
            "channel name",
            "channel",
        ),
        "description": ("desc",),
        "units": ("unit", "egu", "engineering units", "hw units"),
        "group": ("group name", "groups", "logger"),
        "readback": ("readback name", "friendly name", "alias", "channel"),
        "record_type": ("rtyp", "type"),
        "access": (),
    }

    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        for entry in unit.files:
            data = self.load(entry)
            if _is_database(entry, data):
                yield from self._read_database(unit, entry.name, data)
            else:
                yield from self._read_table(unit, entry.name, data)

    def check(self) -> Found:
        found = super().check()
        tables = [entry for entry in self.listing().files if not entry.name.lower().endswith(_DATABASES)]
        return Found(found.units, found.detail + check_headings(self, self.wanted, tables))

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.feed.columns, self.columns, ("name",))

    # tables

    def _read_table(self, unit: Unit, name: str, data: bytes) -> Iterator[Upsert | Failure | Ignored]:
        pvs: dict[str, Pv] = {}
        for table in read_tables(data, name, self.wanted, self.context.limits, self.feed.encoding):
            if isinstance(table, Ignored):
                yield table
                continue
            labelled = "access" in table.columns
            for row in table.rows:
                pv_name = " ".join(cell_text(row.values.get("name", "")).split())
                reason = _row_problem(row, pv_name, table.columns["name"])
                if reason:
                    yield Failure(unit.name, row.place, row.place, reason, "mend the row", True, pv_name[:MAX_NAME])
                    continue
                _add_row(pvs.setdefault(pv_name, Pv(pv_name, row.place)), row, labelled)
        for pv in pvs.values():
            yield Upsert(pv_record(pv, self.feed), unit.name, pv.place)

    # databases

    def _read_database(self, unit: Unit, name: str, data: bytes) -> Iterator[Upsert | Failure | Ignored]:
        if is_binary(data):
            raise UnreadableError("no EPICS database: the file is binary", remedy="leave it out with `exclude`")
        macros = {str(key): str(value) for key, value in dict(self.feed.options.get("macros", {})).items()}
        records: dict[str, DbRecord] = {}
        problems = 0
        for statement in parse_db(decode(data, self.feed.encoding), macros):
            place = f"{name}:{statement.line}"
            if isinstance(statement, DbNote):
                yield Ignored(place, f"{statement.text}: files are read for themselves")
                continue
            reason = statement.reason if isinstance(statement, DbProblem) else _add_statement(records, statement)
            if reason:
                problems += 1
                if problems > _MAX_PROBLEMS:
                    raise UnreadableError(f"no EPICS database: more than {_MAX_PROBLEMS} statements cannot be read")
                known = statement.name if isinstance(statement, DbProblem) else ""
                yield Failure(unit.name, place, place, reason, "mend the statement", True, known)
        if not records and not problems:
            yield Ignored(name, "a database file without a record")
        for record in records.values():
            place = f"{name}:{record.line}"
            yield Upsert(pv_record(_pv_of(record, place), self.feed), unit.name, place)


def _is_database(entry: FileEntry, data: bytes) -> bool:
    return entry.name.lower().endswith(_DATABASES) or bool(re.match(rb"\s*g?record\s*\(", data[:4096]))


def _row_problem(row: Row, name: str, heading: str) -> str:
    if row.problem:
        return row.problem
    if not name:
        return f'no name: the column "{heading}" is blank'
    return f"a name of {len(name)} characters" if len(name) > MAX_NAME else ""


def _add_row(pv: Pv, row: Row, labelled: bool) -> None:
    values = row.values
    for name, held in (
        ("description", pv.description),
        ("readback", pv.readback),
        ("units", pv.units),
        ("group", pv.groups),
    ):
        if name in values and (text := cell_text(values[name])) not in held:
            held.append(text)
    pv.record_type = pv.record_type or cell_text(values.get("record_type", ""))
    for heading, cell in row.others.items():
        value = typed(cell)
        held_values = pv.others.setdefault(heading, [])
        if value not in held_values:
            held_values.append(value)
    if labelled:
        # What the rows say stands together in one record, so only who may see each of them may see it.
        label = values.get("access")
        stated = frozenset(labels(label) if isinstance(label, str) else ())
        pv.access = stated if pv.access is None else pv.access & stated


def _add_statement(records: dict[str, DbRecord], statement: DbRecord | DbAlias) -> str:
    """Load a statement as an IOC does: a record that is named again is added to. Returns what is wrong with it."""
    if isinstance(statement, DbAlias):
        if statement.record not in records:
            return f"an alias of {statement.record}, which this file does not hold"
        records[statement.record].aliases.append(statement.alias)
        return ""
    if len(statement.name) > MAX_NAME:
        return f"a name of {len(statement.name)} characters"
    if statement.type == "#":
        records.pop(statement.name, None)
        return ""
    first = records.setdefault(statement.name, statement)
    if first is statement:
        return ""
    if statement.type not in (first.type, "*"):
        return (
            f"{first.name} is a record of type {first.type} at line {first.line} and cannot be a {statement.type} too"
        )
    first.fields |= statement.fields
    first.info |= statement.info
    first.aliases += statement.aliases
    return ""


def _pv_of(record: DbRecord, place: str) -> Pv:
    pv = pv_of_fields(record.name, place, "" if record.type == "*" else record.type, record.fields)
    for name, value in record.info.items():
        pv.others[f"info {name}"] = [value]
    if record.aliases:
        pv.others["aliases"] = [*dict.fromkeys(record.aliases)]
    return pv


FORMS: dict[str, type[Source]] = {
    "files": EpicsFiles,
    "archiver": ArchiverPvs,
    "channel_access": ChannelAccessPvs,
    "pvaccess": PvAccessPvs,
}
