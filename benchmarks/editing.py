"""Edits and deletions spread evenly over the source files of a demo facility, each in its source's own format.

They are spread on purpose: every file of every feed holds some of them, so that a sync has all of them to read again.
A facility's real day, of which most is new, touches fewer files.
"""

from __future__ import annotations

import csv
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aps_rag_pipeline.demo.writers import bely, code, downtime, epics, icms, sdds_docs, teams, wiki, work_requests
from aps_rag_pipeline.demo.writers.common import freeze_office_file

#: Record → the sentence to add to it, or None to delete it. A record is told by its file and its id in there.
Changes = Mapping[tuple[str, str], str | None]
_LATER = datetime(2026, 11, 20, 12, tzinfo=UTC)
_COMMIT_MINUTE = 2_000_000


class Format(ABC):
    """The files of one source. `change` gives how many records it changed, those that are gone already left out."""

    def __init__(self, feeds: Path) -> None:
        self.feeds = feeds

    @abstractmethod
    def records(self) -> Iterator[tuple[str, str]]: ...

    @abstractmethod
    def change(self, changes: Changes) -> int: ...

    def _files(self, folder: str, *patterns: str) -> list[Path]:
        return sorted(path for pattern in patterns for path in (self.feeds / folder).rglob(pattern))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.feeds).as_posix()


def formats(feeds: Path) -> dict[str, Format]:
    """By source, in the order in which they are changed."""
    return {
        "bely": LogFiles(feeds),
        "work_requests": Tables(feeds, work_requests.FOLDER, work_requests.COLUMNS["id"], "Details"),
        "epics": Tables(feeds, epics.FOLDER, "name", "description"),
        "downtime": Workbooks(feeds),
        "teams": Chats(feeds),
        "wiki": Texts(feeds, wiki.FOLDER, "*.md", "*.txt", "*.wiki"),
        "sdds_docs": Texts(feeds, f"{sdds_docs.FOLDER}/manuals", "*.tex", "*.md"),
        "icms": Documents(feeds, icms.DOCUMENTS, "*.md", "*.txt", "*.html"),
        "code": Scripts(feeds, f"{code.FOLDER}/{code.TOOLS}", "*.py", "*.tcl"),
    }


class LogFiles(Format):
    """A bundle a line."""

    def records(self) -> Iterator[tuple[str, str]]:
        for path in self._files(bely.FOLDER, "*.jsonl"):
            with path.open("rb") as lines:
                for line in lines:
                    for entries in _entry_lists(json.loads(line)):
                        yield from ((self._name(path), str(entry["logId"])) for entry in entries)

    def change(self, changes: Changes) -> int:
        done = 0
        for name, wanted in _by_file(changes).items():
            path = self.feeds / name
            temporary = path.with_suffix(".part")
            with path.open("rb") as source, temporary.open("wb") as target:
                for line in source:
                    bundle = json.loads(line)
                    changed = sum(self._change(entries, wanted) for entries in _entry_lists(bundle))
                    done += changed
                    target.write(bely.line(bundle) if changed else line)
            os.replace(temporary, path)
        return done

    @staticmethod
    def _change(entries: list[dict[str, Any]], wanted: Mapping[str, str | None]) -> int:
        found = [entry for entry in entries if str(entry["logId"]) in wanted]
        for entry in found:
            mark = wanted[str(entry["logId"])]
            if mark is None:
                entries.remove(entry)
            else:
                entry["logEntry"] = f"{entry['logEntry']}\r\n\r\n{mark}"
                entry["lastModifiedOnDateTime"] = _LATER.isoformat(timespec="milliseconds")
        return len(found)


