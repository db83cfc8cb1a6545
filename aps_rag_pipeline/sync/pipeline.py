"""The steps in their order, for whoever runs them outside Dagster: a purge, benchmarks, tests of the whole way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aps_rag_pipeline.settings import Feed, Settings
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.lock import WriterLock
from aps_rag_pipeline.sync.apply import ApplyReport, apply_spool
from aps_rag_pipeline.sync.fetch import FetchReport, fetch
from aps_rag_pipeline.sync.graph import build_graph
from aps_rag_pipeline.sync.indexes import embed, index_dense, index_sparse
from aps_rag_pipeline.sync.marts import build_marts
from aps_rag_pipeline.sync.model import ConfiguredModel, configured_model
from aps_rag_pipeline.sync.preparation import with_present_model
from aps_rag_pipeline.sync.publish import publish
from aps_rag_pipeline.sync.text import cut_passages, read_pictures, split_chunks
from aps_rag_pipeline.sync.workspace import NoProgress, Progress, StageReport, Workspace

Stage = Callable[[Workspace, ConfiguredModel], StageReport]

#: What stands between a changeset and its release, in order. Each is idempotent; `changed: 0` says it had no work.
STAGES: tuple[Stage, ...] = (
    lambda workspace, _: read_pictures(workspace),
    lambda workspace, _: cut_passages(workspace),
    split_chunks,
    embed,
    index_dense,
    lambda workspace, _: index_sparse(workspace),
    lambda workspace, _: build_graph(workspace),
    lambda workspace, _: build_marts(workspace),
)


@contextmanager
def open_workspace(settings: Settings, progress: Progress | None = None) -> Iterator[Workspace]:
    home = Home(settings.home).create()
    with Catalog(home) as catalog:
        yield Workspace(settings, home, catalog, progress or NoProgress())


def complete(workspace: Workspace) -> list[StageReport]:
    """Bring everything up to the newest changeset and publish it. Needs the writer lock."""
    workspace = with_present_model(workspace)
    model = configured_model(workspace.settings, workspace.home)
    reports = [stage(workspace, model) for stage in STAGES]
    return [*reports, publish(workspace, model)]


def sync(
    workspace: Workspace, feeds: tuple[Feed, ...] | None = None
) -> tuple[list[FetchReport], ApplyReport, list[StageReport]]:
    """Fetch, apply, derive, publish."""
    settings = workspace.settings
    fetched = fetch(workspace, settings.feeds if feeds is None else feeds)
    with WriterLock(workspace.home, settings.limits.lock_timeout_s, "sync"):
        return fetched, apply_spool(workspace), complete(workspace)
