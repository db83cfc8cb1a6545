"""Process variables: PV lists (tables) and EPICS databases, one record a PV."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from aps_rag_pipeline.content.epicsdb import DbAlias, DbNote, DbProblem, DbRecord, parse_db, unresolved
from aps_rag_pipeline.content.tables import (
    TABLE_PATTERNS,
    Cell,
    Row,
    Wanted,
    cell_text,
    number_or_text,
    read_tables,
    slug,
)
from aps_rag_pipeline.content.text import decode, is_binary
from aps_rag_pipeline.records import FieldValue, Link, Part, Record
from aps_rag_pipeline.sources.base import Failure, Found, Ignored, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Unit
from aps_rag_pipeline.sources.tabular import check_headings, labels, shortened

_DATABASES = (".db", ".vdb", ".template", ".dbd")
_MAX_NAME = 200
_MAX_PROBLEMS = 1_000
_WORD_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z]{2})(?=\d)|(?<=\d)(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[^A-Za-z0-9]+")
#: Fields of EPICS records that hold a link; its target is another record unless it is a constant or an address.
_LINK_FIELD = re.compile(
    r"INP[A-U]?|OUT[A-U]?|FLNK|DOL[0-9A-F]?|LNK[0-9A-F]|SELL|SDIS|TSEL|SIOL|SIML|SUBL|NVL|SVL|STPL|RDBL|DINP|RLNK|TRIG"
)
_JSON_PV = re.compile(r"""["']?\b(?:pv|name)["']?\s*:\s*["']([^"']+)["']""")
_RECORD_FIELD = re.compile(r"\.[A-Z][A-Z0-9]{0,3}\$?$")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
#: Fields that say what a record is, in the order in which people read them; the rest follow in the file's order.
_SAID_FIRST = ("SCAN", "PREC", "HOPR", "LOPR", "DRVH", "DRVL", "HIHI", "HIGH", "LOW", "LOLO", "ZNAM", "ONAM")


@dataclass
class _Pv:
    """What is known of one PV, from as many rows or statements as speak of it."""

    name: str
    place: str
    description: list[str] = field(default_factory=list)
    readback: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    record_type: str = ""
    others: dict[str, list[FieldValue]] = field(default_factory=dict)
    links: dict[Link, None] = field(default_factory=dict)
    access: frozenset[str] | None = None


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
        pvs: dict[str, _Pv] = {}
        for table in read_tables(data, name, self.wanted, self.context.limits, self.feed.encoding):
            if isinstance(table, Ignored):
                yield table
                continue
            labelled = "access" in table.columns
            for row in table.rows:
                pv_name = " ".join(cell_text(row.values.get("name", "")).split())
                reason = _row_problem(row, pv_name, table.columns["name"])
                if reason:
                    yield Failure(unit.name, row.place, row.place, reason, "mend the row", True, pv_name[:_MAX_NAME])
                    continue
                _add_row(pvs.setdefault(pv_name, _Pv(pv_name, row.place)), row, labelled)
        for pv in pvs.values():
            yield Upsert(self._record(pv), unit.name, pv.place)

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
            yield Upsert(self._record(_pv_of(record, f"{name}:{record.line}")), unit.name, f"{name}:{record.line}")

    def _record(self, pv: _Pv) -> Record:
        fields: dict[str, FieldValue] = {}
        for name, values in (("description", pv.description), ("readback", pv.readback), ("units", pv.units)):
            if values:
                fields[name] = values[0] if len(values) == 1 else values
        if pv.record_type:
            fields["record_type"] = pv.record_type
        if pv.groups:
            fields["groups"] = pv.groups
        for heading, found in pv.others.items():
            name = slug(heading)
            while name in fields:
                name += "_2"
            fields[name] = found[0] if len(found) == 1 else [str(value) for value in found]
        if macros := unresolved(pv.name):
            fields["macros"] = macros
        said = [*pv.description, *(name for name in pv.readback if name != pv.name)]
        template = self.feed.url_template
        return Record(
            source=self.key,
            feed=self.feed.name,
            id=pv.name,
            title=shortened(f"{pv.name} ({said[0]})" if said else pv.name),
            url=template.format(id=pv.name) if template else "",
            parts=(Part("prose", _prose(pv)),),
            fields=fields,
            links=tuple(pv.links),
            access=self.feed.access if pv.access is None else tuple(sorted(pv.access)),
        )


def _is_database(entry: FileEntry, data: bytes) -> bool:
    return entry.name.lower().endswith(_DATABASES) or bool(re.match(rb"\s*g?record\s*\(", data[:4096]))


def _row_problem(row: Row, name: str, heading: str) -> str:
    if row.problem:
        return row.problem
    if not name:
        return f'no name: the column "{heading}" is blank'
    return f"a name of {len(name)} characters" if len(name) > _MAX_NAME else ""


def _add_row(pv: _Pv, row: Row, labelled: bool) -> None:
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
        value = _typed(cell)
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
    if len(statement.name) > _MAX_NAME:
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


def _pv_of(record: DbRecord, place: str) -> _Pv:
    pv = _Pv(record.name, place, record_type="" if record.type == "*" else record.type)
    rest = dict(record.fields)
    for name, held in (("DESC", pv.description), ("EGU", pv.units)):
        if text := rest.pop(name, ""):
            held.append(text)
    for name in sorted(rest, key=lambda name: _SAID_FIRST.index(name) if name in _SAID_FIRST else len(_SAID_FIRST)):
        value = rest[name]
        if value:
            pv.others[name] = [_typed(value)]
        if _LINK_FIELD.fullmatch(name) and (target := link_target(value)) and target != record.name:
            pv.links.setdefault(Link("process_variable", target, name))
    for name, value in record.info.items():
        pv.others[f"info {name}"] = [value]
    if record.aliases:
        pv.others["aliases"] = [*dict.fromkeys(record.aliases)]
    return pv


def link_target(value: str) -> str:
    """The record that a link field names, without the field of it that is meant; empty for constants and addresses."""
    if value.startswith("{"):
        match = _JSON_PV.search(value)
        value = match[1] if match else ""
    target = value.split()[0] if value.split() else ""
    if not target or target[0] in "@#" or _NUMBER.fullmatch(target):
        return ""
    return _RECORD_FIELD.sub("", target)


def name_words(name: str) -> str:
    """A PV name as words: `S13B:Q2:CurrentAI` gives `S13B Q2 Current AI`."""
    return _WORD_BORDER.sub(" ", _NOT_WORD.sub(" ", name)).strip()


def _prose(pv: _Pv) -> str:
    """What a person would say of the PV, so that words find it as well as its name."""
    words = name_words(pv.name)
    lines = [f"{pv.name}: {words}" if words != pv.name else pv.name]
    lines += pv.description
    lines += [f"Readback name: {name} ({name_words(name)})" for name in pv.readback if name != pv.name]
    if pv.units:
        lines.append(f"Units: {', '.join(pv.units)}")
    if pv.groups:
        lines.append(f"Groups: {'; '.join(pv.groups)}")
    if pv.record_type:
        lines.append(f"Record type: {pv.record_type}")
    for heading, values in pv.others.items():
        if not heading.startswith("column "):
            lines.append(f"{heading}: {', '.join(str(value) for value in values)}")
    return "\n".join(lines)


def _typed(cell: Cell) -> FieldValue:
    if isinstance(cell, bool | int | float):
        return cell
    return number_or_text(cell_text(cell))


FORMS: dict[str, type[Source]] = {"files": EpicsFiles}
