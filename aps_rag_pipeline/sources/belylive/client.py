"""The generated client of BELY's interface over the polite transport.

The generated classes build the requests. Replies are read as plain JSON: the generated models refuse a whole reply for
one value they do not expect (a server before `isInternal`, a name of 129 characters, an entry without a date).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from aps_rag_pipeline.settings import Credentials, Network, SettingsError
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.sources.jsonfiles import JsonObject, mapping, string
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError
from aps_rag_pipeline.sources.net.http import Http, answered, parse_json, refuse_page
from aps_rag_pipeline.sources.net.transport import REPEATABLE, shown

TOKEN = "token"
#: The server reads xsd:dateTime; without a zone it takes its own.
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_JSON_TRIES = 2


class ServerError(OutageError):
    """The server's own error: the class of the exception and what it says, never its stack."""

    def __init__(self, place: str, status: int, name: str, said: str) -> None:
        super().__init__(f"{place}: status {status}, {name}: {said}")
        self.name = name


class MissingError(GoneError):
    """The server itself says that there is no such item. Any 404 else may be a proxy's, or a call it does not know."""


class Reply:
    """A reply as the generated client wants it."""

    def __init__(self, reply: httpx.Response) -> None:
        self.status = reply.status_code
        self.reason = reply.reason_phrase
        self.headers = reply.headers
        self.data = reply.content
        self.response = self

    def read(self) -> bytes:
        return self.data


class PoliteRest:
    """Stands where the generated client keeps its own connections. It raises our errors in place of a bad status."""

    def __init__(self, http: Http, origin: httpx.URL) -> None:
        self._http = http
        self._origin = origin
        hooks = self._http.client.event_hooks
        self._http.client.event_hooks = {**hooks, "request": [*hooks["request"], self._keep_token_home]}
        self._token = ""
        self._lock = threading.Lock()
        self.session: Session | None = None

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        post_params: list[tuple[str, str]] | None = None,
        _request_timeout: Any = None,
    ) -> Reply:
        """What the generated client calls. POSTs that carry a form are a sign-in; everything else here only reads."""
        if post_params:
            return Reply(_understood(self._send(method, url, headers, dict(post_params), "")))
        for last in (False, True):
            token = self._signed_in("")
            reply = self._send(method, url, headers, None, token)
            if reply.status_code == 401 and token:
                reply = self._send(method, url, headers, None, self._signed_in(token))
            _understood(reply)
            try:
                if "json" in (headers or {}).get("Accept", ""):
                    parse_json(reply)
            except OutageError:
                if last:
                    raise
            else:
                break
        return Reply(reply)

    def _send(
        self, method: str, url: str, headers: Mapping[str, str] | None, form: dict[str, str] | None, token: str
    ) -> httpx.Response:
        sent = {name: value for name, value in (headers or {}).items() if name.lower() != "content-type"}
        if token:
            sent[TOKEN] = token
        try:
            return self._http.client.request(method, url, headers=sent, data=form, extensions={REPEATABLE: True})
        except (httpx.TooManyRedirects, httpx.InvalidURL) as error:
            raise OutageError(f"{url}: {error}; mend `url`") from error

    def _signed_in(self, refused: str) -> str:
        """The token of the session; another one than that which was refused. Without credentials there is none."""
        if self.session is None:
            return ""
        with self._lock:
            if self._token == refused:
                self._token = self.session.sign_in()
            return self._token

    def _keep_token_home(self, request: httpx.Request) -> None:
        """A redirect to another host gets no token; httpx takes care of its own headers only."""
        if (request.url.scheme, request.url.netloc) != (self._origin.scheme, self._origin.netloc):
            request.headers.pop(TOKEN, None)


class Session:
    """Signing in, with a user and a password."""

    def __init__(self, login: Any, credentials: Credentials, place: str) -> None:
        self._login = login
        self._credentials = credentials
        self._place = place

    def sign_in(self) -> str:
        """A new token, which the server gives in a header.

        Raises:
            RefusedError: the server knows no such user or password.
            FeedError: the password cannot be read.
        """
        assert self._credentials.password is not None
        try:
            password = self._credentials.password.read().get_secret_value()
        except SettingsError as error:
            raise FeedError(f"{self._place}: {error}") from error
        reply = self._login(username=self._credentials.user, password=password)
        token = str(reply.headers.get(TOKEN, ""))
        if not token:
            raise RefusedError(f"{self._place}: signing in gave no token; check `url` and the feed's `credentials`")
        return token


