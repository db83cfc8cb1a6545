"""Listening to the brokers of log books, so that a change is read within the hour and not within the day.

An event only notes that its feed was told of a change; what has changed is found by the sync, so that an event that
is lost, doubled or malformed can do no harm. Every connection counts as an event, since it may follow on lost ones.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline import clock
from aps_rag_pipeline.settings import Feed, Settings, SettingsError
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.sources.belylive.events import Event, MalformedEvent, read_event
from aps_rag_pipeline.sources.belylive.options import BelyOptions, Mqtt
from aps_rag_pipeline.sources.options import read_options
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import state

if TYPE_CHECKING:
    from paho.mqtt.client import Client

log = logging.getLogger(__name__)

#: Pauses between attempts to connect: the first, and the longest.
_PAUSES_S = (1, 120)
_KEEPALIVE_S = 60


def feeds_with_a_broker(settings: Settings) -> list[tuple[Feed, Mqtt]]:
    """The log books that name a broker.

    Raises:
        SettingsError: their options cannot be used.
    """
    found = []
    for feed in settings.feeds_of("bely"):
        if feed.form != "rest":
            continue
        try:
            broker = read_options(feed, BelyOptions).mqtt
        except FeedError as error:
            raise SettingsError(str(error)) from error
        if broker is not None:
            found.append((feed, broker))
    return found


class Listener:
    """The connection of one feed to its broker; it comes back by itself when the broker goes away.

    `counts`: connections, events, doubled (a change told twice), ignored (no change of a text), malformed, refused.
    `tell` gets a line for people whenever the connection changes and for every change.
    """

    def __init__(
        self,
        home: Home,
        feed: Feed,
        broker: Mqtt,
        tell: Callable[[str], None] = log.info,
        pauses_s: tuple[int, int] = _PAUSES_S,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._home, self._feed, self._broker, self._tell = home, feed, broker, tell
        self._last: Event | None = None
        self._unreachable = False
        self._client = self._made(pauses_s)

    def start(self) -> None:
        """Connect in a thread of its own; a broker that is away is tried again until `stop`."""
        host, port = self._broker.broker
        self._client.connect_async(host, port, keepalive=_KEEPALIVE_S)
        self._client.loop_start()

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _made(self, pauses_s: tuple[int, int]) -> Client:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        client = Client(CallbackAPIVersion.VERSION2)
        client.reconnect_delay_set(*pauses_s)
        if self._broker.tls:
            ca_file = self._broker.ca_file
            try:
                client.tls_set(ca_certs=str(ca_file) if ca_file else None)
            except OSError as error:
                raise SettingsError(f"feed {self._feed.name}: options.mqtt.ca_file: {ca_file}: {error}") from error
        if self._broker.user:
            password = self._broker.password.read().get_secret_value() if self._broker.password else None
            client.username_pw_set(self._broker.user, password)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        return client

    def _on_connect(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.counts["refused"] += 1
            self._say(f"the broker refuses the connection: {reason}; check options.mqtt")
            return
        self._unreachable = False
        client.subscribe(self._broker.topic, qos=1)

    def _on_subscribe(self, client: Client, userdata: Any, mid: int, reasons: Any, properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            self.counts["refused"] += 1
            self._say(f"the broker does not let {self._broker.topic} be heard; check options.mqtt")
            return
        self.counts["connections"] += 1
        self._nudge()
        self._say(f"listening to {self._broker.topic}")

    def _on_connect_fail(self, client: Client, userdata: Any) -> None:
        if not self._unreachable:
            self._say("the broker cannot be reached; it is tried again, and the feed is read every day meanwhile")
        self._unreachable = True

    def _on_disconnect(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._say(f"the connection was lost ({reason})")

    def _on_message(self, client: Client, userdata: Any, message: Any) -> None:
        try:
            event = read_event(message.topic, message.payload)
        except (MalformedEvent, UnicodeDecodeError) as error:  # the topic is decoded when it is asked for
            self.counts["malformed"] += 1
            log.debug("%s: %s", self._feed.name, error)
            return
        if event is None:
            self.counts["ignored"] += 1
            return
        self.counts["events"] += 1
        self._nudge()
        if event.same_change(self._last):
            self.counts["doubled"] += 1
        else:
            where = f" in document {event.document}" if event.document else ""
            answer = f", a reply to {event.parent}" if event.parent else ""
            self._say(f"{event.entity} {event.id}: {event.action}{where}{answer}")
        self._last = event

    def _nudge(self) -> None:
        try:
            state.write_nudge(self._home, self._feed.name, clock.now())
        except OSError as error:  # it would end the thread, and with it the listening
            self._say(f"the change cannot be noted ({error}); the daily look finds it")

    def _say(self, text: str) -> None:
        host, port = self._broker.broker
        self._tell(f"{self._feed.name} ({host}:{port}): {text}")


def listen(settings: Settings, tell: Callable[[str], None], until: threading.Event) -> list[Counter[str]]:
    """Listen to all brokers until told to stop; returns what each listener counted.

    Raises:
        SettingsError: no feed names a broker, or a secret is missing.
    """
    brokers = feeds_with_a_broker(settings)
    if not brokers:
        raise SettingsError("no feed of form `rest` names a broker in options.mqtt")
    listeners = [Listener(Home(settings.home), feed, broker, tell) for feed, broker in brokers]
    for listener in listeners:
        listener.start()
    with suppress(KeyboardInterrupt):
        until.wait()
    for listener in listeners:
        listener.stop()
    return [listener.counts for listener in listeners]
