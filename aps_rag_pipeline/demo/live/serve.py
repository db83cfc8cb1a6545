"""The demo facility's services on loopback: five of its sources as the protocols that facilities run, from the same
files. What `aps-rag demo advance` does to the files is what the services say next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

SETTINGS = "facility-live.yaml"
HOST = "127.0.0.1"
PORT = 8700
_TOKEN = "live-token"
#: Any token will do: the demo's Graph only wants to be asked with one.
_TOKEN_TEXT = "demo"


class PortTakenError(Exception):
    """Something else listens on a port that is wanted."""


@dataclass(frozen=True)
class Service:
    """A source of the demo as a live service: `form`, `path` and `options` are what `facility.yaml` says of it."""

    feed: str
    module: str
    form: str
    path: str
    what: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def application(self, folder: Path) -> Callable[..., Any]:
        from importlib import import_module

        module = import_module(f"aps_rag_pipeline.demo.live.{self.module}")
        application: Callable[..., Any] = module.Server.of_folder(folder)
        return application


SERVICES = (
    Service("bely", "bely", "rest", "", "BELY's REST interface"),
    Service(
        "documents", "idcplg", "webcenter", "/docs", "WebCenter Content (idcplg)", {"access_field": "xAccessLabels"}
    ),
    Service("teams", "msgraph", "graph", "", "Microsoft Graph"),
    Service("wiki", "mediawiki", "mediawiki", "/w/api.php", "MediaWiki's API"),
    Service("epics", "archiver", "archiver", "", "an Archiver Appliance", {"metadata": True}),
)


@contextmanager
def serving(out: Path, port: int = PORT) -> Iterator[dict[str, str]]:
    """Run the services of the demo in `out` on loopback, on `port` and those behind it (0: any free ones), and write
    `facility-live.yaml` beside its facility.yaml; gives the address of each by feed.

    Raises:
        FileNotFoundError: there is no demo in `out`.
        PortTakenError: a port is in use.
    """
    facility = yaml.safe_load((out / "facility.yaml").read_text(encoding="utf-8"))
    locations = {feed["name"]: out / feed["location"] for feed in facility["feeds"]}
    with ExitStack() as stack:
        urls = {}
        for offset, service in enumerate(SERVICES):
            application = service.application(locations[service.feed])
            server = stack.enter_context(_running(application, port + offset if port else 0))
            urls[service.feed] = f"http://{HOST}:{server.server_port}{service.path}"
        (out / _TOKEN).write_text(_TOKEN_TEXT, encoding="utf-8")
        (out / SETTINGS).write_text(_settings(facility, urls), encoding="utf-8")
        yield urls


@contextmanager
def _running(application: Callable[..., Any], port: int) -> Iterator[BaseWSGIServer]:
    try:
        server = make_server(HOST, port, application, threaded=True, request_handler=_Silent)
    except (OSError, SystemExit) as error:  # werkzeug prints and exits where the port is taken
        raise PortTakenError(f"port {port} of {HOST} is in use; choose another --port") from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        return


def _settings(facility: dict[str, Any], urls: dict[str, str]) -> str:
    services = {service.feed: service for service in SERVICES}
    feeds = []
    for feed in facility["feeds"]:
        service = services.get(feed["name"])
        if service is not None:
            kept = {k: v for k, v in feed.items() if k not in ("location", "sidecar", "columns")}
            feed = {**kept, "form": service.form, "url": urls[service.feed]}
            if service.options:
                feed["options"] = dict(service.options)
            if service.form == "graph":
                feed["credentials"] = {"token": {"file": _TOKEN}}
        feeds.append(feed)
    values = {**facility, "home": "home-live", "feeds": feeds}
    head = (
        "# The demo facility, asked through its services; written by `aps-rag demo serve`, which must run meanwhile.\n"
    )
    return head + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
