"""Changes to files that are already written: one small editor a source, each of which knows only its own format."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from aps_rag_pipeline.demo.facility import Facility, at, utc_text
from aps_rag_pipeline.demo.items import Document, LogDocument, Outage, Thread, Variable, WorkRequest
from aps_rag_pipeline.demo.phrases import Bank
from aps_rag_pipeline.demo.truth import Churn
from aps_rag_pipeline.demo.writers import bely, code, downtime, epics, icms, teams, wiki, work_requests
from aps_rag_pipeline.demo.writers.common import freeze_office_file, label_text, write_text

Labels = tuple[str, ...]


class BelyEditor:
    """Log documents: a line of a month's file."""

    def __init__(self, feeds: Path, facility: Facility, bank: Bank) -> None:
        self.feeds, self.facility, self.bank = feeds, facility, bank

    def add(self, document: LogDocument) -> None:
        with (self.feeds / bely.file_name(document.shift)).open("ab") as file:
            file.write(bely.line(bely.bundle(self.facility, self.bank, document)))

    def edit(self, churn: Churn, new: str, minute: int) -> None:
        def change(bundle: dict[str, Any]) -> None:
            entry = _entry_of(bundle, churn)
            entry["logEntry"] = entry["logEntry"].replace(churn.phrase, new)
            entry["lastModifiedOnDateTime"] = bundle["document"]["moreInfo"]["lastModifiedOnDateTime"] = utc_text(
                minute
            )

        self._rewrite(churn, change)

    def relabel(self, churn: Churn, labels: Labels) -> None:
        self._rewrite(churn, lambda bundle: bundle.update(access=list(labels)))

    def delete(self, churn: Churn) -> None:
        def change(bundle: dict[str, Any]) -> None:
            bundle["entries"].remove(_entry_of(bundle, churn))
            info = bundle["document"]["moreInfo"]  # all that a server keeps of a deletion is the time of the document
            moved = datetime.fromisoformat(info["lastModifiedOnDateTime"]) + timedelta(minutes=1)
            info["lastModifiedOnDateTime"] = moved.isoformat(timespec="milliseconds")

        self._rewrite(churn, change)

    def _rewrite(self, churn: Churn, change: Callable[[dict[str, Any]], None]) -> None:
        path = self.feeds / churn.file
        temporary = path.with_suffix(".part")
        with path.open("rb") as source, temporary.open("wb") as target:
            for line in source:
                if churn.phrase.encode() in line:
                    bundle = msgspec.json.decode(line)
                    change(bundle)
                    line = bely.line(bundle)
                target.write(line)
        os.replace(temporary, path)


def _entry_of(bundle: dict[str, Any], churn: Churn) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in bundle["entries"] if str(entry["logId"]) == churn.id)
    return found


class CsvEditor:
    """Rows of a CSV file, found by their first column or the column that `id_column` names."""

    def __init__(self, feeds: Path, headings: tuple[str, ...], id_column: str) -> None:
        self.feeds, self.headings, self.id_column = feeds, headings, id_column

    def append(self, name: str, rows: list[list[str]]) -> None:
        path = self.feeds / name
        new = not path.exists()
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(self.headings)
            writer.writerows(rows)

    def change(self, name: str, row_id: str, change: Callable[[dict[str, str]], None] | None) -> None:
        """Apply `change` to the rows of an id, or drop them when it is None."""
        path = self.feeds / name
        temporary = path.with_suffix(".part")
        with (
            path.open(encoding="utf-8", newline="") as source,
            temporary.open("w", encoding="utf-8", newline="") as target,
        ):
            reader = csv.DictReader(source)
            writer = csv.DictWriter(target, self.headings)
            writer.writeheader()
            for row in reader:
                if row[self.id_column] == row_id:
                    if change is None:
                        continue
                    change(row)
                writer.writerow(row)
        os.replace(temporary, path)

    def replace(self, churn: Churn, new: str, stamps: dict[str, str] | None = None) -> None:
        """Put the new phrase for the old one, wherever it stands in the row; `stamps` are cells to set as well."""

        def change(row: dict[str, str]) -> None:
            row.update({key: value.replace(churn.phrase, new) for key, value in row.items()})
            row.update(stamps or {})

        self.change(churn.file, churn.id, change)