def _entry_lists(bundle: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [bundle["entries"], *(section["entries"] for section in bundle["sections"])]


class Tables(Format):
    """Rows of CSV files; an id that stands in two rows is one record."""

    def __init__(self, feeds: Path, folder: str, id_column: str, text_column: str) -> None:
        super().__init__(feeds)
        self.folder, self.id_column, self.text_column = folder, id_column, text_column

    def records(self) -> Iterator[tuple[str, str]]:
        for path in self._files(self.folder, "*.csv"):
            with path.open(encoding="utf-8", newline="") as stream:
                yield from dict.fromkeys((self._name(path), row[self.id_column]) for row in csv.DictReader(stream))

    def change(self, changes: Changes) -> int:
        done = 0
        for name, wanted in _by_file(changes).items():
            path, made, changed = self.feeds / name, io.StringIO(newline=""), set()
            with path.open(encoding="utf-8", newline="") as stream:
                reader = csv.DictReader(stream)
                writer = csv.DictWriter(made, reader.fieldnames or ())
                writer.writeheader()
                for row in reader:
                    key = row[self.id_column]
                    if key in wanted:
                        changed.add(key)
                        if wanted[key] is None:
                            continue
                        row[self.text_column] = f"{row[self.text_column]} {wanted[key]}"
                    writer.writerow(row)
            done += len(changed)
            _replace(path, made.getvalue())
        return done


class Workbooks(Format):
    def records(self) -> Iterator[tuple[str, str]]:
        from openpyxl import load_workbook

        for path in self._files(downtime.FOLDER, "*.xlsx"):
            sheet = load_workbook(path, read_only=True)[downtime.SHEET]
            for row in sheet.iter_rows(min_row=2, max_col=1, values_only=True):
                yield self._name(path), str(row[0])

    def change(self, changes: Changes) -> int:
        from openpyxl import load_workbook

        column = list(downtime.COLUMNS).index("description") + 1
        done = 0
        for name, wanted in _by_file(changes).items():
            book = load_workbook(self.feeds / name)
            sheet = book[downtime.SHEET]
            rows = [(row[0].row, wanted[str(row[0].value)]) for row in sheet.iter_rows() if str(row[0].value) in wanted]
            done += len(rows)
            for number, mark in reversed(rows):
                if mark is None:
                    sheet.delete_rows(number)
                else:
                    cell = sheet.cell(number, column)
                    cell.value = f"{cell.value} {mark}"
            book.save(self.feeds / name)
            freeze_office_file(self.feeds / name, 0)
        return done


class Chats(Format):
    """Threads of Graph pages. A deleted one stays as Graph leaves it: messages without body and sender."""

    def records(self) -> Iterator[tuple[str, str]]:
        for path in self._files(teams.FOLDER, "*.json"):
            for message in json.loads(path.read_bytes())["value"]:
                if message["messageType"] == "message" and not message["replyToId"] and not message["deletedDateTime"]:
                    yield self._name(path), message["id"]

    def change(self, changes: Changes) -> int:
        done = 0
        stamp = _LATER.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        for name, wanted in _by_file(changes).items():
            path = self.feeds / name
            messages = json.loads(path.read_bytes())["value"]
            for message in messages:
                root = message["replyToId"] or message["id"]
                if root not in wanted or message["deletedDateTime"]:
                    continue
                mark, first = wanted[root], root == message["id"]
                if mark is None:
                    message["body"]["content"], message["from"] = "", None
                    message["deletedDateTime"] = message["lastModifiedDateTime"] = stamp
                elif first:
                    message["body"]["content"] += f"<p>{mark}</p>"
                    message["lastEditedDateTime"] = message["lastModifiedDateTime"] = stamp
                done += first
            path.write_bytes(teams.page(messages))
        return done


class Texts(Format):
    """Files that are a record each."""

    #: What a file must end with, after the sentence that is added.
    endings = ("\\end{document}", "</body>", "</html>")

    def __init__(self, feeds: Path, folder: str, *patterns: str) -> None:
        super().__init__(feeds)
        self.folder, self.patterns = folder, patterns

    def records(self) -> Iterator[tuple[str, str]]:
        yield from ((self._name(path), "") for path in self._files(self.folder, *self.patterns))

    def change(self, changes: Changes) -> int:
        found = [(self.feeds / name, mark) for (name, _), mark in changes.items() if (self.feeds / name).exists()]
        for path, mark in found:
            if mark is None:
                path.unlink()
            else:
                _replace(path, self.marked(path.read_text(encoding="utf-8"), mark))
        return len(found)

    def marked(self, text: str, mark: str) -> str:
        for ending in self.endings:
            before, found, after = text.rpartition(ending)
            if found:
                shown = f"<p>{mark}</p>" if "<" in ending else f"\n{mark}"
                return f"{before}{shown}\n{found}{after}"
        return f"{text.rstrip()}\n\n{mark}\n"


class Documents(Texts):
    """Controlled documents: the file, and its row in the sidecar. Only the newest revision is a record."""

    def records(self) -> Iterator[tuple[str, str]]:
        with (self.feeds / f"{self.folder}.csv").open(encoding="utf-8", newline="") as stream:
            valid = {row["file"] for row in csv.DictReader(stream) if row["status"] != "Obsolete"}
        for name, key in super().records():
            if Path(name).relative_to(self.folder).as_posix() in valid:
                yield name, key

    def change(self, changes: Changes) -> int:
        done = super().change(changes)
        gone = {Path(name).relative_to(self.folder).as_posix() for (name, _), mark in changes.items() if mark is None}
        path, made = self.feeds / f"{self.folder}.csv", io.StringIO(newline="")
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            writer = csv.DictWriter(made, reader.fieldnames or ())
            writer.writeheader()
            writer.writerows(row for row in reader if row["file"] not in gone)
        _replace(path, made.getvalue())
        return done


class Scripts(Texts):
    """Files of a checkout; all changes are one commit."""

    endings = ()

    def change(self, changes: Changes) -> int:
        done = super().change(changes)
        if done:
            inside = [Path(name).relative_to(self.folder).as_posix() for name, _ in changes]
            code.commit(self.feeds / self.folder, inside, "Change scripts", _COMMIT_MINUTE)
        return done

    def marked(self, text: str, mark: str) -> str:
        return f"{text.rstrip()}\n\n# {mark}\n"


def _by_file(changes: Changes) -> dict[str, dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = {}
    for (name, key), mark in changes.items():
        found.setdefault(name, {})[key] = mark
    return found


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_bytes(text.encode("utf-8"))
    os.replace(temporary, path)


def spread(items: list[Any], share: float, phase: float) -> list[Any]:
    """A share of a list, at least one, at equal distances; `phase` in [0, 1) moves them within their stretch."""
    wanted = min(max(round(len(items) * share), 1), len(items))
    return [items[int((index + phase) * len(items) / wanted)] for index in range(wanted)]


def plan(feeds: Path, share: float, phase: float, mark: Callable[[int], str] | None) -> dict[str, Changes]:
    """Changes by source to a share of the records of each: edits with `mark(number)`, or deletions without."""
    found: dict[str, Changes] = {}
    number = 0
    for source, format_ in formats(feeds).items():
        chosen: dict[tuple[str, str], str | None] = {}
        for record in spread(list(format_.records()), share, phase):
            number += 1
            chosen[record] = None if mark is None else mark(number)
        found[source] = chosen
    return found
