"""The polite transport as the client libraries want it: a session of requests, and an asynchronous transport."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from email.message import Message
from types import SimpleNamespace
from typing import Any, cast

import httpx
import requests
from requests.adapters import BaseAdapter
from requests.cookies import extract_cookies_to_jar
from requests.structures import CaseInsensitiveDict
from urllib3 import HTTPHeaderDict, HTTPResponse

from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.net.transport import PoliteTransport, shown


class PoliteAdapter(BaseAdapter):
    """Mount it on a `requests.Session`; what the session says of time-outs, certificates and proxies is left to the
    feed's `network` settings."""

    def __init__(self, transport: PoliteTransport) -> None:
        super().__init__()
        self._transport = transport

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        body = request.body
        if not isinstance(body, str | bytes | None):
            raise TypeError("a streamed request body cannot be sent again; give it whole")
        assert request.url is not None
        headers = [(name, value) for name, value in request.headers.items() if name.lower() != "content-length"]
        sent = httpx.Request(
            request.method or "GET",
            request.url,
            headers=httpx.Headers([(str(name), str(value)) for name, value in headers]),
            content=body.encode() if isinstance(body, str) else body,
        )
        reply = self._transport.handle_request(sent)
        told = Message()  # where requests looks for cookies
        for name, value in reply.headers.multi_items():
            told.add_header(name, value)
        raw = HTTPResponse(
            io.BytesIO(reply.content),
            headers=HTTPHeaderDict(reply.headers.multi_items()),
            status=reply.status_code,
            reason=reply.reason_phrase,
            preload_content=False,
            original_response=cast(Any, SimpleNamespace(msg=told, isclosed=lambda: True)),
        )
        made = requests.Response()
        made.status_code = reply.status_code
        made.reason = reply.reason_phrase
        made.headers = CaseInsensitiveDict(reply.headers)
        made.encoding = requests.utils.get_encoding_from_headers(made.headers)
        made.raw = raw
        made.url = request.url
        made.request = request
        extract_cookies_to_jar(made.cookies, request, raw)  # type: ignore[no-untyped-call]
        return made

    def close(self) -> None:
        """The transport belongs to the feed's client."""


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        target = super().get_redirect_target(resp)
        if target is not None and resp.status_code in (307, 308) and resp.request.body:
            here = httpx.URL(resp.request.url or "")
            there = here.join(target)
            if there.host != here.host or (here.scheme == "https" and there.scheme != "https"):
                raise OutageError(f"{shown(here)}: it wants what was sent to it sent to {there.host}; mend `url`")
        return target


def polite_session(transport: PoliteTransport) -> requests.Session:
    """A session whose every request goes through the transport; cookies and redirects stay with requests, but for
    redirects that would carry a body to another host."""
    session = _Session()
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, PoliteAdapter(transport))
    return session


def as_httpx(reply: requests.Response) -> httpx.Response:
    """A reply in the form in which `answered` and `parse_json` take it."""
    return httpx.Response(
        reply.status_code,
        headers={"Content-Type": reply.headers.get("Content-Type", "")},
        content=reply.content,
        request=httpx.Request("GET", reply.url or "http://unknown"),
    )


class AsyncPoliteTransport(httpx.AsyncBaseTransport):
    """For asynchronous clients: the same transport in a thread."""

    def __init__(self, transport: PoliteTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent = httpx.Request(
            request.method,
            request.url,
            headers=request.headers,
            content=await request.aread(),
            extensions=request.extensions,
        )
        reply = await asyncio.to_thread(self._transport.handle_request, sent)
        return httpx.Response(
            reply.status_code, headers=reply.headers, content=reply.content, extensions=reply.extensions
        )