class RequestEditor:
    def __init__(self, feeds: Path) -> None:
        columns = work_requests.COLUMNS
        self.columns, self.table = columns, CsvEditor(feeds, tuple(columns.values()), columns["id"])

    def add(self, request: WorkRequest) -> None:
        self.table.append(work_requests.file_name(request), [work_requests.row(request)])

    def edit(self, churn: Churn, new: str, minute: int) -> None:
        self.table.replace(churn, new, {self.columns["updated"]: at(minute).strftime(work_requests.TIME)})

    def relabel(self, churn: Churn, labels: Labels) -> None:
        cell = {self.columns["access"]: label_text(labels)}
        self.table.change(churn.file, churn.id, lambda row: row.update(cell))

    def delete(self, churn: Churn) -> None:
        self.table.change(churn.file, churn.id, None)


class SignalEditor:
    def __init__(self, feeds: Path) -> None:
        self.table = CsvEditor(feeds, epics.HEADINGS, "name")

    def add(self, variable: Variable) -> None:
        self.table.append(epics.file_name(variable), [list(row) for row in epics.rows(variable)])

    def edit(self, churn: Churn, new: str, minute: int) -> None:
        self.table.replace(churn, new)

    def delete(self, churn: Churn) -> None:
        self.table.change(churn.file, churn.id, None)


class DowntimeEditor:
    """Rows of a workbook."""

    def __init__(self, feeds: Path) -> None:
        self.feeds = feeds
        self.columns = list(downtime.COLUMNS)

    def add(self, outage: Outage) -> None:
        path = self.feeds / downtime.file_name(outage)
        if not path.exists():
            downtime.write(self.feeds, [outage])
            return
        self._change(path, lambda sheet: sheet.append(downtime.row(outage)))

    def edit(self, churn: Churn, new: str, minute: int) -> None:
        def change(sheet: Any) -> None:
            cell = self._cell(sheet, churn, "description")
            cell.value = cell.value.replace(churn.phrase, new)
            self._cell(sheet, churn, "updated").value = at(minute).replace(tzinfo=None)

        self._change(self.feeds / churn.file, change)

    def relabel(self, churn: Churn, labels: Labels) -> None:
        def change(sheet: Any) -> None:
            self._cell(sheet, churn, "access").value = label_text(labels)

        self._change(self.feeds / churn.file, change)

    def delete(self, churn: Churn) -> None:
        self._change(self.feeds / churn.file, lambda sheet: sheet.delete_rows(self._row(sheet, churn)))

    def _cell(self, sheet: Any, churn: Churn, column: str) -> Any:
        return sheet.cell(self._row(sheet, churn), self.columns.index(column) + 1)

    @staticmethod
    def _row(sheet: Any, churn: Churn) -> int:
        found: int = next(row[0].row for row in sheet.iter_rows() if row[0].value == churn.id)
        return found

    @staticmethod
    def _change(path: Path, change: Callable[[Any], object]) -> None:
        from openpyxl import load_workbook

        book = load_workbook(path)
        change(book[downtime.SHEET])
        book.save(path)
        freeze_office_file(path, 0)


