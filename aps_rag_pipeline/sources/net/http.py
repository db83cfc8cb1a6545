"""Asking a live service and taking only what was asked for: an answer of the right kind, whole, or an error that says
why."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import httpx

from aps_rag_pipeline.settings import Network
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError
from aps_rag_pipeline.sources.net.transport import REPEATABLE, PoliteTransport, shown

_TITLE = re.compile(r"<title[^>]*>\s*(.*?)\s*</title", re.IGNORECASE | re.DOTALL)
_JSON_TRIES = 2

Params = Mapping[str, str | int | float | bool | list[str] | None]


class Http:
    """A client of one feed. Safe to use from several threads; close it after the scan.

    Redirects are followed; credentials go to the feed's own host alone, as httpx does it.
    """

    def __init__(
        self,
        network: Network,
        *,
        headers: Mapping[str, str] | None = None,
        auth: httpx.Auth | tuple[str, str] | None = None,
        transport: PoliteTransport | None = None,
    ) -> None:
        self.transport = transport or PoliteTransport(network)
        self.client = httpx.Client(
            transport=self.transport, headers=dict(headers or {}), auth=auth, follow_redirects=True, trust_env=False
        )

    def __enter__(self) -> Http:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.client.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        data: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        repeatable: bool = False,
    ) -> httpx.Response:
        """A reply with a 2xx status. `repeatable` says of a POST that it only reads.

        Raises:
            GoneError: 404 or 410.
            RefusedError: 401 or 403.
            OutageError: no reply, or any other status.
            TooLargeError: above the limit.
        """
        try:
            reply = self.client.request(
                method,
                url,
                params=params,
                headers=headers,
                json=json,
                data=data,
                content=content,
                extensions={REPEATABLE: True} if repeatable else None,
            )
        except (httpx.TooManyRedirects, httpx.InvalidURL) as error:
            raise OutageError(f"{url}: {error}; mend `url`") from error
        return answered(reply)

    def content(self, url: str, **more: Any) -> bytes:
        """The bytes of a reply, whatever they are."""
        return self.request("GET", url, **more).content

    def json(self, url: str, *, method: str = "GET", **more: Any) -> Any:
        """A JSON value. A reply that is cut off is asked for once more.

        Raises:
            OutageError: as in :meth:`request`, or HTML or damaged JSON came with a good status.
        """
        problem: OutageError | None = None
        for _ in range(_JSON_TRIES):
            reply = self.request(method, url, **more)
            try:
                return parse_json(reply)
            except OutageError as error:
                problem = error
        assert problem is not None
        raise problem


def answered(reply: httpx.Response) -> httpx.Response:
    """The reply itself if its status is 2xx; the error that stands for it otherwise."""
    if reply.is_success:
        return reply
    place, status = shown(reply.request.url), reply.status_code
    told = _excerpt(reply)
    if status in (404, 410):
        raise GoneError(f"{place}: status {status}, there is no such thing{told}")
    if status in (401, 403):
        raise RefusedError(f"{place}: status {status}, the server refuses; check the feed's `credentials`{told}")
    raise OutageError(f"{place}: status {status}{told}")


def parse_json(reply: httpx.Response) -> Any:
    """The JSON value of a reply.

    Raises:
        OutageError: it is HTML, or JSON that is cut off or damaged.
    """
    place = shown(reply.request.url)
    text = reply.content.decode("utf-8-sig", "replace")
    if text.lstrip()[:1] == "<":
        title = _TITLE.search(text)
        named = f" ({title[1][:80]})" if title else ""
        raise OutageError(f"{place}: a web page{named} came where JSON was due, perhaps of a sign-in or a proxy")
    try:
        return json.loads(text)
    except ValueError as error:
        raise OutageError(f"{place}: the JSON is cut off or damaged ({error})") from error


def _excerpt(reply: httpx.Response) -> str:
    text = " ".join(reply.text[:2000].split())
    title = _TITLE.search(text)
    said = title[1] if title else "" if text.startswith("<") else text
    return f": {said[:200]}" if said else ""
