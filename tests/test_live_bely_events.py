"""Events of a BELY server over a real broker: they make a feed due, and nothing more depends on them."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from amqtt.broker import Broker
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from typer.testing import CliRunner

from aps_rag_pipeline import cli
from aps_rag_pipeline.settings import Settings, SettingsError
from aps_rag_pipeline.sources.belylive.events import Event, MalformedEvent, read_event
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import listening, state
from aps_rag_pipeline.sync.due import decide
from aps_rag_pipeline.sync.listening import Listener, feeds_with_a_broker, listen
from aps_rag_pipeline.sync.state import FeedState

ADDED = b'{"eventTimestamp":"2025-11-21T16:38:06.160+00:00","entityName":"Log","entityId":267}'
ALSO_ADDED = (
    b'{"eventTimestamp":"2025-11-21T16:38:06.157+00:00","parentLogDocumentInfo":{"name":"Shift","id":105},'
    b'"logInfo":{"id":267},"textDiff":"beam lost","entityName":"Log","entityId":267}'
)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class BrokerThread:
    """A broker on a free port of loopback, in a thread of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._broker = self._run(self._made())
        self._run(self._broker.start())

    def publish(self, *messages: tuple[str, bytes]) -> None:
        client = Client(CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        for topic, payload in messages:
            client.publish(topic, payload, qos=1).wait_for_publish(10)
        client.disconnect()
        client.loop_stop()

    def stop(self) -> None:
        self._run(self._broker.shutdown())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _made(self) -> Broker:
        return Broker(
            {
                "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{self.port}"}},
                "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
            }
        )

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)


