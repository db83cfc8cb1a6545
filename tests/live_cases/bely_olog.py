"""Olog by its REST interface; every fourth entry is written in another log book."""

from __future__ import annotations

from typing import Any

from tests.live_cases.ologserver import OlogServer


class Case:
    source = "bely"
    form = "olog"
    listing = r"^/Olog/logs/search"
    item = ""

    def __init__(self) -> None:
        self.app = OlogServer()
        self.texts: dict[int, str] = {}

    def feed(self, url: str) -> dict[str, Any]:
        return {"name": "live", "source": "bely", "form": "olog", "url": f"{url}/Olog", "options": {"page_size": 4}}

    def put(self, number: int, text: str) -> None:
        books = [{"name": "Vacuum" if number % 4 == 0 else "Operations", "owner": "op", "state": "Active"}]
        made = {} if number in self.texts else {"made": 1_600_000_000_900 + number // 3 * 3_600_000}
        self.app.write(text, number, logbooks=books, title="", state="Active", **made)
        self.texts[number] = text

    def delete(self, number: int) -> None:
        if number % 2:
            self.app.logs[number]["state"] = "Inactive"
        else:
            del self.app.logs[number]
        del self.texts[number]

    def wanted(self) -> dict[str, str]:
        return {str(number): text for number, text in self.texts.items()}

    def close(self) -> None:
        return
