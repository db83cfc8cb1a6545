"""Git checkouts: Python and Tcl scripts, and screens. Commit times are fixed, so that equal checkouts are equal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from aps_rag_pipeline.demo.facility import Device, Facility, at
from aps_rag_pipeline.demo.phrases import Bank
from aps_rag_pipeline.demo.routine import Routine
from aps_rag_pipeline.demo.writers.common import write_text

if TYPE_CHECKING:
    from dulwich.repo import Repo

FOLDER = "code"
TOOLS, SCREENS = "ops-tools", "displays"
_FIRST_COMMIT = 30_000
_AUTHOR = b"Operations Software <ops-software@lakeside.example>"
#: Files of one commit; a few commits give the files a history.
_PER_COMMIT = 200


def write(feeds: Path, files: Iterable[tuple[str, str]]) -> int:
    """Write and commit `files`, which are (path from the checkouts' folder, text). Returns how many there are."""
    by_repository: dict[str, list[str]] = {}
    count = 0
    for path, text in files:
        repository, _, inside = path.partition("/")
        write_text(feeds / FOLDER / path, text)
        by_repository.setdefault(repository, []).append(inside)
        count += 1
    for repository, paths in by_repository.items():
        _create(feeds / FOLDER / repository, paths)
    return count


def _create(root: Path, paths: list[str]) -> None:
    from dulwich.repo import Repo

    with closing(Repo.init(str(root), default_branch=b"main")) as repo:
        for start in range(0, len(paths), _PER_COMMIT):
            message = "First files" if start == 0 else f"More files ({start})"
            _commit(repo, paths[start : start + _PER_COMMIT], message, _FIRST_COMMIT + start * 60)


def commit(root: Path, paths: list[str], message: str, minute: int) -> None:
    """Commit what `paths` now hold; those that are gone are removed."""
    from dulwich.repo import Repo

    with closing(Repo(str(root))) as repo:
        _commit(repo, paths, message, minute)


def _commit(repo: Repo, paths: list[str], message: str, minute: int) -> None:
    from dulwich.config import ConfigFile, StackedConfig

    # A person's own git settings (hooks, signing, line ends) must not change the demo.
    config = StackedConfig([ConfigFile()])
    tree = repo.get_worktree()
    tree.stage(paths, config=config)
    moment = at(minute)
    zone = round((moment.utcoffset() or timedelta()).total_seconds())
    tree.commit(
        message.encode(), _AUTHOR, _AUTHOR, moment.timestamp(), zone, moment.timestamp(), zone,
        no_verify=True, sign=False, config=config,
    )  # fmt: skip
    _forget_file_times(repo)


def _forget_file_times(repo: Repo) -> None:
    """Zero the file times of the index: git then compares contents, and equal checkouts have equal indexes."""
    from dulwich.index import IndexEntry

    index = repo.open_index()
    for path, entry in list(index.items()):
        assert isinstance(entry, IndexEntry)
        index[path] = IndexEntry(0, 0, 0, 0, entry.mode, 0, 0, entry.size, entry.sha)
    index.write()


def files(facility: Facility, bank: Bank, routine: Routine, count: int) -> Iterator[tuple[str, str]]:
    """`count` files that fill the checkouts, whatever is planted besides."""
    makers: tuple[Callable[[random.Random, Bank, Device, int], tuple[str, str]], ...] = (_python, _tcl, _screen)
    yield f"{TOOLS}/README.md", "# ops-tools\n\nScripts of the control room. Run them from the operations account.\n"
    yield f"{SCREENS}/README.md", "# displays\n\nScreens of the control room, one folder per system.\n"
    for number in range(count - 2):
        rng = facility.rng("code", number, bank.side)
        yield makers[number % len(makers)](rng, bank, rng.choice(routine.devices), number)


def _doc(rng: random.Random, bank: Bank, device: Device, index: int) -> str:
    signal = rng.choice(device.kind.signals)
    phrase = bank.phrases("documents", "code_doc")[index]
    return bank.fill(rng, phrase, {"signal": signal.words, "dev": device.name})


def _stem(device: Device, number: int) -> str:
    return f"{device.kind.key}_{device.name.lower().replace(':', '_')}_{number:04d}"


def _python(rng: random.Random, bank: Bank, device: Device, number: int) -> tuple[str, str]:
    signal = rng.choice(device.kind.measured)
    text = f'''"""{_doc(rng, bank, device, 0)}"""

from lakeside.channels import get, put

LOW, HIGH = {signal.low:g}, {signal.high:g}  # {signal.unit}


def check():
    """{_doc(rng, bank, device, 0)}"""
    value = get("{device.pv(signal.suffix)}")
    return LOW <= value <= HIGH, value


def mean(samples):
    """{_doc(rng, bank, device, 1)}"""
    return sum(samples) / len(samples)


def ramp(target, step={rng.uniform(0.1, 2):.2f}):
    """{_doc(rng, bank, device, 2)}"""
    value = get("{device.pv(device.kind.signals[0].suffix)}")
    while abs(target - value) > step:
        value += step if target > value else -step
        put("{device.pv(device.kind.signals[0].suffix)}", value)
    return value
'''
    return f"{TOOLS}/python/{_stem(device, number)}.py", text


def _tcl(rng: random.Random, bank: Bank, device: Device, number: int) -> tuple[str, str]:
    signal = rng.choice(device.kind.signals)
    text = f"""#!/usr/bin/env oagtclsh
# {_doc(rng, bank, device, 0)}

proc Read{device.kind.key.title()} {{args}} {{
    # {_doc(rng, bank, device, 1)}
    set value [exec cavget -list={device.pv(signal.suffix)} -printErrors]
    return $value
}}

proc Reset{device.kind.key.title()} {{name}} {{
    # {_doc(rng, bank, device, 2)}
    after {rng.randrange(200, 2000)}
    exec cavput -list=$name -value=0
}}
"""
    return f"{TOOLS}/tcl/{_stem(device, number)}.tcl", text


def _screen(rng: random.Random, bank: Bank, device: Device, number: int) -> tuple[str, str]:
    width, row = 420, 30
    out = [f'file {{\n\tname="{_stem(device, number)}.adl"\n\tversion=030122\n}}']
    height = row * (len(device.kind.signals) + 2)
    out.append(
        f"display {{\n\tobject {{\n\t\tx=0\n\t\ty=0\n\t\twidth={width}\n\t\theight={height}\n\t}}\n"
        "\tclr=14\n\tbclr=4\n}"
    )
    out.append(_adl_text(10, 5, f"{device.name} {device.kind.noun}"))
    for index, signal in enumerate(device.kind.signals, start=1):
        out.append(_adl_text(10, 5 + row * index, signal.words))
        place = f"\tobject {{\n\t\tx=240\n\t\ty={5 + row * index}\n\t\twidth=160\n\t\theight=24\n\t}}"
        monitor = f'\tmonitor {{\n\t\tchan="{device.pv(signal.suffix)}"\n\t\tclr=14\n\t\tbclr=4\n\t}}'
        out.append(f'"text update" {{\n{place}\n{monitor}\n\tclrmod="alarm"\n}}')
    return f"{SCREENS}/{device.kind.key}/{_stem(device, number)}.adl", "\n".join(out) + "\n"


def _adl_text(x: int, y: int, text: str) -> str:
    place = f"\tobject {{\n\t\tx={x}\n\t\ty={y}\n\t\twidth=220\n\t\theight=24\n\t}}"
    return f'text {{\n{place}\n\t"basic attribute" {{\n\t\tclr=14\n\t}}\n\ttextix="{text}"\n}}'
