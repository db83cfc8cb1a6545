"""A log book as a dump of its MySQL tables: INSERT statements in .sql files that belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from aps_rag_pipeline.records import FieldValue
from aps_rag_pipeline.sources.base import Ignored, UnreadableError
from aps_rag_pipeline.sources.logbooks.model import Document, Entry, Reading

Row = dict[str, str | None]

#: Columns by position, for the tables that entries are put together from; a dump may leave their names out.
_COLUMNS = {
    "log": (
        "id text entered_on_date_time last_modified_on_date_time entered_by_user_id last_modified_by_user_id "
        "effective_from_date_time effective_to_date_time parent_log_id log_topic_id"
    ),
    "item": "id domain_id name derived_from_item_id item_identifier1 item_identifier2 qr_id",
    "item_element": "id name parent_item_id",
    "item_element_log": "item_element_id log_id",
    "item_entity_type": "item_id entity_type_id",
    "item_item_type": "item_id item_type_id",
    "entity_type": "id name display_name",
    "item_type": "id name",
    "user_info": "id username",
    "system_log": "log_id log_level_id",
}
_INSERT = re.compile(r"INSERT\s+INTO\s+`?(\w+)`?\s*(?:\(([^()]*)\)\s*)?VALUES\s*", re.IGNORECASE)
_TOKEN = re.compile(r"'((?:[^'\\]|\\.|'')*)'|([(),;])|([^\s'(),;]+)|\s+", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "", "Z": "", "b": ""}


@dataclass
class Dump:
    """Rows by table, in the order in which they stand."""

    tables: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, text: str, name: str) -> Iterator[Ignored]:
        """Take in the INSERT statements of a file; a file without any that entries need is ignored.

        Raises:
            UnreadableError: a statement has no end.
        """
        used = False
        for match in _INSERT.finditer(text):
            table, columns = match.group(1).lower(), match.group(2)
            if table not in _COLUMNS:
                continue
            used = True
            stated = [column.strip(" `\n") for column in columns.split(",")] if columns else _COLUMNS[table].split()
            rows = self.tables.setdefault(table, [])
            rows.extend(dict(zip(stated, values, strict=False)) for values in _rows(text, match.end(), name))
        if not used:
            yield Ignored(name, "a part of a dump that entries are not made of")

    def by_id(self, table: str, key: str = "id") -> dict[str, Row]:
        return {row[key] or "": row for row in self.tables.get(table, ())}

    def groups(self, table: str, key: str, value: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in self.tables.get(table, ()):
            found.setdefault(row[key] or "", []).append(row[value] or "")
        return found


def read_dump(dump: Dump, place: str) -> Reading:
    """The entries of a dump, with the documents and sections they stand in. Lines of the server's audit are ignored."""
    users = {key: row.get("username") or "" for key, row in dump.by_id("user_info").items()}
    items, elements = dump.by_id("item"), dump.by_id("item_element")
    audited = dump.by_id("system_log", "log_id")
    holders = dump.groups("item_element_log", "log_id", "item_element_id")
    documents = _documents(dump)
    for number, row in enumerate(dump.tables.get("log", ()), 1):
        where = f"{place}: table log row {number}"
        log_id = row.get("id") or ""
        if log_id in audited:
            yield Ignored(where, "an audit line of the server")
            continue
        element = elements.get(next(iter(holders.get(log_id, ())), ""), {})
        item = items.get(element.get("parent_item_id") or "", {})
        parent_item = items.get(item.get("item_identifier2") or "", {})  # a section names its document there
        document = parent_item or item
        yield Entry(
            id=log_id,
            text=(row.get("text") or "").replace("\r\n", "\n"),
            place=where,
            author=users.get(row.get("entered_by_user_id") or "", ""),
            created=row.get("entered_on_date_time"),
            modified=row.get("last_modified_on_date_time"),
            modified_by=users.get(row.get("last_modified_by_user_id") or "", ""),
            parent=row.get("parent_log_id") or "",
            section=(item.get("name") or "") if parent_item else "",
            document=documents.get(document.get("id") or "", Document()),
        )


def _documents(dump: Dump) -> dict[str, Document]:
    types, systems = dump.by_id("entity_type"), dump.by_id("item_type")
    of_type = dump.groups("item_entity_type", "item_id", "entity_type_id")
    of_system = dump.groups("item_item_type", "item_id", "item_type_id")
    found = {}
    for item_id, item in dump.by_id("item").items():
        logbooks = [
            types[key].get("display_name") or types[key]["name"] for key in of_type.get(item_id, ()) if key in types
        ]
        named = [systems[key]["name"] for key in of_system.get(item_id, ()) if key in systems]
        shown = {"logbook": [name for name in logbooks if name], "system": [name for name in named if name]}
        fields: dict[str, FieldValue] = {key: names for key, names in shown.items() if names}
        found[item_id] = Document(item_id, item.get("name") or "", fields)
    return found


def _rows(text: str, start: int, name: str) -> Iterator[list[str | None]]:
    """The value lists of one INSERT statement."""
    values: list[str | None] = []
    depth = 0
    while match := _TOKEN.match(text, start):
        start = match.end()
        quoted, sign, bare = match.groups()
        if sign == "(":
            depth, values = depth + 1, [] if depth == 0 else values
        elif sign == ")":
            depth -= 1
            if depth == 0:
                yield values
        elif sign == ";" and depth == 0:
            return
        elif quoted is not None:
            values.append(_ESCAPE.sub(_unescaped, quoted))
        elif bare:
            values.append(None if bare.upper() == "NULL" else bare)
    raise UnreadableError(
        f"{name}: an INSERT statement has no end; it seems to be cut off", remedy="write the dump again"
    )


def _unescaped(match: re.Match[str]) -> str:
    char = match.group(1)
    return "'" if char is None else _ESCAPED.get(char, char)