class PageEditor:
    """Text files that are a record each: wiki pages and manuals."""

    def __init__(self, feeds: Path) -> None:
        self.feeds = feeds

    def add(self, page: Document) -> None:
        write_text(self.feeds / wiki.file_name(page), wiki.text(page), page.minute)

    def add_text(self, name: str, text: str, minute: int) -> None:
        write_text(self.feeds / name, text, minute)

    def edit(self, churn: Churn, new: str, minute: int) -> None:
        self._replace(churn, churn.phrase, new, minute)

    def relabel(self, churn: Churn, labels: Labels) -> None:
        self._replace(churn, f"access: [{', '.join(churn.access)}]", f"access: [{', '.join(labels)}]", None)

    def delete(self, churn: Churn) -> None:
        (self.feeds / churn.file).unlink()

    def _replace(self, churn: Churn, old: str, new: str, minute: int | None) -> None:
        path = self.feeds / churn.file
        write_text(path, path.read_text(encoding="utf-8").replace(old, new), minute)


class DocumentEditor(PageEditor):
    """Controlled documents: the file, and its row in the sidecar."""

    def __init__(self, feeds: Path) -> None:
        super().__init__(feeds)
        self.sidecar = CsvEditor(feeds, icms.SIDECAR, "content_id")
        self.table = f"{icms.DOCUMENTS}.csv"

    def add(self, page: Document) -> None:
        icms.write_document(self.feeds / icms.DOCUMENTS / icms.file_name(page, page.revision), page)
        self.sidecar.append(self.table, [icms.sidecar_row(page, page.revision, page.status)])

    def relabel(self, churn: Churn, labels: Labels) -> None:
        self.sidecar.change(self.table, churn.id, lambda row: row.update(access=label_text(labels)))

    def delete(self, churn: Churn) -> None:
        super().delete(churn)
        self.sidecar.change(self.table, churn.id, None)


class ChatEditor:
    """Messages of a Graph page. A deleted one stays as Graph leaves it: without body and sender."""

    def __init__(self, feeds: Path) -> None:
        self.feeds = feeds

    def add(self, thread: Thread) -> None:
        path = self.feeds / teams.file_name(thread)
        known = self._messages(path) if path.exists() else []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(teams.page([*known, *teams.messages(thread)]))

    def edit(self, churn: Churn, new: str, minute: int) -> None:
        def change(message: dict[str, Any]) -> None:
            message["body"]["content"] = message["body"]["content"].replace(churn.phrase, new)
            message["lastEditedDateTime"] = message["lastModifiedDateTime"] = _graph_time(minute)

        self._change(churn, change)

    def delete(self, churn: Churn, minute: int) -> None:
        def change(message: dict[str, Any]) -> None:
            message["body"]["content"], message["from"] = "", None
            message["deletedDateTime"] = message["lastModifiedDateTime"] = _graph_time(minute)

        self._change(churn, change)

    def _change(self, churn: Churn, change: Callable[[dict[str, Any]], None]) -> None:
        path = self.feeds / churn.file
        messages = self._messages(path)
        change(next(message for message in messages if message["id"] == churn.id.split("/")[1]))
        path.write_bytes(teams.page(messages))

    @staticmethod
    def _messages(path: Path) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.json.decode(path.read_bytes())["value"]
        return found


class ScriptEditor:
    """Files of a checkout; each change is a commit."""

    def __init__(self, feeds: Path) -> None:
        self.feeds = feeds

    def add(self, name: str, text: str, minute: int) -> None:
        write_text(self.feeds / code.FOLDER / name, text)
        self._commit(name, "Add a script", minute)

    def edit(self, churn: Churn, new: str, minute: int) -> None:
        path = self.feeds / churn.file
        write_text(path, path.read_text(encoding="utf-8").replace(churn.phrase, new))
        self._commit(churn.id, "Correct a comment", minute)

    def delete(self, churn: Churn, minute: int) -> None:
        (self.feeds / churn.file).unlink()
        self._commit(churn.id, "Remove a script", minute)

    def _commit(self, name: str, message: str, minute: int) -> None:
        repository, _, inside = name.partition("/")
        code.commit(self.feeds / code.FOLDER / repository, [inside], message, minute)


def _graph_time(minute: int) -> str:
    return at(minute).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