class Bely:
    """What is asked of a server. Safe to use from several threads.

    Raises, from every call:
        MissingError: there is no such item.
        GoneError: the server is too old to know the call, or the address is wrong.
        ServerError: the server's own error.
        OutageError: no reply, or one that is no reply of a BELY server.
    """

    def __init__(self, url: str, network: Network, credentials: Credentials) -> None:
        from belyApi.api.authentication_api import AuthenticationApi
        from belyApi.api.downloads_api import DownloadsApi
        from belyApi.api.logbook_api import LogbookApi
        from belyApi.api.search_api import SearchApi
        from belyApi.api_client import ApiClient
        from belyApi.configuration import Configuration

        self.place = url.rstrip("/").removesuffix("/api")
        try:
            origin = httpx.URL(self.place)
        except httpx.InvalidURL as error:
            raise FeedError(f"{url}: {error}; mend `url`") from error
        if not origin.host:
            raise FeedError(f"{url}: `url` must be the address of the portal, such as https://bely.example.org/bely")
        self._http = Http(network)
        self._rest = PoliteRest(self._http, origin)
        api: Any = ApiClient(Configuration(host=self.place))
        api.rest_client = self._rest
        api.configuration.datetime_format = _TIME_FORMAT
        self._logbook, self._search, self._downloads = LogbookApi(api), SearchApi(api), DownloadsApi(api)
        if credentials.user and credentials.password is not None:
            login = AuthenticationApi(api).authenticate_user_without_preload_content
            self._rest.session = Session(login, credentials, self.place)

    def close(self) -> None:
        self._http.close()

    def logbook_types(self) -> list[JsonObject]:
        return self._objects(self._logbook.get_logbook_types_without_preload_content(include_all=True))

    def documents(self, logbook: int, limit: int) -> tuple[list[JsonObject], datetime | None]:
        """The documents of a logbook type, newest first, and the server's time."""
        reply = self._logbook.get_log_documents_without_preload_content(logbook, limit)
        return self._objects(reply), _moment(reply)

    def sections(self, document: int) -> list[JsonObject]:
        return self._objects(self._logbook.get_logbook_sections_without_preload_content(document))

    def entries(self, item: int) -> list[JsonObject]:
        """The entries of a document or of a section, with their replies."""
        reply = self._logbook.get_log_entries_without_preload_content(item, load_replies=True, load_reactions=False)
        return self._objects(reply)

    def search(
        self, after: datetime, until: datetime | None = None, logbooks: list[int] | None = None
    ) -> tuple[list[JsonObject], list[JsonObject]]:
        """Documents and entries modified after a time. Without text: the server would put it into SQL as it is."""
        reply = self._search.search_logbook_without_preload_content(
            "*",
            logbook_type_id=logbooks,
            start_modified_date=after.astimezone(UTC),
            end_modified_date=until.astimezone(UTC) if until else None,
        )
        found = _json(reply)
        if not isinstance(found, dict) or not {"documentResults", "logEntryResults"} & found.keys():
            raise self._odd("a search", found)
        return _listed(found.get("documentResults")), _listed(found.get("logEntryResults"))

    def attachment(self, stored: str, scaling: str = "") -> bytes:
        if scaling:
            reply = self._downloads.get_attachment1_without_preload_content(stored, scaling)
        else:
            reply = self._downloads.get_attachment_without_preload_content(stored)
        data = bytes(reply.data)
        refuse_page(data, reply.headers.get("Content-Type", ""), stored, f"{self.place} attachment {stored}")
        return data

    def _objects(self, reply: Any) -> list[JsonObject]:
        found = _json(reply)
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise self._odd("a list", found)
        return found

    def _odd(self, wanted: str, found: object) -> OutageError:
        said = (
            f"an error came with a good status: {_error_text(found)}" if _error_text(found) else "something else came"
        )
        return OutageError(f"{self.place}: {wanted} of the log book was due, but {said}")


def _json(reply: Any) -> Any:
    return json.loads(reply.data.decode("utf-8-sig", "replace"))


def _listed(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _moment(reply: Any) -> datetime | None:
    try:
        return parsedate_to_datetime(reply.headers.get("Date", "")).astimezone(UTC)
    except (TypeError, ValueError):
        return None


def _understood(reply: httpx.Response) -> httpx.Response:
    """The reply if its status is good; else the error that it stands for, without the stack that the server shows."""
    if reply.is_success:
        return reply
    try:
        said = mapping(parse_json(reply))
    except OutageError:
        said = {}
    if "simpleName" not in said:
        return answered(reply)
    place, status = shown(reply.request.url), reply.status_code
    text = f"{string(said['simpleName'])}: {string(said.get('message'))[:200]}"
    if status in (404, 410):
        raise MissingError(f"{place}: status {status}, {text}")
    if status in (401, 403):
        raise RefusedError(f"{place}: status {status}, {text}; check the feed's `credentials`")
    raise ServerError(place, status, string(said["simpleName"]), string(said.get("message"))[:200])


def _error_text(value: object) -> str:
    said = mapping(value)
    error = mapping(said.get("error"))
    words = (error.get("message"), said.get("simpleName"), said.get("message"))
    return " ".join(text for word in words if (text := string(word)))[:200]
