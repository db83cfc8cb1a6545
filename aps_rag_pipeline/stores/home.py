"""The home of a facility: one folder that holds everything the pipeline keeps."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from aps_rag_pipeline.stores.blobs import BlobStore
from aps_rag_pipeline.stores.trouble import told


class HomeError(Exception):
    """The home cannot be used; the message names the folder and the remedy."""


@dataclass(frozen=True)
class Home:
    """Paths below a home. Nothing is created until `create` is called."""

    root: Path

    @property
    def catalog(self) -> Path:
        return self.root / "catalog.sqlite"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def lance(self) -> Path:
        return self.root / "lance"

    @property
    def tantivy(self) -> Path:
        return self.root / "tantivy"

    @property
    def marts(self) -> Path:
        return self.root / "marts"

    @property
    def releases(self) -> Path:
        return self.root / "releases"

    @property
    def models(self) -> Path:
        """Converted forms of embedding models, by fingerprint."""
        return self.root / "models"

    @property
    def state(self) -> Path:
        """Small files about the last attempts and successes of each source, for sensors and `status`."""
        return self.root / "state"

    @property
    def graph(self) -> Path:
        """Data and address of a Bolt server started by `aps-rag graph up`."""
        return self.root / "graph"

    @property
    def checkouts(self) -> Path:
        """What live feeds keep to ask less the next time, a folder for each; it can be fetched again."""
        return self.root / "checkouts"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME of the runs that `aps-rag sync` and `make ui` start."""
        return self.root / "dagster"

    @property
    def writer_lock(self) -> Path:
        return self.root / "writer.lock"

    @property
    def restoring(self) -> Path:
        """Is there while a backup takes the place of the home's contents, and after that was cut off."""
        return self.root / ".restoring"

    @property
    def restore_draft(self) -> Path:
        """Where a backup is put together before it takes that place; nobody's, once the writer lock is free."""
        return self.root / ".restoring.part"

    @property
    def blobs(self) -> BlobStore:
        return BlobStore(self.root / "blobs")

    def create(self, *, restoring: bool = False) -> Home:
        """Make the folder, readable by its owner alone: labels are enforced by readers, not by the file system.

        Args:
            restoring: take it also when a restore of it is under way or was cut off.

        Raises:
            HomeError: it cannot be made or written.
        """
        try:
            if not restoring and self.restoring.exists():
                raise HomeError(
                    f"{self.root}: is being restored, or that was cut off; run `aps-rag restore` with --force again"
                )
            if self.root.exists() and not self.root.is_dir():
                raise HomeError(f"{self.root}: is a file; set `home` to a folder")
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.spool, self.releases, self.marts, self.state):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            raise HomeError(told(error) or f"{self.root}: cannot be made ({error.strerror})") from error
        if not os.access(self.root, os.W_OK):
            raise HomeError(
                f"{self.root}: is not writable for this user (it belongs to {_owner(self.root)}); run it as the owner, "
                "mend its permissions, or set `home` to another folder"
            )
        return self


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:
        return f"user {path.stat().st_uid}"
