"""Process variables: CSV lists of loggers, and database files for the systems whose front ends keep them."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from aps_rag_pipeline.demo.items import Variable

FOLDER = "epics"
HEADINGS = ("name", "description", "units", "group", "readback")
#: Kinds of device whose signals come from database files; the rest stand in CSV lists.
IN_DATABASES = frozenset({"valve", "cavity", "water", "door"})
#: Longest description that an EPICS record holds.
_DESC = 40
_RECORD_TYPES = {"BI": "bi", "BO": "bo", "AO": "ao"}


def file_name(variable: Variable) -> str:
    kind = variable.device.kind.key
    if kind in IN_DATABASES:
        return f"{FOLDER}/db/{kind}_{variable.device.sector:02d}.db"
    return f"{FOLDER}/pvs_{kind}.csv"


def write(feeds: Path, variables: Iterable[Variable]) -> int:
    """Write them file by file; those of one file must come together. Returns the number of distinct variables."""
    (feeds / FOLDER / "db").mkdir(parents=True, exist_ok=True)
    count = 0
    lists: dict[str, Any] = {}
    databases: dict[str, IO[str]] = {}
    with ExitStack() as stack:
        for variable in variables:
            name = file_name(variable)
            if name not in lists and name not in databases:
                file = stack.enter_context((feeds / name).open("w", encoding="utf-8", newline=""))
                if name.endswith(".csv"):
                    lists[name] = csv.writer(file)
                    lists[name].writerow(HEADINGS)
                else:
                    databases[name] = file
            if name in lists:
                lists[name].writerows(rows(variable))
            else:
                databases[name].write(record(variable))
            count += 1
    return count


def rows(variable: Variable) -> Iterable[tuple[str, ...]]:
    """One row, or two for a signal that two loggers keep."""
    friendly = f"{variable.device.name} {variable.signal.words.title()}"
    groups = [f"{variable.device.kind.system}: {variable.device.kind.noun}"]
    if variable.device.sector % 20 == 7 and variable.signal is variable.device.kind.signals[0]:
        groups.append("Top-up statistics")
    for group in groups:
        yield (variable.name, variable.description, variable.signal.unit, group, friendly)


def record(variable: Variable) -> str:
    """An EPICS record; the first signal of a device processes the next one."""
    signal, device = variable.signal, variable.device
    kind = next((found for end, found in _RECORD_TYPES.items() if signal.suffix.endswith(end)), "ai")
    lines = [f'record({kind}, "{variable.name}") {{', f'    field(DESC, "{f"{device.name} {signal.words}"[:_DESC]}")']
    if kind in ("ai", "ao"):
        lines += [f'    field(EGU, "{signal.unit}")', f'    field(HIGH, "{signal.high:g}")', '    field(HSV, "MINOR")']
    output = kind in ("ao", "bo")
    position = device.kind.signals.index(signal)
    source = f"@asyn({device.kind.key}{device.sector:02d},{position})"
    lines.append(f'    field({"OUT" if output else "INP"}, "{source}")')
    if position == 0 and len(device.kind.signals) > 1:
        lines.append(f'    field(FLNK, "{device.pv(device.kind.signals[1].suffix)}")')
    if variable.note:
        lines.append(f'    info(comment, "{variable.note}")')
    return "\n".join([*lines, "}", ""]) + "\n"
