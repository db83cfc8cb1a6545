"""Progress bars for a person at a terminal; silence for everything else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from aps_rag_pipeline.sync.workspace import NoProgress, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

T = TypeVar("T")


class TerminalProgress:
    """A bar per long step on standard error, gone when the step is done. Steps may nest."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._running = 0

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        bars = self._start()
        task = bars.add_task(f"{description:<20}", total=total)
        try:
            for item in items:
                yield item
                bars.advance(task)
        finally:
            bars.remove_task(task)
            self._running -= 1
            if not self._running:
                bars.stop()
                self._bars = None

    def _start(self) -> Bars:
        if self._bars is None:
            from rich.console import Console
            from rich.progress import Progress as Bars

            self._bars = Bars(console=Console(stderr=True), transient=True)
            self._bars.start()
        self._running += 1
        return self._bars


def terminal_progress() -> Progress:
    return TerminalProgress() if sys.stderr.isatty() else NoProgress()
