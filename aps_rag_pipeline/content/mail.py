"""E-mail: RFC 5322 files with the standard library, Outlook's own through `unstructured`."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from datetime import tzinfo
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser

from aps_rag_pipeline.content.assembly import Assembly, Partition, Picture
from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.content.pages import read_page
from aps_rag_pipeline.content.sentences import prepare_unstructured
from aps_rag_pipeline.content.text import clean, decode
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.sources.base import Blobs

_SHOWN = ("From", "To", "Cc", "Date")
_MAX_PIECES = 500


def partition_mail(data: bytes, blobs: Blobs, zone: tzinfo) -> Partition:
    """Subject as title; addresses and date, then the body (HTML before plain) as text; everything else attached."""
    message = BytesParser(_class=EmailMessage, policy=policy.default).parsebytes(data)
    found = Partition(title=_header(message, "Subject"), author=_header(message, "From"))
    found.created_at = parse_time(_header(message, "Date"), zone)
    assembly = Assembly(blobs)
    assembly.prose("\n".join(f"{name}: {value}" for name in _SHOWN if (value := _header(message, name))))
    body = message.get_body(preferencelist=("html", "plain"))
    others = {_content_id(piece): _file(piece) for piece in _pieces(message) if piece is not body}
    if body is not None and body.get_content_type() == "text/html":
        page = read_page(_text(body), assembly, zone, lambda source: others.get(source.removeprefix("cid:")))
        found.links = [Link("url", target.address, target.text) for target in page.targets if "://" in target.address]
    elif body is not None:
        assembly.prose(_text(body))
    for other in others.values():
        if other is not None:
            assembly.picture(other)
    found.parts, found.attachments = assembly.finish()
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


def _pieces(message: EmailMessage) -> Iterator[EmailMessage]:
    """The leaves of a message that are no other form of its body."""
    for _, piece in zip(range(_MAX_PIECES), message.walk(), strict=False):
        if not piece.is_multipart() and isinstance(piece, EmailMessage):
            plain = piece.get_content_maintype() == "text" and piece.get_content_disposition() != "attachment"
            if not plain:
                yield piece


def _content_id(piece: EmailMessage) -> str:
    return str(piece.get("Content-ID", "")).strip("<> ") or f"piece {id(piece)}"


def _file(piece: EmailMessage) -> Picture | None:
    payload = piece.get_payload(decode=True)
    if not isinstance(payload, bytes) or not payload:
        return None
    name = clean(piece.get_filename() or "").strip() or f"attachment.{piece.get_content_subtype()}"
    return Picture(name, payload, piece.get_content_type())


def _text(piece: EmailMessage | object) -> str:
    assert isinstance(piece, EmailMessage)
    payload = piece.get_payload(decode=True)
    charset = piece.get_content_charset()
    try:
        codecs.lookup(charset or "")
    except LookupError:
        charset = None
    return decode(payload, charset) if isinstance(payload, bytes) else ""


def _header(message: EmailMessage, name: str) -> str:
    return " ".join(clean(str(message.get(name, "") or "")).split())
