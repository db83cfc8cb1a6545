"""Named places before and after every durable step, where a test can kill the process.

`APS_RAG_FAILPOINT=NAME` kills at the first passage of a place, `NAME:3` at the third. Without the variable a place
costs a comparison.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "APS_RAG_FAILPOINT"

#: Places that only a home with a large table comes to.
LARGE = (
    *("lance.index.before", "lance.index.after", "lance.vectors.before", "lance.vectors.after"),
    *("lance.optimize.before", "lance.optimize.after"),
)
#: Every place, the others in the order in which a sync, a purge and a restore come to them.
NAMES = (
    *LARGE,
    *("blob.rename.before", "blob.rename.after", "spool.seal.before", "spool.seal.after"),
    *("state.rename.before", "state.rename.after", "catalog.commit.before", "catalog.commit.after"),
    *("apply.commit.before", "apply.commit.after", "apply.unlink.before", "apply.unlink.after"),
    *("stage.redo.before", "stage.redo.after", "stage.applied.before", "stage.applied.after"),
    *("pictures.commit.before", "pictures.commit.after", "picture.commit.before", "picture.commit.after"),
    *("passages.commit.before", "passages.commit.after", "chunks.commit.before", "chunks.commit.after"),
    *("vectors.commit.before", "vectors.commit.after"),
    *("lance.create.before", "lance.create.after", "lance.delete.before", "lance.delete.after"),
    *("lance.add.before", "lance.add.after", "dense.batch.before", "dense.batch.after"),
    *("bm25.create.before", "bm25.create.after", "bm25.commit.before", "bm25.commit.after"),
    *("bm25.rewrite.before", "bm25.rewrite.after"),
    *("graph.commit.before", "graph.commit.after", "graph.batch.after"),
    *("mart.write.before", "mart.rename.before", "mart.rename.after"),
    *("publish.settle.before", "publish.settle.after", "publish.tag.before", "publish.tag.after"),
    *("publish.link.before", "publish.link.after", "publish.manifest.before", "publish.manifest.after"),
    *("publish.rename.before", "publish.rename.after", "publish.note.before", "publish.note.after"),
    *("collect.lease.after", "collect.rename.before", "collect.rename.after", "collect.tags.before"),
    *("collect.tag.after", "collect.versions.before", "collect.version.after", "collect.rows.before"),
    *("collect.rows.after", "collect.blob.before", "collect.blob.after", "collect.drafts.before"),
    *("collect.vacuum.before", "collect.vacuum.after", "collect.rmtree.before", "collect.rmtree.after"),
    *("purge.commit.before", "purge.commit.after"),
    *("purge.rewrite.before", "purge.rewrite.after", "purge.scrub.before", "purge.scrub.after"),
    *("restore.mark.before", "restore.mark.after", "restore.out.after", "restore.catalog.before"),
    *("restore.damaged.before", "restore.catalog.after", "restore.in.after", "restore.sweep.before"),
    *("restore.sweep.after", "restore.unmark.before", "restore.unmark.after"),
)

_wanted, _left = "", 0


def arm(spec: str) -> None:
    """Ask for `NAME` or `NAME:TIMES`; nothing is asked for with an empty text.

    Raises:
        ValueError: no place has this name.
    """
    global _wanted, _left
    name, _, times = spec.partition(":")
    if name and name not in NAMES:
        raise ValueError(f"{VARIABLE}={spec}: there is no such place")
    _wanted, _left = name, int(times or 1)


def passing(name: str) -> None:
    """Die here, as by a power failure, when this place is the wanted one: nothing is cleaned up or flushed."""
    global _left
    if name != _wanted:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE, ""))
