"""The header of an SDDS file as text: what it is about in words, then tables of what it defines."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from aps_rag_pipeline.content.markup import pipe_table
from aps_rag_pipeline.content.sdds import Element, FirstPage, Header, Kind
from aps_rag_pipeline.records import FieldValue, Link, Part

_TITLES: dict[Kind, str] = {"parameter": "Parameters", "column": "Columns", "array": "Arrays"}
#: Text columns that name things, and those of them that name process variables.
_NAMING = re.compile(r"names?$|^(?:pvs?|process_?variables?|signals?|channels?)$", re.IGNORECASE)
_NAMES_PVS = re.compile(r"^(?:control|readback|pv|process_?variable|channel|signal)s?(?:_?names?)?$", re.IGNORECASE)
_PV = re.compile(r"[A-Za-z0-9][\w.+#-]*(?::[\w.+#-]+)+")
_MAX_NAMES = 500
_LONGEST_VALUE = 200
_ERA = (datetime(1985, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))


def sdds_parts(name: str, header: Header, page: FirstPage | None) -> tuple[Part, ...]:
    """Description, tables of parameters, columns and arrays, and the names that stand in the first page."""
    values = {} if page is None else page.parameters
    parts = [Part("prose", _words(name, header, page))]
    for kind, title in _TITLES.items():
        elements = header.of(kind)
        if elements:
            parts.append(Part("table", _table(elements, values), title.lower(), title))
    for column, names in _naming(page).items():
        shown = ", ".join(names[:_MAX_NAMES])
        rest = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        parts.append(Part("prose", f"{column}: {shown}{rest}", f"column {column}, page 1", column))
    return tuple(parts)


def sdds_links(header: Header, page: FirstPage | None) -> tuple[Link, ...]:
    """The process variables that a file logs or sets: columns named like one, and names in its first page."""
    found = [element.name for element in header.elements if _PV.fullmatch(element.name)]
    for column, names in _naming(page).items():
        if _NAMES_PVS.match(column):
            found += [name for name in names if _PV.fullmatch(name)]
    return tuple(Link("process_variable", name) for name in dict.fromkeys(found))


def sdds_fields(header: Header, page: FirstPage | None) -> dict[str, FieldValue]:
    fields: dict[str, FieldValue] = {
        "sdds_version": header.version,
        "mode": header.mode,
        "endian": header.endian,
        "contents": header.contents,
        **{f"{kind}_count": len(header.of(kind)) for kind in _TITLES},
    }
    if header.missing:
        fields["missing_includes"] = header.missing
    if page is not None:
        fields |= {"pages": page.pages, "rows_in_first_page": page.rows}
    return {name: value for name, value in fields.items() if value != ""}


def started_at(header: Header, page: FirstPage | None) -> datetime | None:
    """When the data begin, where the file says so in the way of the loggers: `StartTime`, seconds since 1970."""
    element = next((each for each in header.of("parameter") if each.name == "StartTime"), None)
    if page is None or element is None or element.units not in ("s", "seconds", ""):
        return None
    try:
        moment = datetime.fromtimestamp(int(float(page.parameters.get("StartTime", ""))), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment if _ERA[0] < moment < _ERA[1] else None


def _naming(page: FirstPage | None) -> dict[str, tuple[str, ...]]:
    texts = {} if page is None else page.texts
    named = {column: names for column, names in texts.items() if _NAMING.search(column)}
    return {column: names for column, names in named.items() if any(char.isalnum() for char in "".join(names))}


def _words(name: str, header: Header, page: FirstPage | None) -> str:
    lines = [f"SDDS file {name}"]
    lines += [f"Description: {header.text}"] if header.text else []
    lines += [f"Contents: {header.contents}"] if header.contents else []
    counts = [f"{len(header.of(kind))} {title.lower()}" for kind, title in _TITLES.items()]
    data = " ".join(word for word in (header.mode, header.endian and f"{header.endian}-endian") if word)
    lines.append(f"SDDS version {header.version}, {data} data; {', '.join(counts)}.")
    if page is not None:
        lines.append(f"Pages: {page.pages}; rows in the first page: {page.rows}.")
    for included in header.includes:
        lost = " (not found)" if included in header.missing else ""
        lines.append(f"Takes header lines from {included}{lost}.")
    return "\n".join(lines)


def _table(elements: list[Element], values: dict[str, str]) -> str:
    shown = [(element, _value(element, values)) for element in elements]
    heads = ["Name", "Units", "Type", "Description"]
    arrays = any(element.dimensions > 1 for element in elements)
    valued = any(value for _, value in shown)
    rows = [heads + ["Dimensions"] * arrays + ["Value in the first page"] * valued]
    for element, value in shown:
        cells = [element.name, element.units, element.type, element.description]
        rows.append(cells + [str(element.dimensions)] * arrays + [value] * valued)
    return pipe_table(rows)


def _value(element: Element, values: dict[str, str]) -> str:
    if element.kind != "parameter":
        return ""
    value = element.value or values.get(element.name, "")
    return value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "..."
