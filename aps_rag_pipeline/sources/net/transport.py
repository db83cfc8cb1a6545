"""One request to a live service, politely: few at a time, with pauses when asked for them, and never without an end.

A reply is read whole before it is handed on, so that a connection lost in mid-body is one more attempt and not half an
answer. What httpx, requests and asynchronous clients see is the same transport.
"""

from __future__ import annotations

import ipaddress
import logging
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from urllib.request import getproxies, proxy_bypass

import certifi
import httpx
import tenacity

from aps_rag_pipeline.settings import Network
from aps_rag_pipeline.sources.net.errors import OutageError, TooLargeError

log = logging.getLogger(__name__)

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PROPFIND", "REPORT"})
_WORTH_ANOTHER = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_PAUSE_S = 30.0

#: Request extension: this POST only reads, so it may be sent again.
REPEATABLE = "aps_rag_repeatable"


class _Host:
    """What all feeds share about a host and port: how many requests it has now, and until when it wants none."""

    def __init__(self) -> None:
        self.quiet_until = 0.0
        self._busy = 0
        self._freed = threading.Condition()

    @contextmanager
    def place(self, most: int, timeout: float) -> Iterator[bool]:
        """One request among at most `most`, whichever feed the others are of; whether there was room in time."""
        with self._freed:
            admitted = self._freed.wait_for(lambda: self._busy < most, timeout)
            self._busy += admitted
        try:
            yield admitted
        finally:
            with self._freed:
                self._busy -= admitted
                self._freed.notify_all()


_hosts: dict[str, _Host] = {}
_hosts_lock = threading.Lock()


def _host(name: str) -> _Host:
    with _hosts_lock:
        return _hosts.setdefault(name, _Host())


class _Again(Exception):
    """The attempt failed in a way that another may not."""

    def __init__(self, reason: str, *, pause_s: float = 0.0, response: httpx.Response | None = None) -> None:
        super().__init__(reason)
        self.pause_s = pause_s
        self.response = response


