"""`aps-rag listen`: hear of changes of the log book as they happen."""

from __future__ import annotations

import signal
import threading

import typer

from aps_rag_pipeline.cli.common import ConfigOption, load_settings


def listen(config_file: ConfigOption = None) -> None:
    """Listen to the brokers of log books until stopped; the sensors then read a changed feed within the hour."""
    from aps_rag_pipeline.sync.listening import listen as listen_to_brokers

    until = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: until.set())
    counts = listen_to_brokers(load_settings(config_file), typer.echo, until)
    for each in counts:
        typer.echo(", ".join(f"{count} {name}" for name, count in sorted(each.items())) or "nothing was heard")
