"""Downtime rows of a database, for the rules that every live source keeps."""

from __future__ import annotations

from tests.live_cases.sqlite_rows import SqliteRows


class Case(SqliteRows):
    source = "downtime"
