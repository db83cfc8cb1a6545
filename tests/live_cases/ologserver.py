"""A small Olog service, as the Phoebus service of versions 4 and 5 behaves, with the older one's ways on demand."""

from __future__ import annotations

import fnmatch
import json
from datetime import datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from werkzeug import Request, Response

WINDOW = 10_000


class OlogServer:
    """`logs` by id, as the service stores them. `zone` is the service's own; `old` is a service without a search of its
    own address, without `from`, `sort` and `tz`, and without addresses of attachments by their ids."""

    def __init__(self, zone: tzinfo | None = None, old: bool = False, most: int = 1000) -> None:
        self.zone = zone or ZoneInfo("Europe/Stockholm")
        self.old = old
        self.most = most
        self.window = WINDOW
        self.now_ms = 1_700_000_000_217
        self.logs: dict[int, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}

    def write(self, text: str, number: int | None = None, **more: Any) -> int:
        """Make an entry, or change one as the service does: the time of making stays."""
        self.now_ms += 1500
        number = number or max(self.logs, default=0) + 1
        known = self.logs.get(number)
        if known is None:
            known = self.logs[number] = {
                "id": number, "owner": "operator", "source": None, "description": "", "title": f"Entry {number}",
                "level": "Info", "state": "Active", "createdDate": more.pop("made", self.now_ms), "modifyDate": None,
                "events": None, "logbooks": [{"name": "Operations", "owner": "op", "state": "Active"}], "tags": [],
                "properties": [], "attachments": [],
            }  # fmt: skip
        else:
            known["modifyDate"] = self.now_ms
        known |= {"source": text, "description": text.replace("*", ""), **more}
        return number

    def attach(self, number: int, name: str, data: bytes, stored: str = "") -> str:
        stored = stored or f"0d5f-{len(self.files)}"
        self.files[stored] = data
        self.logs[number]["attachments"].append({"id": stored, "filename": name, "fileMetadataDescription": "image"})
        return stored

    def group(self, *numbers: int) -> None:
        """Hold an entry and its replies together, as the service does."""
        name = f"6f1c-{min(numbers)}"
        for number in numbers:
            self.logs[number]["properties"].append(
                {"name": "Log Entry Group", "owner": None, "attributes": [{"name": "id", "value": name}]}
            )

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ)
        path = request.path.removeprefix("/Olog").strip("/").split("/")
        match path:
            case ["logs", "search"] if not self.old:
                reply = self._search(request, whole=True)
            case ["logs"]:
                reply = self._search(request, whole=False)
            case ["logs", "attachments", number, name]:
                reply = self._named(number, name)
            case ["attachment", stored] if not self.old:
                data = self.files.get(stored)
                reply = _error(404, request.path) if data is None else Response(data)
            case ["logs", number]:
                log = self.logs.get(int(number)) if number.isdigit() else None
                reply = _error(404, request.path) if log is None else _json(log)
            case _:
                reply = _error(404, request.path)
        return reply(environ, start_response)

    def _named(self, number: str, name: str) -> Response:
        log = self.logs.get(int(number))
        found = [a["id"] for a in log["attachments"] if a["filename"] == name] if log else []
        return Response(self.files[found[0]] if len(set(found)) == 1 else b"")  # several of one name give none

    def _search(self, request: Request, whole: bool) -> Response:
        asked = {key.lower(): value for key, value in request.args.items()}
        logs = list(self.logs.values())
        if "logbooks" in asked:
            patterns = [pattern.strip().lower() for pattern in asked["logbooks"].split(",")]
            logs = [
                log
                for log in logs
                if any(fnmatch.fnmatch(book["name"].lower(), p) for book in log["logbooks"] for p in patterns)
            ]
        zone = ZoneInfo(asked["tz"]) if "tz" in asked and not self.old else self.zone
        start, end = (
            self._moment(asked.get("start"), zone, 0),
            self._moment(asked.get("end"), zone, self.now_ms // 1000),
        )
        if start > end:
            return _error(400, request.path)
        if "start" in asked or "end" in asked:
            # Whole seconds bound a search, so what was made later in the last of them is left out.
            logs = [log for log in logs if log["createdDate"] and start * 1000 <= log["createdDate"] <= end * 1000]
        size = min(int(asked.get("limit" if self.old else "size", 100)), self.most)
        skip = 0 if self.old else int(asked.get("from", 0))
        if skip + size > self.window:
            return _error(500, request.path)
        sort = "down" if self.old else asked.get("sort", "").lower()
        if sort.startswith(("desc", "down", "asc", "up")):
            falling = sort.startswith(("desc", "down"))
            logs.sort(key=lambda log: (log["createdDate"] is None, (log["createdDate"] or 0) * (-1 if falling else 1)))
        page = logs[skip : skip + size]
        return _json({"hitCount": min(len(logs), self.window), "logs": page} if whole else page)

    @staticmethod
    def _moment(text: str | None, zone: tzinfo, default: int) -> int:
        if text is None:
            return default
        return int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=zone).timestamp())


def _json(value: Any) -> Response:
    return Response(json.dumps(value), mimetype="application/json")


def _error(status: int, path: str) -> Response:
    said = {400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}[status]
    body = json.dumps({"timestamp": "2024-01-01T00:00:00.000+00:00", "status": status, "error": said, "path": path})
    return Response(body, status, mimetype="application/json")
