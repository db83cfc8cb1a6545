"""Files that lie beside the file that names them: pictures of a chat, attachments of a log entry."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from aps_rag_pipeline.sources.base import SourceContext, UnreadableError

#: First bytes of the kinds that people attach; an extension is often missing or wrong.
_SIGNATURES = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
)
_UNKNOWN = "application/octet-stream"


def file_name(address: str) -> str:
    """The bare file name at the end of an address, percent signs decoded; empty where there is none."""
    path = address.split("?", 1)[0].split("#", 1)[0]
    name = unquote(path).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return "" if name in (".", "..") or "\x00" in name else name


def companion(root: Path, candidates: Iterable[Path]) -> Path | None:
    """The first candidate that is a regular file inside `root`; what leads out of it, links included, is none."""
    home = root.resolve()
    for path in candidates:
        try:
            real = path.resolve()
            if real.is_relative_to(home) and real.is_file():
                return real
        except (OSError, RuntimeError, ValueError):  # a name too long, a loop of links, a zero byte: no such file
            continue
    return None


def read_companion(path: Path, context: SourceContext) -> bytes:
    """The bytes of a companion within the limits.

    Raises:
        UnreadableError: too large, empty, or not to be opened.
    """
    limit = context.limits.max_file_mb
    try:
        if path.stat().st_size > limit * 1e6:
            raise UnreadableError(
                f"{path.stat().st_size / 1e6:.0f} MB, more than limits.max_file_mb ({limit:g})",
                remedy="raise the limit or make the file smaller",
            )
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableError(
            f"cannot be opened ({error.strerror or error})", remedy="check its permissions", permanent=False
        ) from error
    if not data:
        raise UnreadableError("the file is empty", remedy="put the whole file there", permanent=False)
    return data


def media_type(name: str, data: bytes) -> str:
    """What the bytes are, by their signature, else by the file's extension."""
    for signature, kind in _SIGNATURES:
        if data.startswith(signature):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return mimetypes.guess_type(name)[0] or _UNKNOWN
