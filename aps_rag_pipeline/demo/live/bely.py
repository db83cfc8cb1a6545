"""A BELY server's REST interface over log documents in memory or in a folder, with the limits of the real one.

Times are whole seconds in UTC, except the end of a search, which is moved within the server's own zone. Errors are 500
with the exception and its stack, 404 for an item that is not there and 401 where a token is wanted.
"""

from __future__ import annotations

import json
import mimetypes
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from werkzeug import Request, Response
from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.routing import Map, Rule

from aps_rag_pipeline.demo.live.bely_store import Bundle, FolderStore, Json, moved_at, stamp, written

_SEARCH_CAP = 1000
_TOKEN = "token"


class Store(Protocol):
    """Where a server has its documents from."""

    def bundles(self) -> Iterable[Bundle]: ...

    def logbook_types(self) -> list[Json]: ...

    def attachment(self, name: str) -> bytes | None: ...


class _ServerError(Exception):
    def __init__(self, status: int, name: str, said: str) -> None:
        super().__init__(said)
        self.status, self.name = status, name


class Server:
    """A WSGI application.

    `older` knows neither the newer calls nor `parentLogId`; `accounts` maps users to passwords, and then every call
    wants a token.
    """

    def __init__(
        self,
        store: Store,
        *,
        zone: str = "America/Chicago",
        older: bool = False,
        accounts: dict[str, str] | None = None,
    ) -> None:
        self.store = store
        self.older = older
        self.accounts = accounts or {}
        self.tokens: set[str] = set()
        self._zone = ZoneInfo(zone)
        self._calls: dict[str, Callable[..., Response]] = {}
        self._map = Map([self._rule(*call) for call in self._routes()])

    @classmethod
    def of_folder(cls, folder: Path) -> Server:
        """Serves the log book of a demo facility as it lies in its folder."""
        return cls(FolderStore(folder))

    def _routes(self) -> Iterator[tuple[str, Callable[..., Response]]]:
        yield "/api/Logbook/LogbookTypes", self._logbook_types
        yield "/api/Logbook/LogDocuments/<int:logbook>/<int:limit>", self._documents
        yield "/api/Logbook/LogbookSections/<int:item>", self._sections
        yield "/api/Logbook/LogEntries/<int:item>", self._entries
        yield "/api/Search/<path:text>", self._search
        yield "/api/Downloads/Attachments/<name>", self._attachment
        yield "/api/Downloads/Attachments/<name>/<scaling>", self._attachment
        yield "/api/auth/login", self._login
        yield "/api/auth/Verify", lambda request: _reply(True)
        if not self.older:
            yield "/api/Logbook/LogbookTypeHierarchy", self._logbook_types
            yield "/api/Logbook/LogDocumentByName/<path:name>", self._document_by_name

    def _rule(self, path: str, call: Callable[..., Response]) -> Rule:
        self._calls[path] = call
        return Rule(path, endpoint=path)

    def __call__(self, environ: Any, start_response: Any) -> Any:
        request = Request(environ)
        try:
            endpoint, arguments = self._map.bind_to_environ(environ).match()
            if self.accounts and endpoint != "/api/auth/login" and request.headers.get(_TOKEN) not in self.tokens:
                raise _ServerError(401, "NotAuthorizedException", "Authorization header must be provided")
            reply = self._calls[endpoint](request, **arguments)
        except _ServerError as error:
            stack = [{"methodName": "invoke", "className": "sun.reflect.GeneratedMethodAccessor", "lineNumber": 1}] * 40
            told = {"stackTrace": stack, "message": str(error), "suppressed": []}
            said = {"exception": told, "message": str(error), "simpleName": error.name}
            reply = _reply(said, error.status)
        except HTTPException as error:
            reply = error.get_response(environ)
        return reply(environ, start_response)

    def _logbook_types(self, request: Request) -> Response:
        return _reply(self.store.logbook_types())

    def _documents(self, request: Request, logbook: int, limit: int) -> Response:
        if all(kind["id"] != logbook for kind in self.store.logbook_types()):
            raise _ServerError(500, "InvalidArgument", f"{logbook} is not a valid logbook type id.")
        found = [document for document in self._all() if any(kind["id"] == logbook for kind in _types(document))]
        found.sort(key=moved_at, reverse=True)
        return _reply(found[:limit])

    def _document_by_name(self, request: Request, name: str) -> Response:
        for document in self._all():
            if document["name"] == name:
                return _reply(document)
        raise _ServerError(404, "ObjectNotFound", f"Could not find log document with name: {name}")

    def _sections(self, request: Request, item: int) -> Response:
        _, holder = self._item(item)
        sections = holder.get("sections", ())
        return _reply([{"id": section["id"], "name": section["name"]} for section in sections])

    def _entries(self, request: Request, item: int) -> Response:
        _, holder = self._item(item)
        replies = request.args.get("loadReplies") == "true"
        reactions = request.args.get("loadReactions") == "true"
        return _reply([self._entry(entry, replies, reactions) for entry in holder["entries"]])

    def _entry(self, entry: Json, replies: bool, reactions: bool) -> Json:
        shown = {**entry, "logEntry": entry.get("logEntry") or "", "logReplies": None, "logReactions": None}
        if self.older:
            shown.pop("parentLogId", None)
        if replies:
            shown["logReplies"] = [self._entry(reply, False, reactions) for reply in entry.get("logReplies") or ()]
        if reactions:
            shown["logReactions"] = entry.get("logReactions") or []
        return shown

    def _search(self, request: Request, text: str) -> Response:
        start = self._time(request.args.get("startModifiedDate"))
        end = _end_of_half_day(self._time(request.args.get("endModifiedDate")), self._zone)
        logbooks = {int(number) for number in request.args.getlist("logbookTypeId")}
        words = text.replace("*", " ").replace("?", " ").lower().split()
        documents, entries = [], []

        def wanted(item: Json, said: str) -> bool:
            moment = moved_at(item)
            inside = (start is None or moment > start) and (end is None or moment <= end)
            return inside and all(word in said.lower() for word in words)

        for bundle in self.store.bundles():
            document = bundle["document"]
            if logbooks and logbooks.isdisjoint(kind["id"] for kind in _types(document)):
                continue
            common = {
                "logbookType": ", ".join(kind.get("displayName") or kind["name"] for kind in _types(document)),
                "system": ", ".join(system["name"] for system in document.get("itemTypeList") or ()),
                "logDocumentId": document["id"],
            }
            if wanted(document, document["name"]):
                found = {"objectId": document["id"], "objectName": document["name"], "logEntryId": None}
                documents.append({**common, **found, "lastModifiedOn": stamp(moved_at(document))})
            for entry in written(bundle):
                if wanted(entry, entry.get("logEntry") or ""):
                    found = {"objectId": entry["logId"], "objectName": document["name"], "logEntryId": entry["logId"]}
                    entries.append({**common, **found, "lastModifiedOn": stamp(moved_at(entry))})
        for results in (documents, entries):
            results.sort(key=lambda result: str(result["lastModifiedOn"]), reverse=True)
        return _reply({"documentResults": documents[:_SEARCH_CAP], "logEntryResults": entries[:_SEARCH_CAP]})

    def _attachment(self, request: Request, name: str, scaling: str = "") -> Response:
        data = self.store.attachment(f"{name}.{scaling}" if scaling else name)
        if data is None:
            raise _ServerError(500, "FileNotFoundException", f"Attachment: {name} requested was not found.")
        reply = Response(data, content_type=mimetypes.guess_type(name)[0] or "*/*")
        reply.headers["Content-Disposition"] = f"inline; filename={name}"
        return reply

    def _login(self, request: Request) -> Response:
        user, password = request.form.get("username", ""), request.form.get("password")
        if self.accounts and (password is None or self.accounts.get(user) != password):
            raise _ServerError(401, "AuthenticationError", "Could not verify username or password.")
        token = str(uuid.uuid4())
        self.tokens.add(token)
        reply = _reply(len(self.tokens))
        reply.headers[_TOKEN] = token
        return reply

    def _all(self) -> list[Json]:
        """The documents. Labels are no part of BELY; where the demo has some they stand in its documents, so that what
        is for few eyes does not become public by being served."""
        bundles = list(self.store.bundles())
        return [{**b["document"], **({"access": b["access"]} if "access" in b else {})} for b in bundles]

    def _item(self, item: int) -> tuple[Bundle, Json]:
        """The bundle of a document or section, and what holds its entries."""
        for bundle in self.store.bundles():
            if bundle["document"]["id"] == item:
                return bundle, bundle
            for section in bundle.get("sections", ()):
                if section["id"] == item:
                    return bundle, section
        raise _ServerError(404, "ObjectNotFound", f"Could not find item with id: {item}")

    def _time(self, text: str | None) -> datetime | None:
        """A time as the server reads it, at whole seconds; one without a zone is in the server's."""
        if not text:
            return None
        for form in ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"):
            try:
                moment = datetime.strptime(text, form)
            except ValueError:
                continue
            if moment.tzinfo is not None and text[-5] in "+-" and text[-3] != ":":
                break  # xsd:dateTime wants a colon in the offset
            return (moment if moment.tzinfo else moment.replace(tzinfo=self._zone)).astimezone(UTC)
        raise NotFound(response=Response(f"Error parsing date string. {text}", 400))


def _reply(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, content_type="application/json")


def _types(document: Json) -> list[Json]:
    return document.get("entityTypeList") or []


def _end_of_half_day(end: datetime | None, zone: ZoneInfo) -> datetime | None:
    """Where the server moves an end to: it means the end of the day and sets the hour of a twelve-hour clock."""
    if end is None:
        return None
    local = end.astimezone(zone)
    day = local.replace(hour=0, minute=0, second=0, microsecond=0)
    half = timedelta(hours=0 if local.hour < 12 else 12)
    return day + half + timedelta(hours=23, minutes=59, seconds=59)