class PoliteTransport(httpx.BaseTransport):
    """Time-outs, bounded attempts with jitter, Retry-After, concurrency per host, verified TLS, proxies, size limits.

    The reply to the last attempt is handed on whatever its status. `again` tells of a reply with a good status that it
    only asks to come back later, or is damaged. `inner` replaces the network, for tests.

    Raises:
        OutageError: no reply within the attempts and the deadline, or a certificate that is not trusted.
        TooLargeError: the reply is above `max_response_mb`.
    """

    def __init__(
        self,
        network: Network,
        inner: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        again: Callable[[httpx.Response], bool] = lambda _: False,
    ) -> None:
        self._network = network
        self._again = again
        self._fixed = inner
        self._sleep = sleep
        self._direct: dict[tuple[str, str], httpx.BaseTransport] = {}
        self._lock = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()  # a body that is a stream could be sent only once
        request.headers["User-Agent"] = self._network.user_agent
        request.headers["Accept-Encoding"] = "gzip, deflate"  # what can be unpacked in small steps, within the limit
        deadline = time.monotonic() + self._network.deadline_s
        repeatable = request.method in _SAFE_METHODS or bool(request.extensions.get(REPEATABLE))
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Again),
            stop=tenacity.stop_after_attempt(self._network.attempts if repeatable else 1)
            | tenacity.stop_before_delay(self._network.deadline_s),
            wait=self._pause,
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return attempts(self._attempt, request, deadline)
        except _Again as error:
            if error.response is not None:
                return error.response
            raise OutageError(f"{shown(request.url)}: {error}") from error.__cause__

    def close(self) -> None:
        for transport in self._direct.values():
            transport.close()

    def _pause(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        backoff = min(self._network.backoff_s * 2.0 ** (state.attempt_number - 1), _LONGEST_PAUSE_S)
        jittered = backoff * random.uniform(0.5, 1.5)
        return max(jittered, error.pause_s if isinstance(error, _Again) else 0.0)

    def _attempt(self, request: httpx.Request, deadline: float) -> httpx.Response:
        host = _host(request.url.netloc.decode("ascii"))
        self._wait_for_quiet(host, request, deadline)
        with host.place(self._network.concurrency, max(deadline - time.monotonic(), 0)) as admitted:
            if not admitted:
                raise OutageError(f"{shown(request.url)}: the host was busy with other requests until the deadline")
            response = self._exchange(request, deadline)
        if response.status_code in _WORTH_ANOTHER or (response.is_success and self._again(response)):
            pause = _asked_pause(response)
            if pause:
                host.quiet_until = max(host.quiet_until, time.monotonic() + pause)
            raise _Again(f"status {response.status_code}", pause_s=pause, response=response)
        return response

    def _wait_for_quiet(self, host: _Host, request: httpx.Request, deadline: float) -> None:
        pause = host.quiet_until - time.monotonic()
        if pause <= 0:
            return
        if host.quiet_until > deadline:
            raise OutageError(f"{shown(request.url)}: the host asks to be left alone for {pause:.0f} s more")
        self._sleep(pause)

    def _exchange(self, request: httpx.Request, deadline: float) -> httpx.Response:
        left = max(deadline - time.monotonic(), 0.001)
        patience = min(self._network.timeout_s, left)
        request.extensions["timeout"] = httpx.Timeout(patience).as_dict()
        try:
            response = self._begun(request, left)
            try:
                return self._read(request, response, deadline)
            finally:
                response.close()
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise OutageError(f"{shown(request.url)}: {error}; mend `url`") from error
        except httpx.TransportError as error:
            cause = _certificate_problem(error)
            if cause:
                raise OutageError(
                    f"{shown(request.url)}: the certificate is not trusted ({cause}); name the issuer's in "
                    "network.ca_bundle"
                ) from error
            raise _Again(_in_words(error, patience)) from error

    def _begun(self, request: httpx.Request, left: float) -> httpx.Response:
        """A response with its head. A head that drips in for ever ends with its connections."""
        inner = self._inner(request.url)
        if self._fixed is not None:
            return inner.handle_request(request)
        alarm = threading.Timer(left, self._drop, [inner])
        alarm.daemon = True
        alarm.start()
        try:
            return inner.handle_request(request)
        finally:
            alarm.cancel()

    def _drop(self, inner: httpx.BaseTransport) -> None:
        with self._lock:
            self._direct = {place: known for place, known in self._direct.items() if known is not inner}
        inner.close()

    def _read(self, request: httpx.Request, response: httpx.Response, deadline: float) -> httpx.Response:
        limit = self._network.max_response_mb * 1e6
        told = response.headers.get("Content-Length", "")
        packing = response.headers.get("Content-Encoding", "identity").strip().lower()
        if packing not in ("identity", "gzip", "x-gzip", "deflate"):
            raise OutageError(f"{shown(request.url)}: the answer is packed as {packing}, which was not asked for")
        body, size = [], 0
        too_large = told.isdigit() and int(told) > limit and request.method != "HEAD"
        if not too_large:
            try:
                for piece in response.iter_bytes():
                    size += len(piece)
                    body.append(piece)
                    if size > limit:
                        too_large = True
                        break
                    if time.monotonic() > deadline:
                        raise OutageError(
                            f"{shown(request.url)}: still sending after network.deadline_s "
                            f"({self._network.deadline_s:g} s)"
                        )
            except httpx.DecodingError as error:
                raise _Again(f"its compression is damaged ({error})") from error
        if too_large:
            raise TooLargeError(
                f"{shown(request.url)}: the answer is above network.max_response_mb "
                f"({self._network.max_response_mb:g})",
                remedy="raise the limit",
            )
        # The body is decoded and whole now, which the headers must not contradict.
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        extensions = {name: value for name, value in response.extensions.items() if name != "network_stream"}
        return httpx.Response(
            response.status_code, headers=headers, content=b"".join(body), extensions=extensions, request=request
        )

    def _inner(self, url: httpx.URL) -> httpx.BaseTransport:
        if self._fixed is not None:
            return self._fixed
        proxy = self._proxy(url)
        # Reading all trusted certificates takes longer than many an answer: only where one is to be verified.
        place = (url.scheme if not proxy else "", proxy)
        with self._lock:
            if place not in self._direct:
                verify = place != ("http", "") and _trust(self._network)
                try:
                    self._direct[place] = httpx.HTTPTransport(
                        verify=verify, proxy=proxy or None, limits=httpx.Limits(max_connections=64)
                    )
                except (ImportError, ValueError) as error:
                    raise OutageError(f"the proxy {shown(httpx.URL(proxy))} cannot be used: {error}") from error
            return self._direct[place]

    def _proxy(self, url: httpx.URL) -> str:
        if _is_loopback(url.host):
            return ""
        if self._network.proxy:
            return self._network.proxy
        found = getproxies()
        proxy = found.get(url.scheme) or found.get("all") or ""
        if not proxy or proxy_bypass(url.host):
            return ""
        return proxy if "://" in proxy else f"http://{proxy}"


def shown(url: httpx.URL) -> str:
    """An address without what may be secret in it."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _asked_pause(response: httpx.Response) -> float:
    """Seconds of Retry-After. A date is measured against the server's own clock, which may be wrong."""
    asked = response.headers.get("Retry-After", "").strip()
    if not asked:
        return 0.0
    try:
        return max(float(asked), 0.0)
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(asked)
        now = parsedate_to_datetime(response.headers["Date"])
        return max((until - now).total_seconds(), 0.0)
    except (KeyError, TypeError, ValueError):
        return 0.0


def _in_words(error: httpx.TransportError, patience: float) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {patience:.3g} s"
    if isinstance(error, httpx.ConnectError):
        return f"cannot be reached ({error})"
    return f"the connection broke ({error or type(error).__name__})"


def _certificate_problem(error: BaseException | None) -> str:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return ""


def _trust(network: Network) -> ssl.SSLContext:
    """The system's certificates and certifi's, or the configured ones alone."""
    if network.ca_bundle is not None:
        try:
            return ssl.create_default_context(cafile=network.ca_bundle)
        except OSError as error:
            raise OutageError(f"network.ca_bundle: {network.ca_bundle} cannot be read ({error})") from error
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
