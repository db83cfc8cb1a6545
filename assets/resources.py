"""The one resource of the project: a facility's workspace, opened with the first step that needs it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import PrivateAttr

from assets.processes import mark_process


class Facility(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Settings, home and catalog of the configured facility.

    The writer lock is taken by the first step that writes, not by those that fetch, and is held until the run ends, so
    that a changeset, its stages and its release are one piece of work. When a step fails, the end of the run frees it.
    """

    config_path: str = ""

    _stack: Any = PrivateAttr(default=None)
    _workspace: Any = PrivateAttr(default=None)
    _lock: Any = PrivateAttr(default=None)

    @contextlib.contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator["Facility"]:
        mark_process(context)
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self._workspace = self._lock = None
            yield self

    @property
    def settings(self) -> Any:
        return self.workspace.settings

    @property
    def workspace(self) -> Any:
        """Open home and catalog; safe beside other runs, since nothing is written through it without the lock."""
        if self._workspace is None:
            from aps_rag_pipeline.progress import terminal_progress
            from aps_rag_pipeline.settings import Settings
            from aps_rag_pipeline.sync.pipeline import open_workspace

            settings = Settings.load(self.config_path or None)
            self._workspace = self._stack.enter_context(open_workspace(settings, terminal_progress()))
        return self._workspace

    def writing(self, purpose: str) -> Any:
        """The workspace with the writer lock held; its model is the one that was switched to meanwhile."""
        if self._lock is None:
            from aps_rag_pipeline.stores.lock import WriterLock
            from aps_rag_pipeline.sync.preparation import with_present_model

            workspace = self.workspace
            lock = WriterLock(workspace.home, workspace.settings.limits.lock_timeout_s, purpose)
            with contextlib.ExitStack() as held:
                held.enter_context(lock)
                self._workspace = with_present_model(workspace)
                self._stack.enter_context(held.pop_all())
            self._lock = lock
        return self.workspace

    def model(self) -> Any:
        """The configured embedding model, described."""
        from aps_rag_pipeline.sync.model import configured_model

        return configured_model(self.settings, self.workspace.home)
