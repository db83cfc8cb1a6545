"""E-mail: RFC 5322 files with the standard library, Outlook's own through `unstructured`."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from datetime import tzinfo
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from itertools import islice

from aps_rag_pipeline.content.assembly import Assembly, Partition, Picture
from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.pages import read_page
from aps_rag_pipeline.content.sentences import prepare_unstructured
from aps_rag_pipeline.content.text import clean, decode
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.sources.base import Blobs

_SHOWN = ("From", "To", "Cc", "Date")
_MAX_PIECES = 500
_MAX_DEPTH = 20

#: Reads an attached file as a document; None where it is none, or cannot be read.
OpenFile = Callable[[Picture], Partition | None]


def partition_mail(data: bytes, blobs: Blobs, zone: tzinfo, open_file: OpenFile) -> Partition:
    """Subject as title; addresses and date, then the text (HTML before plain), then attached documents and pictures."""
    message = BytesParser(_class=EmailMessage, policy=policy.default).parsebytes(data)
    found = Partition(title=_header(message, "Subject"), author=_header(message, "From"))
    found.created_at = parse_time(_header(message, "Date"), zone)
    pieces = list(islice(_pieces(message, 0), _MAX_PIECES))
    files = {_content_id(piece): file for piece in pieces if not _is_text(piece) and (file := _file(piece))}
    assembly = Assembly(blobs)
    links: dict[Link, None] = {}
    for piece in pieces:
        assembly.prose("\n".join(f"{name}: {value}" for name in _SHOWN if (value := _header(piece, name))))
        if _is_text(piece) and piece.get_content_subtype() == "html":
            page = read_page(_text(piece), assembly, zone, lambda source: files.get(source.removeprefix("cid:")))
            targets = (target for target in page.targets if "://" in target.address)
            links.update(dict.fromkeys(Link("url", target.address, target.text) for target in targets))
        elif _is_text(piece):
            assembly.prose(_text(piece))
    for file in files.values():
        inner = open_file(file)
        assembly.picture(file)
        if inner is not None:
            assembly.enclose(file.name, inner)
    found.parts, found.attachments = assembly.finish()
    found.links = list(links)
    return found


def partition_outlook(data: bytes, blobs: Blobs, zone: tzinfo) -> Partition:
    """A message as Outlook saves it (.msg)."""
    prepare_unstructured()
    from unstructured.partition.msg import partition_msg

    blocks = partition_msg(file=io.BytesIO(data), languages=[""])
    assembly = Assembly(blobs)
    found = Partition()
    for block in blocks[:1]:
        found.title = clean(block.metadata.subject or "").strip()
        found.author = ", ".join(block.metadata.sent_from or [])
        found.created_at = parse_time(block.metadata.last_modified or "", zone)
        sent_to = ", ".join(block.metadata.sent_to or [])
        assembly.prose("\n".join(line for line in (f"From: {found.author}", f"To: {sent_to}") if line[-2:] != ": "))
    for block in blocks:
        assembly.prose(block.text)
    found.parts, found.attachments = assembly.finish()
    return found


def _pieces(message: EmailMessage, depth: int) -> Iterator[EmailMessage]:
    """A message's parts in order, containers before what they hold; of alternative forms of a text the best one."""
    yield message
    if not message.is_multipart() or depth > _MAX_DEPTH:
        return
    inner = [part for part in message.get_payload() if isinstance(part, EmailMessage)]
    if message.get_content_subtype() == "alternative":
        pages = [part for part in inner if any(leaf.get_content_type() == "text/html" for leaf in part.walk())]
        plain = [part for part in inner if part.get_content_type() == "text/plain"]
        inner = (pages or plain or inner)[-1:]
    for part in inner:
        yield from _pieces(part, depth + 1)


def _is_text(piece: EmailMessage) -> bool:
    plain = piece.get_content_type() in ("text/plain", "text/html")
    return plain and not piece.is_multipart() and piece.get_content_disposition() != "attachment"


def _content_id(piece: EmailMessage) -> str:
    return str(piece.get("Content-ID", "")).strip("<> ") or f"piece {id(piece)}"


def _file(piece: EmailMessage) -> Picture | None:
    payload = None if piece.is_multipart() else piece.get_payload(decode=True)
    if not isinstance(payload, bytes) or not payload:
        return None
    name = clean(piece.get_filename() or "").strip() or f"attachment.{piece.get_content_subtype()}"
    return Picture(name, payload, piece.get_content_type())


def _text(piece: EmailMessage) -> str:
    payload = piece.get_payload(decode=True)
    charset = piece.get_content_charset()
    try:
        codecs.lookup(charset or "")
    except LookupError:
        charset = None
    return decode(payload, charset) if isinstance(payload, bytes) else ""


def _header(message: EmailMessage, name: str) -> str:
    return " ".join(clean(str(message.get(name, "") or "")).split())
