"""The log book of the ALS as its service gives it: JSON by stretches of time, called text/html."""

from __future__ import annotations

import json
from typing import Any

from werkzeug import Request, Response

_DAY = 86_400
_FIRST = 1_600_000_000


class Case:
    source = "bely"
    form = "json"
    listing = r"^/als"
    item = ""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}

    def app(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ)
        start, end = int(request.args["start"]), int(request.args["end"])
        assert request.args["op"] == "retrieve"
        entries = [
            {
                "id": str(number), "timestamp": str(made), "author": "alee", "subject": "", "details": text,
                "category": "Operations", "tag": "0", "linkedto": "0", "level": "entry", "attachments": [],
            }
            for number, text in self.texts.items()
            if start <= (made := _FIRST + number * 40 * _DAY) < end
        ]  # fmt: skip
        return Response(json.dumps(entries), mimetype="text/html")(environ, start_response)

    def feed(self, url: str) -> dict[str, Any]:
        windows = {"since": "2020-09-01", "days": 1500}
        options = {"parameters": {"op": "retrieve"}, "windows": windows, "dialect": "als"}
        return {"name": "live", "source": "bely", "form": "json", "url": f"{url}/als", "options": options}

    def put(self, number: int, text: str) -> None:
        self.texts[number] = text

    def delete(self, number: int) -> None:
        del self.texts[number]

    def wanted(self) -> dict[str, str]:
        return {str(number): text for number, text in self.texts.items()}

    def close(self) -> None:
        return
