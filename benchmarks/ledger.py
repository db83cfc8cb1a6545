"""What a run has done so far: one JSON file a step, so that a run that was broken off goes on where it stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RUNS = Path(__file__).parent / ".runs"
REPOSITORY = Path(__file__).parents[1]
#: The step that says which machine, versions and model a run is of.
FACTS = "machine"


class OtherFactsError(Exception):
    """A run is gone on with on another machine, with other versions or with another model."""


@dataclass(frozen=True)
class Sitting:
    """A process that did steps of a run: when it did its first one (UTC, ISO-8601), and the load average then."""

    begun: str
    load: float


class Ledger:
    """Steps of one run, by name; a name may hold slashes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps = folder / "steps"
        self.steps.mkdir(parents=True, exist_ok=True)
        self._sitting_noted = False

    def hold_to(self, facts: dict[str, Any]) -> None:
        """Keep what the figures of this run are true of, as the step `machine`.

        Raises:
            OtherFactsError: the run was begun with something else; its message names it, and what to do.
        """
        before, now = _flat(self.result(FACTS)), _flat(facts)
        for own in ("commit", "sitting"):
            before.pop(own, None)
        if before and before != now:
            names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
            told = "; ".join(f"{name}: {before.get(name, 'not noted')}, now {now.get(name, 'none')}" for name in names)
            raise OtherFactsError(
                f"The run {self.folder.name!r} was begun with something else ({told}). One report cannot hold both: "
                "start over with --fresh, or keep it and give this one another name with --run NAME."
            )
        self.step(FACTS, lambda: facts)

    def step(self, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a step, done now unless it was done before. Times are printed as they come."""
        path = self._path(name)
        if path.exists():
            self.say(f"{name}: done before")
        else:
            self._note_sitting()
            self.say(f"{name} …")
            started = time.perf_counter()
            found = {**work(), "commit": commit(), "sitting": len(self.sittings)}
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".part")
            temporary.write_text(json.dumps(found, indent=1))
            temporary.replace(path)
            self.say(f"{name}: {time.perf_counter() - started:.1f} s")
        return self.result(name)

    def result(self, name: str) -> dict[str, Any]:
        """What a step gave; empty when it was not done."""
        path = self._path(name)
        return dict(json.loads(path.read_text())) if path.exists() else {}

    @property
    def sittings(self) -> list[Sitting]:
        """When this run was begun and gone on with, and how busy the machine was: a step's `sitting` counts from 1."""
        noted = json.loads(self._sittings.read_text()) if self._sittings.exists() else []
        return [Sitting(**one) for one in noted]

    @property
    def loads(self) -> list[float]:
        """Load average of the machine each time that this run was begun or gone on with."""
        return [one.load for one in self.sittings]

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name.replace('/', '-')}.log"

    def heartbeat(self, name: str) -> Path:
        return self.folder / f"{name.replace('/', '-')}.seconds"

    def commits(self) -> list[str]:
        """Versions of the project that the steps were done with; more than one is worth a line in the report."""
        found = {json.loads(path.read_text())["commit"] for path in self.steps.rglob("*.json")}
        return sorted(found)

    @property
    def _sittings(self) -> Path:
        return self.folder / "sittings.json"

    def _note_sitting(self) -> None:
        """Before the first step of this process, since later ones find the load of the run itself."""
        if not self._sitting_noted:
            begun = Sitting(datetime.now(UTC).isoformat(timespec="minutes"), os.getloadavg()[0])
            self._sittings.write_text(json.dumps([asdict(one) for one in (*self.sittings, begun)]))
            self._sitting_noted = True

    @staticmethod
    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)

    def _path(self, name: str) -> Path:
        return self.steps / f"{name}.json"


def _flat(facts: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in facts.items():
        found |= {f"{name} {inner}": one for inner, one in value.items()} if isinstance(value, dict) else {name: value}
    return found


def commit() -> str:
    """The checkout's commit, marked when files differ from it, reports left out; empty outside of one."""
    named = _git("describe", "--always").stdout.strip()
    moved = named and _git("diff", "--quiet", "HEAD", "--", ".", ":!benchmarks/results").returncode
    return f"{named}-dirty" if moved else named


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
