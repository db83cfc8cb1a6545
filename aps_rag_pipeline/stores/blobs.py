"""Bytes of attachments, once each, by sha256."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


class BlobStore:
    """A folder of files named by the sha256 of their bytes, two levels deep."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256

    def put(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.path(sha256)
        if path.exists():
            os.utime(path)  # seen again: the collector's grace period starts anew
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{uuid.uuid4().hex}")
            draft.write_bytes(data)
            os.replace(draft, path)
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

    def remove(self, sha256: str) -> None:
        self.path(sha256).unlink(missing_ok=True)
