"""The `idcplg` service of an Oracle WebCenter Content server, as far as readers of documents need it.

As the real one it caps and defaults the number of search results, counts rows from 1, writes its times naive in a form
of its own, puts errors into replies with HTTP status 200, tells -20 from -18 by who asks, scores each search anew, and
searches an index that lags behind what it holds.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from werkzeug import Request, Response

from aps_rag_pipeline.demo.live.idcplg_store import FolderStore, Revision, Store

#: What facility.yaml says under `options` to read a folder of the demo through this server.
DEMO_OPTIONS: dict[str, Any] = {"access_field": "xAccessLabels"}

PATH = "/docs/idcplg"
_DEFAULT_COUNT = 25
_CLAUSE = re.compile(r"\(*\s*(\w+)\s*<(matches|substring|contains)>\s*[`'\"]([^`'\"]*)[`'\"]\s*\)*", re.IGNORECASE)
_AND = re.compile(r"\s*<and>\s*", re.IGNORECASE)
#: `blDateFormat` of a reply, before the zone.
_PATTERNS = {
    "ts": "'{ts' ''yyyy-MM-dd HH:mm:ss{.SSS}[Z]'''}'!t",
    "locale": "M/d{/yy} {h:mm[:ss] {aa}[zzz]}!mAM,PM!t",
    "iso": "iso8601!t",
}
_LOGIN = b"<!DOCTYPE html><html><head><title>Login</title></head><body><form action='j_security_check'></form></body>"


class ServiceError(Exception):
    """An error that is put into a reply."""

    def __init__(self, code: int, message: str, key: str) -> None:
        super().__init__(message)
        self.code, self.message, self.key = code, message, key


class Server:
    """A WSGI application at `/docs/idcplg`. `services` are its services by name.

    `users` maps a name to its password and the security groups that it may read; without any, everybody reads all.
    `guest_groups` are those that may be read without signing in. `dates` is how times are written: ts, locale or iso.
    With `login_page`, who may not be here gets a page with status 200 as single sign-on gives it. `unsteady` gives rows
    of one in-date in another order each time.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        users: Mapping[str, tuple[str, frozenset[str]]] | None = None,
        max_results: int = 200,
        dates: str = "ts",
        zone: str = "America/Chicago",
    ) -> None:
        self.store = store if store is not None else Store()
        self.users = users
        self.guest_groups: frozenset[str] = frozenset()
        self.max_results = max_results
        self.dates = dates
        self.zone = zone
        self.login_page = False
        self.unsteady = False
        self._searches = itertools.count(1)
        self.services: dict[str, Callable[[Mapping[str, str]], Response]] = {
            "GET_SEARCH_RESULTS": self._search,
            "DOC_INFO": self._info,
            "DOC_INFO_BY_NAME": self._info_by_name,
            "REV_HISTORY": self._history,
            "GET_FILE": self._file,
            "PING_SERVER": lambda asked: self._reply({"StatusMessage": "You are logged in."}, {}, asked),
        }

    @classmethod
    def of_folder(cls, folder: Path, zone: str = "America/Chicago") -> Server:
        """Serves the documents of a demo's folder, which `<folder>.csv` describes, as they are at each request."""
        return cls(FolderStore(folder, ZoneInfo(zone)), zone=zone)

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        return self._answer(Request(environ))(environ, start_response)

    def _answer(self, request: Request) -> Response:
        if request.path.rstrip("/") != PATH:
            return Response("Error 404--Not Found", 404, mimetype="text/html")
        asked = {**request.args.to_dict(), **request.form.to_dict()}
        user = self._user(request)
        if user is None:
            if self.login_page:
                return Response(_LOGIN, 200, mimetype="text/html")
            return Response("", 401, headers={"WWW-Authenticate": 'Basic realm="Content Server"'})
        asked["dUser"] = user
        self.store.refresh()
        service = self.services.get(asked.get("IdcService", ""))
        try:
            if service is None:
                name = asked.get("IdcService", "")
                raise ServiceError(-1, f"No service defined for {name}.", f"!csServiceNotDefined,{name}")
            return service(asked)
        except ServiceError as error:
            said = {"StatusCode": str(error.code), "StatusMessage": error.message, "StatusMessageKey": error.key}
            return self._reply(said, {}, asked)

    def _user(self, request: Request) -> str | None:
        given = request.authorization
        if self.users is None:
            return given.username or "anonymous" if given else "anonymous"
        if given is None:
            return None if self.login_page else "anonymous"
        known = self.users.get(given.username or "")
        return given.username if known and known[0] == given.password else None

    def _may_read(self, user: str, revision: Revision) -> bool:
        if self.users is None:
            return True
        groups = self.guest_groups if user == "anonymous" else self.users[user][1]
        return revision.group in groups

    # services

    def _search(self, asked: Mapping[str, str]) -> Response:
        number = next(self._searches)
        clauses = _parsed(asked.get("QueryText", ""))
        found = [
            revision
            for revision in list(self.store.searchable.values())
            if self._may_read(asked["dUser"], revision) and all(_holds(self._search_row(revision), c) for c in clauses)
        ]
        if self.unsteady and number % 2:
            found.reverse()
        field = asked.get("SortField", "dInDate")
        found.sort(key=lambda revision: self._sort_key(revision, field), reverse=_descending(asked))
        count = min(_number(asked.get("ResultCount"), _DEFAULT_COUNT), self.max_results)
        first = max(_number(asked.get("StartRow"), 1), 1)
        rows = [{**self._search_row(r), "SCORE": str(number % 97)} for r in found[first - 1 : first - 1 + count]]
        last = first - 1 + len(rows)
        local = {
            "TotalRows": str(len(found)),
            "TotalDocsProcessed": str(len(found)),
            "StartRow": str(first),
            "EndRow": str(last),
            "ResultCount": str(count),
            "NumPages": str(-(-len(found) // count)),
            "PageNumber": str((first - 1) // count + 1),
        }
        if last < len(found):
            local["NextRow"] = str(last + 1)
        return self._reply(local, {"SearchResults": rows}, asked)

    def _info_by_name(self, asked: Mapping[str, str]) -> Response:
        return self._described(self._by_name(asked), asked)

    def _info(self, asked: Mapping[str, str]) -> Response:
        return self._described(self._by_number(asked), asked)

    def _history(self, asked: Mapping[str, str]) -> Response:
        revision = self._by_number(asked)
        return self._reply({}, {"REVISIONS": self._revisions(revision.name)}, asked)

    def _file(self, asked: Mapping[str, str]) -> Response:
        if asked.get("dID") and asked.get("RevisionSelectionMethod", "Specific") == "Specific":
            revision = self._by_number(asked)
        else:
            revision = self._by_name(asked)
        data, name, kind = revision.bytes(), revision.file, revision.media_type
        if asked.get("Rendition", "Primary").lower() == "web" and revision.web:
            extension, data = revision.web
            name = f"{name.rpartition('.')[0] or name}.{extension}"
            kind = "application/pdf" if extension == "pdf" else "text/html"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(data, 200, headers=headers, content_type=kind)

    # lookups

    def _by_name(self, asked: Mapping[str, str]) -> Revision:
        name = asked.get("dDocName", "")
        method = asked.get("RevisionSelectionMethod", "Latest")
        revisions = self.store.contents.get(name, [])
        found = self.store.released(name) if method == "LatestReleased" else (revisions[-1] if revisions else None)
        if found is None:
            said = "latest released revision" if method == "LatestReleased" else "latest revision"
            raise ServiceError(
                -1 if revisions else -16,
                f"Unable to retrieve information about '{name}'. Unable to find {said} of content item '{name}'.",
                f"!csUnableToGetRevInfo2,{name}!csGetFileUnableToFindRevision,csGetFileRevMethodLabel_{method},{name}",
            )
        return self._checked(found, asked)

    def _by_number(self, asked: Mapping[str, str]) -> Revision:
        found = self.store.revision(_number(asked.get("dID"), 0))
        if found is None:
            message = "Unable to retrieve information about the revision. This content item no longer exists."
            raise ServiceError(-16, message, "!csUnableToGetRevInfo!csItemNoLongerExists2")
        return self._checked(found, asked)

    def _checked(self, revision: Revision, asked: Mapping[str, str]) -> Revision:
        user = asked["dUser"]
        if not self._may_read(user, revision):
            raise ServiceError(
                -20 if user == "anonymous" else -18,
                f"Unable to retrieve information about '{revision.name}'. User '{user}' does not have sufficient "
                "privilege.",
                f"!csUnableToGetRevInfo2,{revision.name}!csUserInsufficientAccess,{user}",
            )
        return revision

    # replies

    def _described(self, revision: Revision, asked: Mapping[str, str]) -> Response:
        row = {
            **self._row(revision),
            "dReleaseState": "Y" if revision.released else "E",
            "dReleaseDate": self._time(revision.in_date),
            "dFileSize": str(revision.size()),
            "dIsPrimary": "1",
        }
        sets = {"DOC_INFO": [row], "REVISION_HISTORY": self._revisions(revision.name)}
        return self._reply({"dDocName": revision.name, "dID": str(revision.id)}, sets, asked)

    def _revisions(self, name: str) -> list[dict[str, str]]:
        revisions = self.store.contents.get(name, [])
        return [
            {
                "dID": str(revision.id),
                "dDocName": name,
                "dRevisionID": str(position + 1),
                "dRevLabel": revision.label,
                "dInDate": self._time(revision.in_date),
                "dOutDate": "",
                "dStatus": revision.status,
                "dFormat": revision.media_type,
                "dProcessingState": "Y",
            }
            for position, revision in reversed(list(enumerate(revisions)))
        ]

    def _row(self, revision: Revision) -> dict[str, str]:
        return {
            "dID": str(revision.id),
            "dDocName": revision.name,
            "dDocTitle": revision.title,
            "dDocType": "Document",
            "dRevLabel": revision.label,
            "dDocAuthor": revision.author,
            "dSecurityGroup": revision.group,
            "dDocAccount": revision.account,
            "dStatus": revision.status,
            "dInDate": self._time(revision.in_date),
            "dOutDate": "",
            "dCreateDate": self._time(revision.in_date),
            "dDocLastModifiedDate": self._time(revision.modified),
            "dFormat": revision.media_type,
            "dOriginalName": revision.file,
            "dExtension": revision.extension,
            "dWebExtension": revision.web[0] if revision.web else revision.extension,
            **revision.metadata,
        }

    def _search_row(self, revision: Revision) -> dict[str, str]:
        size = str(revision.size())
        return {
            **self._row(revision),
            "VaultFileSize": size,
            "WebFileSize": str(len(revision.web[1])) if revision.web else size,
            "URL": f"/docs/groups/{revision.group.lower()}/documents/document/{revision.name.lower()}",
        }

    def _sort_key(self, revision: Revision, field: str) -> Any:
        return revision.in_date if field == "dInDate" else self._row(revision).get(field, "")

    def _time(self, moment: datetime) -> str:
        there = moment.astimezone(ZoneInfo(self.zone))
        if self.dates == "iso":
            return f"{moment.astimezone(ZoneInfo('UTC')):%Y-%m-%d %H:%M:%S}Z"
        if self.dates == "locale":
            return f"{there.month}/{there.day}/{there:%y} {there.hour % 12 or 12}:{there:%M %p}"
        return f"{{ts '{there:%Y-%m-%d %H:%M:%S}.000'}}"

    def _reply(
        self, local: Mapping[str, str], sets: Mapping[str, list[dict[str, str]]], asked: Mapping[str, str]
    ) -> Response:
        if asked.get("IsJson") != "1":  # a page made from the service's template
            return Response("<html><head><title>Content Server</title></head></html>", 200, mimetype="text/html")
        said = {"IdcService": asked.get("IdcService", ""), "dUser": asked["dUser"], "StatusCode": "0", **local}
        said["blDateFormat"] = _PATTERNS[self.dates] + self.zone
        body = {"LocalData": said, "ResultSets": {name: _result_set(rows) for name, rows in sets.items()}}
        return Response(json.dumps(body), 200, mimetype="application/json")


def _result_set(rows: list[dict[str, str]]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["dID", "dDocName"]
    return {
        "currentRow": 0,
        "fields": [{"name": name} for name in names],
        "rows": [[row.get(name, "") for name in names] for row in rows],
    }


def _parsed(query: str) -> list[tuple[str, str, str]]:
    """Clauses that must all hold; of the query language no more than this is known here."""
    clauses = []
    for text in _AND.split(query.strip()) if query.strip() else []:
        match = _CLAUSE.fullmatch(text.strip())
        if match is None:
            raise ServiceError(-1, f"Unable to parse the query '{query}'.", "!csSearchUnableToParseQuery")
        clauses.append((match[1], match[2].lower(), match[3]))
    return clauses


def _holds(row: Mapping[str, str], clause: tuple[str, str, str]) -> bool:
    name, operator, wanted = clause
    value = row.get(name, "")
    return value == wanted if operator == "matches" else wanted.casefold() in value.casefold()


def _descending(asked: Mapping[str, str]) -> bool:
    return asked.get("SortOrder", "Desc").lower() != "asc"


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdecimal() else otherwise
