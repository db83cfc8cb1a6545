"""An IOC on loopback: run as a program it serves records, imported it starts and stops that program."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_READY = b"records are served"


@dataclass(frozen=True)
class Ioc:
    """Where a running IOC is searched for: an address for Channel Access, a port for PVAccess."""

    ca: str
    pva_port: int


@contextlib.contextmanager
def ioc(*without: str) -> Iterator[Ioc]:
    """An IOC on free ports that serves all records but some."""
    ca, pva, search = _free_port(), _free_port(), _free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("EPICS_")},
        **_only_loopback("CA", ca),
        **_only_loopback("PVA", pva),
        "EPICS_CAS_SERVER_PORT": str(ca),
        "EPICS_PVAS_SERVER_PORT": str(pva),
        "EPICS_PVAS_BROADCAST_PORT": str(search),
        "EPICS_PVA_BROADCAST_PORT": str(search),
    }
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), *without],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if not any(_READY in line for line in process.stdout):
            raise RuntimeError("the IOC does not start")
        yield Ioc(f"127.0.0.1:{ca}", search)
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _only_loopback(protocol: str, port: int) -> dict[str, str]:
    names = {
        f"EPICS_{protocol}_ADDR_LIST": "127.0.0.1",
        f"EPICS_{protocol}_AUTO_ADDR_LIST": "NO",
        f"EPICS_{protocol}S_INTF_ADDR_LIST": "127.0.0.1",
        f"EPICS_{protocol}S_BEACON_ADDR_LIST": "127.0.0.1",
        f"EPICS_{protocol}S_AUTO_BEACON_ADDR_LIST": "NO",
    }
    return names | ({"EPICS_CA_SERVER_PORT": str(port)} if protocol == "CA" else {})


def _free_port() -> int:
    """A port that is free for TCP and UDP."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        tcp.bind(("127.0.0.1", 0))
        port: int = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        return port


def _serve(without: frozenset[str]) -> None:
    from softioc import asyncio_dispatcher, builder, softioc

    builder.SetDeviceName("T")
    limits = {"HOPR": 250, "LOPR": 0, "HIHI": 220, "HIGH": 210, "HHSV": "MAJOR", "HSV": "MINOR", "PREC": 2}
    records = {
        "CUR": lambda: builder.aOut("CUR", initial_value=101.25, EGU="mA", DESC='Stored "beam"', **limits),
        "MODE": lambda: builder.mbbOut("MODE", "Off", "Top-up", "Study", initial_value=1, DESC="Mode of the ring"),
        "SHUT": lambda: builder.boolOut("SHUT", "Closed", "Open", initial_value=1, DESC="Shutter"),
        "TRACE": lambda: builder.WaveformOut("TRACE", initial_value=[1.0, 2.5, 4.0], length=8, DESC="Trace", EGU="V"),
        "SAID": lambda: builder.stringOut("SAID", initial_value="all is well", DESC="Message"),
        "TURN": lambda: builder.longOut("TURN", initial_value=7, DESC="Turns"),
        "LONG": lambda: builder.longStringOut("LONG", initial_value="x" * 60, DESC="Long message"),
    }
    for name, make in records.items():
        if name not in without:
            make()
    builder.LoadDatabase()
    softioc.iocInit(asyncio_dispatcher.AsyncioDispatcher())
    print(_READY.decode(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(frozenset(sys.argv[1:]))
    os._exit(0)  # threads of the IOC would hold the process
