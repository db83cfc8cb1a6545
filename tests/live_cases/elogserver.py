"""A small elogd: one log book, with the commands by which servers mirror one another."""

from __future__ import annotations

import hashlib
from typing import Any
from xml.sax.saxutils import escape

from werkzeug import Request, Response

_TAGS = {
    "Date": "DATE",
    "Reply to": "REPLY_TO",
    "In reply to": "IN_REPLY_TO",
    "Attachment": "ATTACHMENT",
    "Encoding": "ENCODING",
}
PAGE = "<!DOCTYPE html><html><head><title>ELOG {title}</title></head><body>{body}</body></html>"


class ElogServer:
    """`entries` by id: headers in their order, and the text."""

    def __init__(self, logbook: str = "Operations") -> None:
        self.logbook = logbook
        self.entries: dict[int, tuple[dict[str, str], str]] = {}
        self.files: dict[str, bytes] = {}
        self.user = self.password = ""

    def write(
        self, text: str, number: int | None = None, answers: int = 0, encoding: str = "plain", **more: str
    ) -> int:
        """Make an entry or change one; a reply is noted in the entry that it answers, as elogd does."""
        number = number or max(self.entries, default=0) + 1
        known = self.entries.get(number, ({}, ""))[0]
        headers = {
            "Date": "Tue, 14 Nov 2023 22:13:20 +0100",
            **({"Reply to": known["Reply to"]} if "Reply to" in known else {}),
            **({"In reply to": str(answers)} if answers else {}),
            "Author": "ritt",
            "Subject": "",
            **more,
            "Attachment": more.get("Attachment", known.get("Attachment", "")),
            "Encoding": encoding,
        }
        self.entries[number] = (headers, text)
        if answers in self.entries and number not in self._replies(answers):
            self._note(answers, [*self._replies(answers), number])
        return number

    def attach(self, number: int, name: str, data: bytes) -> str:
        stored = f"231114_2213{len(self.files):02d}_{name}"
        self.files[stored] = data
        headers = self.entries[number][0]
        headers["Attachment"] = ",".join(filter(None, [headers["Attachment"], stored]))
        return stored

    def delete(self, number: int) -> None:
        """With its replies, and with what other entries say of it."""
        headers, _ = self.entries.pop(number)
        for reply in [int(n) for n in headers.get("Reply to", "").split(",") if n.strip()]:
            if reply in self.entries:
                self.delete(reply)
        parent = int(headers.get("In reply to", 0))
        if parent in self.entries:
            self._note(parent, [n for n in self._replies(parent) if n != number])

    def raw(self, number: int) -> bytes:
        headers, text = self.entries[number]
        lines = [f"$@MID@$: {number}", *(f"{key}: {value}" for key, value in headers.items()), "=" * 40, text]
        return ("\n".join(lines) + "\n").encode()

    def xml(self) -> str:
        """The export of the find page."""
        entries = []
        for number, (headers, text) in self.entries.items():
            inside = "".join(
                f"\t\t<{tag}>{escape(value)}</{tag}>\n"
                for key, value in headers.items()
                if (tag := _TAGS.get(key, key.replace(" ", "_"))) and (value or key not in _TAGS)
            )
            body = f"\t\t<MID>{number}</MID>\n{inside}\t\t<TEXT>{escape(text)}</TEXT>\n"
            entries.append(f"\t<ENTRY>\n{body}\t</ENTRY>\n")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n<ELOG_LIST>\n{"".join(entries)}</ELOG_LIST>\n'

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ)
        return self._reply(request)(environ, start_response)

    def _reply(self, request: Request) -> Response:
        parts = request.path.strip("/").split("/")
        if parts[0] != self.logbook:
            error = f'<td class="errormsg">Error: logbook "{parts[0]}" not defined in elogd.cfg</td>'
            return Response(PAGE.format(title="error", body=error), 404, mimetype="text/html")
        cookies = request.cookies
        if self.user and (cookies.get("unm"), cookies.get("upwd")) != (self.user, self.password):
            form = '<form name=form1 method="POST"><input type=password name="upassword"></form>'
            return Response(PAGE.format(title="Login", body=form), mimetype="text/html")
        command = request.args.get("cmd", "").lower()
        if len(parts) == 1 and command == "getmd5":
            sums = {0: b"[Operations]", **{number: self.raw(number) for number in self.entries}}
            lines = [f"ID: {number:6d} MD5:{hashlib.md5(raw).hexdigest().upper()}\n" for number, raw in sums.items()]
            return Response("".join(lines), mimetype="text/plain")
        if len(parts) == 2 and parts[1].isdigit():
            number = int(parts[1])
            if number not in self.entries:
                gone = '<td class="errormsg" colspan=2>This entry has been deleted</td>'
                return Response(PAGE.format(title="Operations", body=gone), mimetype="text/html")
            if command == "download":
                return Response(self.raw(number), mimetype="text/plain")
        if len(parts) == 3:
            data = self.files.get(f"{parts[1]}_{parts[2]}")
            if data is not None:
                return Response(data)
            missing = f"<h1>Not Found</h1>The requested file <b>{parts[2]}</b> was not found on this server<p>"
            return Response(PAGE.format(title="404 Not Found", body=missing), mimetype="text/html")
        return Response(PAGE.format(title=self.logbook, body="a list of entries"), mimetype="text/html")

    def _replies(self, number: int) -> list[int]:
        return [int(n) for n in self.entries[number][0].get("Reply to", "").split(",") if n.strip()]

    def _note(self, number: int, replies: list[int]) -> None:
        headers, text = self.entries[number]
        kept = {key: value for key, value in headers.items() if key not in ("Date", "Reply to")}
        noted = {"Reply to": ", ".join(map(str, replies))} if replies else {}
        self.entries[number] = ({"Date": headers["Date"], **noted, **kept}, text)
