"""Asking Graph: the request adapter of its SDK on the polite transport, in an event loop of its own.

Of the SDK's middleware only redirects and the decoding of parameter names are used: retries are the transport's, and
what the telemetry would say of this machine is nobody's business. Its `PageIterator` is not used: it wants models, so
that raw JSON would be lost, and it takes an empty page for the last one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode, urlsplit

import httpx

from aps_rag_pipeline.settings import Feed, Network
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.sources.graphchat.options import GraphOptions, read_service
from aps_rag_pipeline.sources.graphchat.signin import Tokens
from aps_rag_pipeline.sources.jsonfiles import JsonObject, at, mapping, string
from aps_rag_pipeline.sources.net.bridges import AsyncPoliteTransport
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.net.http import answered, parse_json, refuse_page
from aps_rag_pipeline.sources.net.transport import PoliteTransport

if TYPE_CHECKING:
    from kiota_abstractions.request_information import RequestInformation
    from msgraph_core import BaseGraphRequestAdapter

T = TypeVar("T")

_JSON_TRIES = 2
#: Pages in a row that bring nothing new, before a listing counts as one that never ends.
_IDLE_PAGES = 20


class Loop:
    """An event loop in a thread of its own, so that callers know nothing of it."""

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result()

    def close(self) -> None:
        """What still runs is cancelled."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


class GraphClient:
    """A client of one feed, for the coroutines of one loop."""

    def __init__(self, feed: Feed, options: GraphOptions, network: Network) -> None:
        """Raises:
        FeedError: the feed does not say where to ask or how to sign in.
        """
        self.service = read_service(feed, options)
        self._tokens = Tokens(feed, options, self.service, network)
        self._transport = PoliteTransport(network)
        self._http, self._adapter = self._connect()

    def _connect(self) -> tuple[httpx.AsyncClient, BaseGraphRequestAdapter]:
        from kiota_http.middleware import ParametersNameDecodingHandler, RedirectHandler
        from msgraph_core import AzureIdentityAuthenticationProvider, BaseGraphRequestAdapter, GraphClientFactory

        plain = httpx.AsyncClient(
            transport=AsyncPoliteTransport(self._transport), base_url=self.service.base, trust_env=False
        )
        http = GraphClientFactory.create_with_custom_middleware(
            [RedirectHandler(), ParametersNameDecodingHandler()], client=plain
        )
        # The token goes to this host alone.
        provider = AzureIdentityAuthenticationProvider(
            self._tokens, scopes=[self.service.scope], allowed_hosts=[self.service.host]
        )
        return http, BaseGraphRequestAdapter(provider, http_client=http)

    async def close(self) -> None:
        await self._http.aclose()
        await self._tokens.close()
        self._transport.close()

    def address(self, path: str, params: Mapping[str, str] | None = None) -> str:
        return f"{self.service.base}{path}" + (f"?{urlencode(params, safe='$')}" if params else "")

    async def json(self, url: str) -> JsonObject:
        """A JSON object. A reply that is cut off is asked for once more.

        Raises:
            OutageError: as `answered` says; no JSON object, or an error in the guise of one.
            FeedError: the token is refused, and so is another.
        """
        problem: OutageError | None = None
        for _ in range(_JSON_TRIES):
            reply = await self._get(url, "application/json")
            try:
                return _no_error(parse_json(reply), url)
            except OutageError as error:
                problem = error
        assert problem is not None
        raise problem

    async def content(self, url: str) -> bytes:
        """The bytes of hosted content.

        Raises:
            OutageError: as for JSON; a web page or an error came in their place.
        """
        reply = await self._get(url, "*/*")
        kind = reply.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        refuse_page(reply.content, kind, "a picture", _bare(url))
        if kind == "application/json" or not reply.content:
            raise OutageError(f"{url}: {kind or 'nothing'} came where a picture was due")
        return reply.content

    async def pages(self, url: str) -> AsyncIterator[list[object]]:
        """The items of a collection, page after page as the service links them.

        Raises:
            OutageError: a page cannot be had, or the links never end.
        """
        seen: set[str] = set()
        known: set[str] = set()
        idle = 0
        while url:
            self._check_link(url, seen)
            page = await self.json(url)
            values = page.get("value")
            if not isinstance(values, list):
                raise OutageError(f"{_bare(url)}: the answer has no `value`, so it is no list")
            ids = {string(at(value, "id")) for value in values}
            idle = 0 if ids - known else idle + 1
            known |= ids
            if idle > _IDLE_PAGES:
                raise OutageError(f"{_bare(url)}: {idle} pages in a row bring nothing new; the listing has no end")
            yield values
            url = string(page.get("@odata.nextLink"))

    def _check_link(self, url: str, seen: set[str]) -> None:
        if url in seen:
            raise OutageError(f"{_bare(url)}: the link to the next page leads back to a page that was read")
        seen.add(url)
        found = urlsplit(url)
        if f"{found.scheme}://{found.netloc}" != self.service.origin:
            raise OutageError(f"{_bare(url)}: the link to the next page leaves {self.service.origin}; mend `url`")

    async def _get(self, url: str, accept: str) -> httpx.Response:
        reply = await self._send(url, accept)
        if reply.status_code == 401 and await self._tokens.renew(_bearer(reply)):
            reply = await self._send(url, accept)
        if reply.status_code == 401:
            said = string(at(_json_or_none(reply), "error.message"))
            raise FeedError(f"{_bare(url)}: status 401, the token is refused ({said}); check the feed's `credentials`")
        return answered(reply)

    async def _send(self, url: str, accept: str) -> httpx.Response:
        reply = await self._adapter.send_primitive_async(_request(url, accept), "bytes", {})
        assert isinstance(reply, httpx.Response)
        return reply


def _request(url: str, accept: str) -> RequestInformation:
    from kiota_abstractions.method import Method
    from kiota_abstractions.native_response_handler import NativeResponseHandler
    from kiota_abstractions.request_information import RequestInformation
    from kiota_http.middleware.options import ResponseHandlerOption

    request = RequestInformation()
    request.http_method = Method.GET
    request.url = url
    request.headers.add("Accept", accept)
    # Without it shared channels are told as of an unknown kind.
    request.headers.add("Prefer", "include-unknown-enum-members")
    request.add_request_options([ResponseHandlerOption(NativeResponseHandler())])
    return request


def _bearer(reply: httpx.Response) -> str:
    return str(reply.request.headers.get("Authorization", "")).removeprefix("Bearer ")


def _no_error(value: object, url: str) -> JsonObject:
    found = mapping(value)
    error = mapping(found.get("error"))
    if error or not found:
        said = string(error.get("message")) or string(error.get("code")) or "no object"
        raise OutageError(f"{_bare(url)}: an error came with a good status: {said}")
    return found


def _json_or_none(reply: httpx.Response) -> object:
    try:
        return parse_json(reply)
    except OutageError:
        return None


def _bare(url: str) -> str:
    return url.partition("?")[0]
