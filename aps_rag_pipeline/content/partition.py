"""Bytes of a document → its title, parts, links and attachments, whatever its format and whatever state it is in."""

from __future__ import annotations

from datetime import tzinfo

from aps_rag_pipeline.content.archives import is_zip
from aps_rag_pipeline.content.assembly import Partition
from aps_rag_pipeline.content.isolation import Job, parse_apart
from aps_rag_pipeline.content.kinds import kind_of
from aps_rag_pipeline.content.pages import FindPicture
from aps_rag_pipeline.content.parsers import parse
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Blobs

#: Kinds that no parser looks into: they cannot hang, and a process would cost more than their reading.
_HARMLESS = ("image", "text")


def partition(
    data: bytes,
    name: str,
    limits: Limits,
    blobs: Blobs,
    zone: tzinfo,
    *,
    encoding: str | None = None,
    find_picture: FindPicture = lambda _: None,
) -> Partition:
    """What a document holds, in reading order.

    Args:
        data: the file's bytes; its kind is told from them first, from `name` only where they leave it open.
        zone: of times that state none.
        encoding: of a text file; found out when None.
        find_picture: gives the picture behind an address in an HTML or Markdown page.

    Raises:
        UnreadableError: protected, damaged, of an old format or beyond the limits, with what would help;
            `kinds.NoDocumentError` when it is no document at all.
    """
    # A zip file's table of contents may be a trap by itself, so even its kind is found out elsewhere.
    if not is_zip(data) and kind_of(data, name) in _HARMLESS:
        return parse(data, name, limits, blobs, zone, encoding, find_picture)
    return parse_apart(data, Job(name, limits, zone, encoding), blobs, find_picture)
