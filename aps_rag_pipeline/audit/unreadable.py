"""Tables whose files are not what was written: found before anything is read from them, by file."""

from __future__ import annotations

from pathlib import Path

from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.stores.damage import DamagedStoreError, check_table, check_version
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.vectors import LanceTables


def check_tables(home: Home, tables: LanceTables, findings: Findings, *, close: bool) -> None:
    """Every table of the home, also those of another model: a clean-up reads them all. A `close` look reads every row,
    which is to be had where nothing else does."""
    for stored in tables.names():
        findings.checked["tables"] += 1
        folder = tables.folder(stored)
        try:
            check_table(folder)
            if close:
                check_version(folder, None, close=True)
        except DamagedStoreError as error:
            note_damage(findings, f"lance {name_of(stored)}", error)
            findings.damage.stores.add(stored)


def name_of(stored: str) -> str:
    """Name of a table for people: chunk tables bear the name of their model besides."""
    return "chunks" if stored.startswith("chunks_") else stored


def note_damage(findings: Findings, label: str, error: DamagedStoreError) -> None:
    """A store cannot be read. The file is named from the folder of the table on."""
    findings.add("damaged_store", label, _place(error.place), error.reason)


def _place(path: Path) -> str:
    parts = path.parts
    start = next((n for n, part in enumerate(parts) if part.endswith(".lance") and n < len(parts) - 1), len(parts) - 1)
    return "/".join(parts[start:])
