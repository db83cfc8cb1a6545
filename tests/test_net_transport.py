"""The polite transport against a local server that misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
import requests
import trustme
from werkzeug import Request, Response

from aps_rag_pipeline.settings import Network
from aps_rag_pipeline.sources.net import transport as transport_module
from aps_rag_pipeline.sources.net.bridges import AsyncPoliteTransport, polite_session
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError, TooLargeError
from aps_rag_pipeline.sources.net.http import Http
from aps_rag_pipeline.sources.net.transport import PoliteTransport
from tests.serving import serving

QUICK = Network(timeout_s=0.3, deadline_s=2, attempts=3, backoff_s=0.001)


@Request.application
def app(request: Request) -> Response:
    match request.path:
        case "/bomb":
            return Response(gzip.compress(b"0" * 3_000_000), headers={"Content-Encoding": "gzip"})
        case "/zipped":
            return Response(gzip.compress(b'{"zipped": true}'), headers={"Content-Encoding": "gzip"})
        case "/absent":
            return Response("no such log", 404)
        case "/private":
            return Response("log in first", 401)
        case "/moved":
            return Response("", 302, headers={"Location": "/json"})
        case "/cookie":
            return Response("{}", headers={"Set-Cookie": "session=abc; Path=/"})
    return Response(json.dumps({"path": request.path, "method": request.method}), mimetype="application/json")


@pytest.fixture
def server():
    with serving(app) as running:
        yield running


def ask(server, path="/json", network=QUICK, **more):
    with Http(network) as http:
        return http.json(server.url + path, **more)


def test_a_good_status_may_ask_to_come_back(server):
    server.fail("body", body=b'{"error": {"code": "maxlag"}}', times=2)
    with Http(QUICK, transport=PoliteTransport(QUICK, again=lambda reply: b"maxlag" in reply.content)) as http:
        assert http.json(server.url + "/json")["path"] == "/json"
        server.fail("body", body=b'{"error": {"code": "maxlag"}}', times=-1)
        assert http.json(server.url + "/json") == {"error": {"code": "maxlag"}}
    assert len(server.requests) == 3 + QUICK.attempts


@pytest.mark.parametrize("kind", ["status", "hang", "reset", "cut", "torn"])
def test_one_fault_is_survived(server, kind):
    server.fail(kind)
    assert ask(server) == {"path": "/json", "method": "GET"}
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "status"}, "status 500"),
        ({"kind": "status", "status": 503}, "status 503"),
        ({"kind": "hang"}, "no answer within 0.3 s"),
        ({"kind": "reset"}, "connection broke"),
        ({"kind": "cut"}, "connection broke"),
        ({"kind": "torn"}, "cut off"),
        ({"kind": "html"}, "a web page (Sign in) came where JSON was due"),
        ({"kind": "empty"}, "cut off"),
        ({"kind": "slow"}, "still sending after network.deadline_s"),
    ],
)
def test_a_lasting_fault_is_an_outage_that_says_why(server, fault, said):
    server.fail(times=-1, **fault)
    with pytest.raises(OutageError, match=r"127\.0\.0\.1") as caught:
        ask(server, network=QUICK.model_copy(update={"deadline_s": 1}))
    assert said in str(caught.value)
    assert len(server.requests) <= 2 * QUICK.attempts


def test_nobody_there_is_an_outage():
    with serving(app) as gone:
        pass
    with pytest.raises(OutageError, match="cannot be reached"):
        ask(gone)


def test_status_decides_what_is_said(server):
    with pytest.raises(GoneError, match="no such log"):
        ask(server, "/absent")
    with pytest.raises(RefusedError, match="credentials"):
        ask(server, "/private")
    assert len(server.requests) == 2, "neither is worth another attempt"


def test_retry_after_is_waited_for_by_everybody(server):
    pauses = []
    server.fail("status", status=429, headers={"Retry-After": "0.2"})
    transport = PoliteTransport(QUICK, sleep=lambda s: (pauses.append(s), time.sleep(s)))
    with Http(QUICK, transport=transport) as http:
        assert http.json(server.url + "/json")
    assert max(pauses) >= 0.2


def test_a_date_in_retry_after_is_read_by_the_clock_of_the_server():
    skewed = datetime(2001, 1, 1, tzinfo=UTC)
    headers = {"Date": format_datetime(skewed), "Retry-After": format_datetime(skewed + timedelta(seconds=1))}
    replies = iter([httpx.Response(503, headers=headers), httpx.Response(200, json=[])])
    pauses: list[float] = []
    transport = PoliteTransport(QUICK, httpx.MockTransport(lambda _: next(replies)), pauses.append)
    with Http(QUICK, transport=transport) as http:
        assert http.json("http://logbook.example/") == []
    assert max(pauses) == pytest.approx(1, abs=0.1)


def test_a_pause_beyond_the_deadline_is_an_outage_at_once(server, monkeypatch):
    monkeypatch.setattr(transport_module, "_hosts", {})
    server.fail("status", status=429, headers={"Retry-After": "3600"}, times=-1)
    started = time.monotonic()
    with pytest.raises(OutageError, match=r"429|left alone"):
        ask(server)
    assert time.monotonic() - started < 2
    with pytest.raises(OutageError, match="left alone"):
        ask(server)
    assert len(server.requests) == 1, "the second request was not even sent"


def test_a_post_is_sent_again_only_when_it_is_said_to_read(server):
    server.fail("status", times=2)
    with pytest.raises(OutageError):
        ask(server, method="POST", data={"pv": "x"})
    assert ask(server, method="POST", data={"pv": "x"}, repeatable=True)["method"] == "POST"


def test_sizes_are_limited_also_when_packed(server):
    small = QUICK.model_copy(update={"max_response_mb": 1})
    with pytest.raises(TooLargeError, match="max_response_mb"):
        ask(server, "/bomb", network=small)
    assert ask(server, "/zipped") == {"zipped": True}


def test_a_host_gets_few_requests_at_a_time(server):
    arrived = threading.Barrier(3, timeout=0.5)

    @Request.application
    def slow(request: Request) -> Response:
        try:
            arrived.wait()
        except threading.BrokenBarrierError:
            arrived.reset()
        return Response("{}")

    server.app = slow
    network = QUICK.model_copy(update={"concurrency": 2, "timeout_s": 5, "deadline_s": 20})
    feeds = [Http(network) for _ in range(3)]
    threads = [threading.Thread(target=http.json, args=(server.url,)) for http in feeds for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.most_at_once == 2


def test_feeds_with_limits_of_their_own_share_the_host(server, monkeypatch):
    monkeypatch.setattr(transport_module, "_hosts", {})
    server.fail("status", status=429, headers={"Retry-After": "3600"}, times=1)
    narrow, wide = (QUICK.model_copy(update={"concurrency": many}) for many in (1, 8))
    with pytest.raises(OutageError, match=r"429|left alone"):
        ask(server, network=narrow)
    with pytest.raises(OutageError, match="left alone"):
        ask(server, network=wide)
    host = transport_module._host("logbook.example:443")
    with host.place(8, 0) as first, host.place(1, 0) as second, host.place(8, 0) as third:
        assert (first, second, third) == (True, False, True)
    with host.place(1, 0) as again:
        assert again


def test_certificates_are_verified(tmp_path):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    with serving(app, context) as server:
        with pytest.raises(OutageError, match=r"certificate is not trusted .* network\.ca_bundle"):
            ask(server)
        assert ask(server, network=QUICK.model_copy(update={"ca_bundle": bundle}))


def test_certificates_are_read_only_where_one_is_verified(server, monkeypatch):
    def refuse(network):
        raise OutageError("certificates were read")

    monkeypatch.setattr(transport_module, "_trust", refuse)
    assert ask(server)["path"] == "/json"
    with Http(QUICK) as http, pytest.raises(OutageError, match="certificates were read"):
        http.json(server.url.replace("http:", "https:"))


def test_a_proxy_is_used_for_everything_but_loopback(server, monkeypatch):
    network = QUICK.model_copy(update={"proxy": server.url})
    assert ask(server, network=network)["path"] == "/json"
    with Http(network) as http:
        assert http.json("http://logbook.example/through")
    assert server.requests[-1].startswith("GET ")
    monkeypatch.setenv("http_proxy", server.url)
    with Http(QUICK) as http:
        assert http.json("http://logbook.example/again")
    monkeypatch.setenv("no_proxy", "logbook.example")
    with Http(QUICK) as http, pytest.raises(OutageError, match="cannot be reached"):
        http.json("http://logbook.example/again")


def test_redirects_are_followed_and_the_agent_is_named(server):
    assert ask(server, "/moved")["path"] == "/json"
    assert server.headers[-1]["USER_AGENT"] == QUICK.user_agent


def test_requests_goes_through_the_same_transport(server):
    server.fail("status")
    transport = PoliteTransport(QUICK)
    session = polite_session(transport)
    assert session.get(server.url + "/moved").json()["path"] == "/json"
    assert session.post(server.url + "/json", data={"a": "b"}).json()["method"] == "POST"
    session.get(server.url + "/cookie")
    session.get(server.url + "/json")
    assert server.headers[-1]["COOKIE"] == "session=abc"
    assert server.headers[-1]["USER_AGENT"] == QUICK.user_agent
    reply = session.get(server.url + "/absent")
    assert reply.status_code == 404
    with pytest.raises(requests.HTTPError):
        reply.raise_for_status()


def test_asynchronous_clients_go_through_the_same_transport(server):
    server.fail("reset")

    async def get() -> httpx.Response:
        async with httpx.AsyncClient(transport=AsyncPoliteTransport(PoliteTransport(QUICK))) as client:
            return await client.get(server.url + "/zipped")

    assert asyncio.run(get()).json() == {"zipped": True}
    assert len(server.requests) == 2


def test_credentials_go_to_the_first_host_alone(server):
    with serving(app) as other, Http(QUICK, headers={"Authorization": "Bearer secret"}) as http:
        http.json(server.url + "/json")
        assert server.headers[-1]["AUTHORIZATION"] == "Bearer secret"
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        http.json(elsewhere + "/json")
        assert "AUTHORIZATION" not in other.headers[-1]


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_is_never_redirected_to_another_host(server, status):
    with serving(app) as other:
        elsewhere = {"Location": other.url.replace("127.0.0.1", "localhost") + "/json"}
        server.fail("status", status=status, headers=elsewhere, times=2)
        with Http(QUICK) as http, pytest.raises(OutageError, match="sent to localhost"):
            http.request("POST", server.url + "/login", data={"password": "secret"})
        with pytest.raises(OutageError, match="sent to localhost"):
            polite_session(PoliteTransport(QUICK)).post(server.url + "/login", data={"password": "secret"})
        assert other.requests == []


def test_a_page_in_place_of_a_file_is_an_outage(server):
    server.fail("html", times=-1)
    with Http(QUICK) as http:
        with pytest.raises(OutageError, match=r"in place of scope\.png"):
            http.file(server.url + "/scope.png", "scope.png")
        assert http.file(server.url + "/page.html", "page.html").startswith(b"<!DOCTYPE")


def test_halves_of_characters_are_replaced(server):
    server.fail("body", body=b'{"title": "tripped \\ud83d", "whole": "\\ud83d\\ude00"}')
    assert ask(server) == {"title": "tripped \ufffd", "whole": "\U0001f600"}


def test_an_unasked_packing_is_refused(server):
    headers = {"Content-Encoding": "zstd"}
    replies = iter([httpx.Response(200, headers=headers, stream=httpx.ByteStream(b"x"))])
    transport = PoliteTransport(QUICK, httpx.MockTransport(lambda _: next(replies)))
    with Http(QUICK, transport=transport) as http, pytest.raises(OutageError, match="packed as zstd"):
        http.json("http://logbook.example/")


def test_a_head_that_drips_in_ends_with_the_deadline(server):
    server.fail("drip", times=-1)
    started = time.monotonic()
    with pytest.raises(OutageError):
        ask(server, network=QUICK.model_copy(update={"deadline_s": 0.6, "attempts": 1}))
    assert time.monotonic() - started < 20
    assert ask_again(server) == {"path": "/json", "method": "GET"}


def ask_again(server):
    server.faults.clear()
    return ask(server)


def test_a_proxy_without_a_scheme_is_an_http_proxy(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url.removeprefix("http://"))
    with Http(QUICK) as http:
        assert http.json("http://logbook.example/through")
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    with Http(QUICK) as http, pytest.raises(OutageError):
        http.json("http://logbook.example/through")
