"""One process variable and its record, however it was learnt of: from a table, a database file or a service."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aps_rag_pipeline.content.epicsdb import unresolved
from aps_rag_pipeline.content.tables import Cell, cell_text, number_or_text, slug
from aps_rag_pipeline.records import FieldValue, Link, Part, Record
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.tabular import shortened

#: Longest name of a PV that is taken for one.
MAX_NAME = 200
_WORD_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z]{2})(?=\d)|(?<=\d)(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[^A-Za-z0-9]+")
#: Fields of EPICS records that hold a link; its target is another record unless it is a constant or an address.
_LINK_FIELD = re.compile(
    r"INP[A-U]?|OUT[A-U]?|FLNK|DOL[0-9A-F]?|LNK[0-9A-F]|SELL|SDIS|TSEL|SIOL|SIML|SUBL|NVL|SVL|STPL|RDBL|DINP|RLNK|TRIG"
)
_JSON_PV = re.compile(r"""["']?\b(?:pv|name)["']?\s*:\s*["']([^"']+)["']""")
_RECORD_FIELD = re.compile(r"\.[A-Z][A-Z0-9]{0,3}\$?$")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
#: Fields that say what a record is, in the order in which people read them; the rest follow in their own order.
_SAID_FIRST = ("SCAN", "PREC", "HOPR", "LOPR", "DRVH", "DRVL", "HIHI", "HIGH", "LOW", "LOLO", "ZNAM", "ONAM")
#: Where records of two and of more states keep the names of these.
TWO_STATES = ("ZNAM", "ONAM")
MANY_STATES = (
    *("ZRST", "ONST", "TWST", "THST", "FRST", "FVST", "SXST", "SVST"),
    *("EIST", "NIST", "TEST", "ELST", "TVST", "TTST", "FTST", "FFST"),
)


@dataclass
class Pv:
    """What is known of one PV, from as many rows or statements as speak of it. `others` are shown by their names."""

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


def pv_of_fields(name: str, place: str, record_type: str, fields: Mapping[str, str], aliases: Sequence[str] = ()) -> Pv:
    """A PV from the fields of its EPICS record, by their names (`DESC`, `EGU`, `HIHI` ...)."""
    pv = Pv(name, place, record_type=record_type)
    rest = dict(fields)
    for key, held in (("DESC", pv.description), ("EGU", pv.units)):
        if text := rest.pop(key, ""):
            held.append(text)
    for key in sorted(rest, key=lambda key: _SAID_FIRST.index(key) if key in _SAID_FIRST else len(_SAID_FIRST)):
        value = rest[key]
        if value:
            pv.others[key] = [typed(value)]
        if _LINK_FIELD.fullmatch(key) and (target := link_target(value)) and target != name:
            pv.links.setdefault(Link("process_variable", target, key))
    if aliases:
        pv.others["aliases"] = [*dict.fromkeys(aliases)]
    return pv


def states(record_type: str, labels: Sequence[str]) -> dict[str, str]:
    """The names of the states of an enumeration, by the fields of the record that hold them."""
    two = record_type in ("bi", "bo", "busy") or (not record_type and len(labels) == 2)
    return dict(zip(TWO_STATES if two else MANY_STATES, labels, strict=False))


def pv_record(pv: Pv, feed: Feed) -> Record:
    """The record of a PV; its id is the PV's name."""
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
    template = feed.url_template
    return Record(
        source="epics",
        feed=feed.name,
        id=pv.name,
        title=shortened(f"{pv.name} ({said[0]})" if said else pv.name),
        url=template.format(id=pv.name) if template else "",
        parts=(Part("prose", _prose(pv)),),
        fields=fields,
        links=tuple(pv.links),
        access=feed.access if pv.access is None else tuple(sorted(pv.access)),
    )


def link_target(value: str) -> str:
    """The record that a link field names, without the field of it that is meant; empty for constants and addresses."""
    if value.startswith("{"):
        match = _JSON_PV.search(value)
        value = match[1] if match else ""
    target = value.split()[0] if value.split() else ""
    if not target or target[0] in "@#" or _NUMBER.fullmatch(target):
        return ""
    return record_name(target)


def record_name(name: str) -> str:
    """The record that a PV belongs to: a PV may be a field of it."""
    return _RECORD_FIELD.sub("", name)


def name_words(name: str) -> str:
    """A PV name as words: `S13B:Q2:CurrentAI` gives `S13B Q2 Current AI`."""
    return _WORD_BORDER.sub(" ", _NOT_WORD.sub(" ", name)).strip()


def typed(cell: Cell) -> FieldValue:
    """A number where the text is one."""
    if isinstance(cell, bool | int | float):
        return cell
    return number_or_text(cell_text(cell))


def _prose(pv: Pv) -> str:
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
