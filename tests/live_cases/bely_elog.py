"""PSI ELOG; of every third entry the text is that of a reply, which stands in the entry's record."""

from __future__ import annotations

from typing import Any

from tests.live_cases.elogserver import ElogServer

_REPLIES = 1000


class Case:
    source = "bely"
    form = "elog"
    listing = r"^/Operations/\?cmd=GetMD5"
    item = r"^.*/Operations/\d+\?cmd=Download"
    per_item = 2  # an entry and its reply are one thread
    beside = ("Seen from the control room",)

    def __init__(self) -> None:
        self.app = ElogServer()
        self.texts: dict[int, str] = {}

    def feed(self, url: str) -> dict[str, Any]:
        return {"name": "live", "source": "bely", "form": "elog", "url": f"{url}/Operations/"}

    def put(self, number: int, text: str) -> None:
        if number % 3:
            self.app.write(text, number)
        else:
            if number not in self.texts:
                self.app.write("Seen from the control room", number)
            self.app.write(text, _REPLIES + number, answers=number)
        self.texts[number] = text

    def delete(self, number: int) -> None:
        self.app.delete(number)
        del self.texts[number]

    def wanted(self) -> dict[str, str]:
        return {str(number): text for number, text in self.texts.items()}

    def close(self) -> None:
        return
