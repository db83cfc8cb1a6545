"""Backups of a home: written while it is in use, verified, and put back whole."""

from aps_rag_pipeline.sync.backup.contents import BackupError, Contents, verify
from aps_rag_pipeline.sync.backup.restoring import Restored, restore
from aps_rag_pipeline.sync.backup.writing import back_up

__all__ = ["BackupError", "Contents", "Restored", "back_up", "restore", "verify"]
