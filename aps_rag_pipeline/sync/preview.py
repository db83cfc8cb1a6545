"""What a sync would do, without doing it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sync import spool
from aps_rag_pipeline.sync.apply import would_change
from aps_rag_pipeline.sync.fetch import fetch
from aps_rag_pipeline.sync.workspace import Workspace


def preview(workspace: Workspace, feeds: tuple[Feed, ...]) -> list[dict[str, Any]]:
    """Per feed: how many records would be added, changed, relabelled, removed or held, and what cannot be read.

    No cursor moves and no record changes; bytes of attachments may enter the blob store, which the collector minds.
    """
    with tempfile.TemporaryDirectory(prefix="aps-rag-preview-") as folder:
        reports = fetch(workspace, feeds, aside=Path(folder))
        found = {}
        for path in spool.waiting(Path(folder)):
            changes = would_change(workspace, path)
            found[changes.feed] = changes
    rows = []
    for report in reports:
        changed = found.get(report.feed)
        counts = {
            name: changed.counts[name] if changed else 0 for name in ("added", "changed", "relabelled", "removed")
        }
        rows.append(
            {
                "source": report.source,
                "feed": report.feed,
                **counts,
                "held": changed.held if changed else 0,
                "failures": report.counts["failures"],
                "error": report.error,
            }
        )
    return rows
