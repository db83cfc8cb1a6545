"""Bytes of attachments, once each, by sha256."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.stores.durable import write_through

#: Drafts older than this belong to nobody any more.
_DRAFTS_S = 3600


class BlobStore:
    """A folder of files named by the sha256 of their bytes, two levels deep."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256

    def put(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.path(sha256)
        try:
            os.utime(path)  # seen again: the collector's grace period starts anew
        except FileNotFoundError:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_through(self.root)
            draft = path.with_name(f".{uuid.uuid4().hex}")
            draft.write_bytes(data)
            write_through(draft)
            passing("blob.rename.before")
            os.replace(draft, path)
            write_through(path.parent)
            passing("blob.rename.after")
        return sha256

    def get(self, sha256: str) -> bytes:
        return self.path(sha256).read_bytes()

    def __contains__(self, sha256: object) -> bool:
        return isinstance(sha256, str) and self.path(sha256).is_file()

    def __iter__(self) -> Iterator[str]:
        if self.root.is_dir():
            for path in sorted(self.root.glob("??/*")):
                if not path.name.startswith("."):
                    yield path.name

    def remove(self, sha256: str, upto: float | None = None) -> bool:
        """Remove a blob that was last seen at `upto` or before (seconds since 1970; None: whenever). Gives whether it
        went: one that a fetch sees again in this very moment stays."""
        path = self.path(sha256)
        try:
            if upto is not None and path.stat().st_mtime > upto:
                return False
            aside = path.with_name(f".{uuid.uuid4().hex}")
            os.replace(path, aside)
        except FileNotFoundError:
            return False
        if upto is not None and aside.stat().st_mtime > upto:
            os.replace(aside, path)
            return False
        aside.unlink()
        return True

    def drop_drafts(self) -> None:
        """Remove what writers that died have left behind."""
        for path in self.root.glob("??/.*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - _DRAFTS_S:
                    path.unlink()
