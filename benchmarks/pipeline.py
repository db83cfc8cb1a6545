"""This project on demo facilities of several sizes: the stages alone, and the whole command with its orchestration."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.ledger import REPOSITORY, Ledger
from benchmarks.measuring import disk_mib, measure

Form = Literal["stages", "command"]
FORMS: tuple[Form, ...] = ("stages", "command")
#: Above this the whole command starts from a copy of the home that the stages built: one cold build is long enough.
COPY_ABOVE = 20_000
#: Texts that the bare encoder gets at most: its rate needs no more.
BARE_MOST = 20_000
SHARE = 0.01
#: Folder of a home that is left out of its size: the model's ONNX form, the same for every corpus.
MODEL_FILES = ("models",)
#: Changed records that are looked for afterwards.
PROBES = 20
#: Citation keys of the sources whose ids stand in their files as they are.
_PREFIXES = {"bely": "BELY", "work_requests": "WRQ", "downtime": "DOWN", "epics": "PV"}


@dataclass(frozen=True)
class Facility:
    """A demo of `records` records, one home for each form, the same source files for both."""

    ledger: Ledger
    records: int
    model: str

    @property
    def folder(self) -> Path:
        return self.ledger.folder / f"demo-{self.records}"

    def home(self, form: Form) -> Path:
        return self.folder / f"home-{form}"

    @property
    def set_folder(self) -> Path:
        """Where its records lie as plain documents, for the comparison with other systems."""
        return self.ledger.folder / "sets" / f"demo-{self.records}"

    def run(self) -> None:
        """All steps of this size, those done before left out."""
        self._make()
        for form in FORMS:
            self._step(f"{form}/cold", form, cold=True)
        self._work("model")
        self._work("bare", "--most", str(BARE_MOST))
        if self.records <= COPY_ABOVE:
            self._work("set", "--set", str(self.set_folder))
        self._sync_both("noop")
        self._work("search")
        self._change("edit")
        self._sync_both("edit")
        self._marks("edit")
        self._change("delete", "--deletions")
        self._sync_both("delete")
        self._marks("delete")
        self._sync_both("noop-again")

    def name(self, step: str) -> str:
        return f"{self.records}/{step}"

    def result(self, step: str) -> dict[str, Any]:
        return self.ledger.result(self.name(step))

    def planned(self, step: str) -> list[tuple[str, str, str, str]]:
        """(source, file, id within it, sentence) of what a step changes."""
        found = self.result(f"plan-{step}").get("result", {})
        return [(source, *change) for source, some in found.items() for change in some]

    # steps

    def _make(self) -> None:
        arguments = ["write", "--config", self.folder, "--records", str(self.records)]
        self._task("write", arguments, "stages")

    def _sync_both(self, step: str) -> None:
        for form in FORMS:
            self._step(f"{form}/{step}", form)

    def _step(self, step: str, form: Form, *, cold: bool = False) -> None:
        def work() -> dict[str, Any]:
            copied = form == "command" and cold and self.records > COPY_ABOVE
            if cold:
                self._prepare(form, copied)
            if copied:
                self._sync(step, form, cold=False)  # audits as a whole what the stages built, which no later run does
                return {"copied": True}
            found = self._sync(step, form, cold)
            disk, files = disk_mib(self.home(form), MODEL_FILES)
            return {**found, "disk_mib": disk, "files": files}

        self.ledger.step(self.name(step), work)

    def _goes_on(self, step: str, form: Form, cold: bool) -> bool:
        """Whether a step that was broken off goes on where it was, so that its first attempts have to be counted."""
        if cold:
            return form == "stages" and self.records > COPY_ABOVE
        return not step.partition("/")[2].startswith("noop")

    def _prepare(self, form: Form, copied: bool) -> None:
        """A cold build starts without a home; one that was broken off goes on where it was if it is a long one."""
        if not self._goes_on("cold", form, cold=True):
            shutil.rmtree(self.home(form), ignore_errors=True)
        if copied:
            subprocess.run(["cp", "-a", self.home("stages"), self.home(form)], check=True)

    def _sync(self, step: str, form: Form, cold: bool) -> dict[str, Any]:
        log = self.ledger.log(self.name(step))
        heartbeat = self.ledger.heartbeat(self.name(step)) if self._goes_on(step, form, cold) else None
        if form == "stages":
            out = log.with_suffix(".json")
            command = [sys.executable, "-m", "benchmarks.work", "stages", "--config", self._config, "--out", out]
            done = measure(command, log, out=out, env=self._env(form), cwd=REPOSITORY, heartbeat=heartbeat)
        else:
            command = [sys.executable, "-m", "aps_rag_pipeline.cli", "sync", "--json", "-c", self._config]
            done = measure(
                command, log, env=self._env(form), cwd=REPOSITORY, heartbeat=heartbeat, result_from_stdout=True
            )
        return done.to_dict()

    def _work(self, task: str, *more: str) -> None:
        self._task(task, [task, "--config", self._config, *more], "stages")

    def _task(self, step: str, arguments: list[str | Path], form: Form) -> None:
        log = self.ledger.log(self.name(step))
        out = log.with_suffix(".json")
        command = [sys.executable, "-m", "benchmarks.work", *arguments, "--out", out]
        self.ledger.step(
            self.name(step), lambda: measure(command, log, out=out, env=self._env(form), cwd=REPOSITORY).to_dict()
        )

    def _change(self, step: str, *more: str) -> None:
        self._task(f"plan-{step}", ["plan", "--config", self._config, "--share", str(SHARE), *more], "stages")
        plans = self._scratch(f"plan-{step}", self.result(f"plan-{step}")["result"])
        self._task(f"change-{step}", ["change", "--config", self._config, "--plans", plans], "stages")

    def _marks(self, step: str) -> None:
        """Look for edited records by the sentence that was added to them, and for deleted ones by their keys."""
        edited, deleted = self.planned("edit"), self.planned("delete")
        gone = {(name, key) for _, name, key, _ in deleted}
        kept = [mark for _, name, key, mark in edited if (name, key) not in gone]
        keys = [f"{_PREFIXES[source]}:{key}" for source, _, key, _ in deleted if source in _PREFIXES]
        wanted = {"edited": spread(kept, PROBES), "deleted": spread(keys, PROBES)}
        plans = self._scratch(f"marks-{step}", wanted)
        self._task(f"marks-{step}", ["marks", "--config", self._config, "--plans", plans], "stages")

    def _scratch(self, name: str, content: Any) -> Path:
        path = self.folder.parent / f"{self.records}-{name}.json"
        path.write_text(json.dumps(content))
        return path

    @property
    def _config(self) -> Path:
        return self.folder / "facility.yaml"

    def _env(self, form: Form) -> dict[str, str]:
        """The person's environment without this project's own variables, and with this form's home and model."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("APS_RAG_", "DAGSTER_"))}
        return {
            **kept,
            "APS_RAG_HOME": str(self.home(form)),
            "APS_RAG_MODELS__EMBEDDING": self.model,
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }


def spread(items: list[Any], most: int) -> list[Any]:
    """At most so many of a list, evenly."""
    return items[:: max(len(items) // most, 1)][:most]
