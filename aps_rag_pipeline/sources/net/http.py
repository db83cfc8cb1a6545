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

    `headers` and `auth` go to the host of the first request alone, which is the feed's: an address that a source's text
    names gets neither. Redirects are followed, but never with a body to another host.
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
        self._headers, self._auth = dict(headers or {}), auth
        self._home: tuple[str, str] | None = None
        self.client = httpx.Client(
            transport=self.transport,
            follow_redirects=True,
            trust_env=False,
            event_hooks={"response": [refuse_to_carry_a_body_elsewhere]},
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
        at_home = self._is_at_home(url)
        try:
            reply = self.client.request(
                method,
                url,
                params=params,
                headers={**self._headers, **(headers or {})} if at_home else headers,
                auth=self._auth if at_home else None,
                json=json,
                data=data,
                content=content,
                extensions={REPEATABLE: True} if repeatable else None,
            )
        except (httpx.TooManyRedirects, httpx.InvalidURL) as error:
            raise OutageError(f"{url}: {error}; mend `url`") from error
        return answered(reply)

    def _is_at_home(self, url: str) -> bool:
        """Whether an address is on the feed's host, and no less protected than the feed itself."""
        try:
            asked = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise OutageError(f"{url}: {error}; mend `url`") from error
        if self._home is None:
            self._home = (asked.host, asked.scheme)
        host, scheme = self._home
        return asked.host == host and (asked.scheme == scheme or asked.scheme == "https")

    def file(self, url: str, name: str, **more: Any) -> bytes:
        """The bytes of an attachment called `name`.

        Raises:
            OutageError: as in :meth:`request`, or a web page came in place of a file that is none.
        """
        reply = self.request("GET", url, **more)
        refuse_page(reply.content, reply.headers.get("Content-Type", ""), name, shown(reply.request.url))
        return reply.content

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


def refuse_page(data: bytes, content_type: str, name: str, place: str) -> None:
    """Raise OutageError where a web page stands in place of a file whose name says that it is none."""
    if name.lower().endswith((".html", ".htm", ".xhtml", ".mht", ".mhtml")):
        return
    start = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")) or content_type.lower().startswith("text/html"):
        raise OutageError(f"{place}: a web page came in place of {name}, perhaps of a sign-in or a proxy")


def refuse_to_carry_a_body_elsewhere(reply: httpx.Response) -> None:
    """A redirect that would hand what was posted, a password perhaps, to another host is an outage."""
    request, following = reply.request, reply.next_request
    if following is None and reply.has_redirect_location and reply.status_code in (307, 308) and request.content:
        target = request.url.join(reply.headers["Location"])
        if target.host != request.url.host or (request.url.scheme == "https" and target.scheme != "https"):
            raise OutageError(f"{shown(request.url)}: it wants what was sent to it sent to {target.host}; mend `url`")


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
        value = json.loads(text)
        # Escapes can name halves of characters, which no store takes.
        return without_halves(value) if "\\ud" in text.lower() else value
    except ValueError as error:
        raise OutageError(f"{place}: the JSON is cut off or damaged ({error})") from error


def without_halves(value: Any) -> Any:
    """The value with a replacement sign for each half of a surrogate pair that stands alone."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [without_halves(item) for item in value]
    if isinstance(value, dict):
        return {without_halves(name): without_halves(item) for name, item in value.items()}
    return value


def _excerpt(reply: httpx.Response) -> str:
    text = " ".join(reply.text[:2000].split())
    title = _TITLE.search(text)
    said = title[1] if title else "" if text.startswith("<") else text
    return f": {said[:200]}" if said else ""
