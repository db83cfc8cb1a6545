"""Manuals of a toolkit in LaTeX, and SDDS data files (plain and gzipped) whose headers say what they hold."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aps_rag_pipeline.demo.facility import Device, Facility, at
from aps_rag_pipeline.demo.items import TOTAL_MINUTES
from aps_rag_pipeline.demo.phrases import Bank, table
from aps_rag_pipeline.demo.routine import Routine
from aps_rag_pipeline.demo.writers.common import stamp, write_text

FOLDER = "sdds_docs"
_ROWS = 12


def write(
    feeds: Path, facility: Facility, bank: Bank, routine: Routine, notes: list[tuple[str, str]], count: int
) -> int:
    """Write the manuals, the planted `notes` (path, text) and data files, `count` in all."""
    tools = table("documents")["tools"]
    for tool in tools:
        write_text(feeds / FOLDER / "manuals" / f"{tool['name']}.tex", manual(facility, bank, tool), 0)
    for name, text in notes:
        write_text(feeds / FOLDER / name, text, 0)
    for number in range(count - len(tools) - len(notes)):
        _data(feeds / FOLDER, facility, routine, number)
    return count


def manual(facility: Facility, bank: Bank, tool: dict[str, Any]) -> str:
    rng = facility.rng("manual", tool["name"], bank.side)
    slots = {"tool": tool["name"], "does": bank.of(tool["does"])}
    texts = [bank.fill(rng, phrase, slots) for phrase in bank.phrases("documents", "manual_text")]
    return "\n".join(_manual_lines(str(tool["name"]), texts))


def _manual_lines(name: str, texts: list[str]) -> Iterator[str]:
    yield from (r"\documentclass{article}", rf"\title{{{name} user guide}}", r"\begin{document}", r"\maketitle")
    yield from (r"\section{Description}", texts[0], "", r"\section{Options}", r"\begin{itemize}")
    yield rf"\item \verb|-columns=<name>[,...]| {texts[1]}"
    yield rf"\item \verb|-verbose| {texts[2]}"
    yield from (r"\end{itemize}", r"\section{Example}", r"\begin{verbatim}")
    yield f"{name} -columns=x,y input.sdds output.sdds"
    yield from (r"\end{verbatim}", r"\end{document}", "")


def _data(folder: Path, facility: Facility, routine: Routine, number: int) -> None:
    rng = facility.rng("sdds", number)
    device = rng.choice(routine.devices)
    minute = rng.randrange(TOTAL_MINUTES)
    path = folder / "data" / f"{at(minute):%Y-%m}" / f"{device.name.replace(':', '-')}_{number:04d}.sdds"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = header_and_rows(rng, device, minute).encode()
    if number % 6 == 5:
        path = path.with_name(f"{path.name}.gz")
        data = gzip.compress(data, mtime=0)
    path.write_bytes(data)
    stamp(path, minute)


def header_and_rows(rng: random.Random, device: Device, minute: int) -> str:
    """An ASCII SDDS file with one page: the signals of a device over a few minutes."""
    signals = device.kind.measured
    out = ["SDDS1", f'&description text="Logger of {device.name}, {device.label}", contents="ring buffer" &end']
    out.append('&parameter name=TimeStamp, type=string, description="Start of the page" &end')
    out.append('&parameter name=Device, type=string, description="Device that was logged" &end')
    out.append('&column name=Time, type=double, units=s, description="Seconds since the start" &end')
    for signal in signals:
        units = f", units={signal.unit}" if signal.unit.isalnum() else f', units="{signal.unit}"'
        name = device.pv(signal.suffix)
        out.append(f'&column name="{name}", type=double{units}, description="{device.name} {signal.words}" &end')
    out += [
        "&data mode=ascii &end",
        "! page number 1",
        f"{at(minute):%Y/%m/%d %H:%M:%S}",
        f'"{device.name}"',
        str(_ROWS),
    ]
    for row in range(_ROWS):
        values = [f"{row * 10}", *(f"{rng.uniform(s.low, s.high):.5g}" for s in signals)]
        out.append(" ".join(values))
    return "\n".join(out) + "\n"