class Told:
    """Lines that a listener tells, and waiting for one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._news:
            self.lines.append(line)
            self._news.notify_all()

    def wait(self, pattern: str, times: int = 1) -> None:
        def heard() -> bool:
            return sum(bool(re.search(pattern, line)) for line in self.lines) >= times

        with self._news:
            assert self._news.wait_for(heard, 20), f"{pattern} was not told: {self.lines}"


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    running = BrokerThread()
    yield running
    running.stop()


def facility(folder: Path, **mqtt: Any) -> Settings:
    feed = {"name": "log", "source": "bely", "form": "rest", "url": "http://127.0.0.1:9/bely"}
    if mqtt:
        feed["options"] = {"mqtt": mqtt}
    return Settings.build({"home": "home", "feeds": [feed]}, folder / "facility.yaml")


@pytest.fixture
def listening_to(tmp_path: Path) -> Iterator[Callable[..., tuple[Listener, Told, Home]]]:
    started: list[Listener] = []

    def start(port: int) -> tuple[Listener, Told, Home]:
        settings = facility(tmp_path, host="127.0.0.1", port=port)
        told = Told()
        ((feed, found),) = feeds_with_a_broker(settings)
        home = Home(settings.home)
        listener = Listener(home, feed, found, told, pauses_s=(0.05, 0.05))
        started.append(listener)
        listener.start()
        return listener, told, home

    yield start
    for listener in started:
        listener.stop()


def test_an_event_makes_its_feed_due_at_the_next_look(broker, listening_to, tmp_path):
    _, told, home = listening_to(broker.port)
    told.wait("listening to bely/#")
    read_at = datetime.now(UTC)
    state.write_feed(home, FeedState("bely", "log", attempted_at=read_at, succeeded_at=read_at))
    settings = facility(tmp_path)
    assert not decide(settings, "bely", read_at + timedelta(hours=1)).launch
    broker.publish(("bely/logEntry/Add", ALSO_ADDED))
    told.wait("Log 267: add in document 105")
    told_at = state.read_nudge(home, "log")
    assert told_at >= read_at
    due = decide(settings, "bely", read_at + timedelta(hours=1))
    assert (due.launch, due.reason) == (True, "log was told of a change")
    later = datetime.now(UTC)
    state.write_feed(home, FeedState("bely", "log", attempted_at=later, succeeded_at=later))
    assert not decide(settings, "bely", later + timedelta(hours=1)).launch, "it has been read since"
    state.forget_feed(home, "log")
    assert state.read_nudge(home, "log") is None


def test_doubled_malformed_and_idle_messages_are_counted(broker, listening_to):
    listener, told, home = listening_to(broker.port)
    told.wait("listening")
    connected_at = state.read_nudge(home, "log")
    broker.publish(
        ("bely/search", b'{"searchText":"*"}'),
        ("bely/logReaction/Add", b'{"entityName":"LogReaction","entityId":9}'),
        ("bely/add", b'{"entityName":"LogReaction","entityId":9}'),
        ("bely/notification/test", b"hello"),
        ("bely/update", b"not json"),
        ("bely/update", b"[" * 100_000),
        ("bely/update", b"\xff\xfe"),
        ("bely/update", b"[1, 2]"),
        ("bely/logEntry/Update", b"{}"),
        ("bely/add", b'{"entityName":"Log","entityId":1}'),
    )
    told.wait("Log 1: add")
    assert listener.counts == {"connections": 1, "ignored": 4, "malformed": 5, "events": 1}
    assert state.read_nudge(home, "log") > connected_at
    broker.publish(("bely/add", ADDED), ("bely/logEntry/Add", ALSO_ADDED), ("bely/delete", ADDED))
    told.wait("Log 267: delete")
    assert listener.counts["events"] == 4
    assert listener.counts["doubled"] == 1
    assert len([line for line in told.lines if "Log 267" in line]) == 2


def killed_broker(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """A broker in a process, which can die as brokers do."""
    config = folder / "broker.yaml"
    config.write_text(
        f"listeners: {{default: {{type: tcp, bind: '127.0.0.1:{port}'}}}}\n"
        "plugins: {amqtt.plugins.authentication.AnonymousAuthPlugin: {allow_anonymous: true}}\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", "from amqtt.scripts.broker_script import main; main()", "-c", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_broker_that_goes_away_is_found_again(listening_to, tmp_path):
    port = free_port()
    listener, told, home = listening_to(port)
    told.wait("cannot be reached")
    first = killed_broker(tmp_path, port)
    told.wait("listening")
    away = datetime.now(UTC)
    first.kill()
    first.wait()
    told.wait("connection was lost")
    told.wait("cannot be reached", times=2)
    second = killed_broker(tmp_path, port)
    try:
        told.wait("listening", times=2)
    finally:
        second.kill()
        second.wait()
    assert state.read_nudge(home, "log") > away, "what was said meanwhile was not heard"
    assert listener.counts["connections"] == 2


def test_a_broker_that_is_not_there_is_said_once(broker, listening_to):
    with socket.socket() as taken:  # bound and not listening: nobody is there
        taken.bind(("127.0.0.1", 0))
        listener, told, home = listening_to(taken.getsockname()[1])
        told.wait("cannot be reached")
        assert state.read_nudge(home, "log") is None
        assert listener.counts == {}
        listener.stop()
    assert len(told.lines) == 1


def test_the_capture_of_a_real_server_is_understood(shared):
    lines = (shared / "bely/mqtt/sample-mosquitto_sub_output").read_text().split("\n")
    messages = [line.split(" ", 1) for line in lines if line.startswith("bely/")]
    events = [(topic, read_event(topic, body.encode())) for topic, body in messages]
    told = {topic: event for topic, event in events if event is not None}
    assert told["bely/logEntryReply/Update"].parent == "267"  # parentlogInfo
    assert told["bely/logEntryReply/Delete"].parent == "212"  # parentLogInfo
    assert told["bely/logEntry/Add"] == Event("Log", "267", "add", "2025-11-21T16:38:06.157+00:00", "105")
    doubled = sum(e.same_change(before) for (_, before), (_, e) in itertools.pairwise(events) if e)
    particular = sum(bool(re.search("logEntry(Reply)?/", topic)) for topic, event in events if event)
    assert doubled == particular > 5
    with pytest.raises(MalformedEvent):
        read_event("bely/add", b"{}")


def test_what_cannot_be_configured_is_said(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match=r"options\.mqtt\.host"):
        feeds_with_a_broker(facility(tmp_path, port=1883))
    with pytest.raises(SettingsError, match="names a broker"):
        listen(facility(tmp_path), print, threading.Event())
    told = Told()
    monkeypatch.delenv("MQTT_PASSWORD", raising=False)
    with pytest.raises(SettingsError, match="MQTT_PASSWORD is not set"):
        listen(facility(tmp_path, host="h", user="reader", password={"env": "MQTT_PASSWORD"}), told, threading.Event())
    with pytest.raises(SettingsError, match=r"options\.mqtt\.ca_file"):
        listen(facility(tmp_path, host="h", tls=True, ca_file=str(tmp_path / "none.pem")), told, threading.Event())
    assert told.lines == []
    ((_, broker),) = feeds_with_a_broker(facility(tmp_path, host="h", tls=True))
    assert broker.broker == ("h", 8883)


def test_the_command_listens_until_it_is_stopped(broker, tmp_path, monkeypatch):
    (tmp_path / "facility.yaml").write_text(
        "home: home\nfeeds:\n- name: log\n  source: bely\n  form: rest\n  url: http://127.0.0.1:9/bely\n"
        f"  options:\n    mqtt: {{host: 127.0.0.1, port: {broker.port}}}\n"
    )
    waited = threading.Event()
    until: list[threading.Event] = []
    original = listening.listen

    def stopped_by_the_first_event(settings: Settings, tell: Any, stop: threading.Event) -> Any:
        def heard(line: str) -> None:
            tell(line)
            if "listening" in line:
                waited.set()
            if "Log 267" in line:
                stop.set()

        until.append(stop)
        return original(settings, heard, stop)

    monkeypatch.setattr(listening, "listen", stopped_by_the_first_event)
    publisher = threading.Thread(target=lambda: waited.wait(20) and broker.publish(("bely/add", ADDED)))
    publisher.start()
    result = CliRunner().invoke(cli.app, ["listen", "--config", str(tmp_path / "facility.yaml")])
    publisher.join()
    assert result.exit_code == 0, result.output
    assert result.output.split("\n")[-2] == "1 connections, 1 events"
