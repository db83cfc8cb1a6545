"""An SQLite file with one table: the fresh, empty service of the cases of the form `sql`."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any, ClassVar


class SqliteRows:
    """Rows of one table; `updated` counts up with every edit, as a trigger would make it."""

    source: ClassVar[str]
    form = "sql"
    listing = item = ""
    app = None

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sql-")
        self.file = Path(self._folder.name) / "rows.db"
        self._texts: dict[int, str] = {}
        self._edits = 0
        self._connection = sqlite3.connect(self.file, isolation_level=None)
        self._connection.execute("pragma journal_mode = memory")
        self._connection.execute("pragma synchronous = off")
        self._connection.execute("create table items (number integer primary key, title, words, changed text)")

    def feed(self, url: str) -> dict[str, Any]:
        return {
            "name": "live",
            "source": self.source,
            "form": self.form,
            "location": str(self.file),
            "columns": {"id": "number", "title": "title", "description": "words", "updated": "changed"},
            "options": {"query": "select number, title, words, changed from items", "page_rows": 7},
        }

    def put(self, number: int, text: str) -> None:
        self._texts[number] = text
        self._edits += 1
        changed = f"2025-06-{1 + self._edits // 1440 % 28:02d} {self._edits // 60 % 24:02d}:{self._edits % 60:02d}:00"
        self._connection.execute(
            "insert into items values (?, ?, ?, ?) on conflict (number) do update set words = excluded.words, "
            "changed = excluded.changed",
            (number, f"Item {number}", text, changed),
        )

    def delete(self, number: int) -> None:
        if self._texts.pop(number, None) is not None:
            self._connection.execute("delete from items where number = ?", (number,))

    def wanted(self) -> dict[str, str]:
        return {str(number): text for number, text in self._texts.items()}

    def close(self) -> None:
        self._connection.close()
        self._folder.cleanup()
