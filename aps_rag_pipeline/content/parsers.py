"""The parsers of documents, by kind. Bytes that nobody vouches for go through `partition`, which runs them apart."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import PurePosixPath

from aps_rag_pipeline.content.assembly import Assembly, Partition, Picture
from aps_rag_pipeline.content.delimited import find_delimiter, read_delimited
from aps_rag_pipeline.content.front_matter import split_front_matter
from aps_rag_pipeline.content.guard import reading
from aps_rag_pipeline.content.kinds import Kind, kind_of
from aps_rag_pipeline.content.mail import partition_mail, partition_outlook
from aps_rag_pipeline.content.markup import pipe_table
from aps_rag_pipeline.content.opendocument import partition_opendocument
from aps_rag_pipeline.content.pages import FindPicture, markdown_to_html, partition_page
from aps_rag_pipeline.content.pdf import partition_pdf
from aps_rag_pipeline.content.rest import rest_to_html
from aps_rag_pipeline.content.sheets import lay_out
from aps_rag_pipeline.content.slides import partition_slides
from aps_rag_pipeline.content.text import decode
from aps_rag_pipeline.content.word import partition_word
from aps_rag_pipeline.content.workbooks import read_sheets
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Blobs, UnreadableError


def parse(
    data: bytes,
    name: str,
    limits: Limits,
    blobs: Blobs,
    zone: tzinfo,
    encoding: str | None = None,
    find_picture: FindPicture = lambda _: None,
) -> Partition:
    """Like :func:`partition.partition`, in this process."""
    kind = kind_of(data, name)
    file_name = PurePosixPath(name).name
    with reading(kind):
        if kind == "pdf":
            return partition_pdf(data, file_name, limits, blobs, zone)
        if kind == "image":
            return _image(data, file_name, blobs)
        return _parsed(kind, data, limits, blobs, zone, encoding, find_picture)


def _parsed(
    kind: Kind,
    data: bytes,
    limits: Limits,
    blobs: Blobs,
    zone: tzinfo,
    encoding: str | None,
    find_picture: FindPicture,
) -> Partition:
    if kind == "docx":
        return partition_word(data, limits, blobs)
    if kind == "pptx":
        return partition_slides(data, limits, blobs)
    if kind == "odt":
        return partition_opendocument(data, limits, blobs, zone)
    if kind == "workbook":
        return _workbook(data, limits, blobs)
    if kind == "mail":
        return partition_mail(data, blobs, zone, lambda file: _enclosed(file, limits, blobs, zone))
    if kind == "outlook":
        return partition_outlook(data, blobs, zone)
    text = decode(data, encoding)
    if kind == "table":
        return _delimited(text, blobs)
    if kind == "text":
        return _plain(text, blobs)
    return _page(kind, text, blobs, zone, find_picture)


def _enclosed(file: Picture, limits: Limits, blobs: Blobs, zone: tzinfo) -> Partition | None:
    """A document attached to a message. One that cannot be read stays an attachment: the message is worth having."""
    try:
        if kind_of(file.data, file.name) in ("image", "mail", "outlook"):
            return None
        return parse(file.data, file.name, limits, blobs, zone)
    except UnreadableError:
        return None


def _page(kind: Kind, text: str, blobs: Blobs, zone: tzinfo, find_picture: FindPicture) -> Partition:
    values, body = split_front_matter(text) if kind == "markdown" else ({}, text)
    if kind == "markdown":
        body = markdown_to_html(body)
    elif kind == "rest":
        body = rest_to_html(body)
    page = partition_page(body, blobs, zone, find_picture)
    page.links = [Link("url", target.address, target.text) for target in page.targets if "://" in target.address]
    stated = page.title if kind == "html" else ""
    page.title = str(values.get("title", "")) or stated or page.heading
    page.author = str(values.get("author", "")) or page.author
    return page


def _image(data: bytes, name: str, blobs: Blobs) -> Partition:
    assembly = Assembly(blobs)
    assembly.picture(Picture(name, data))
    _, attachments = assembly.finish()
    return Partition(attachments=attachments)


def _plain(text: str, blobs: Blobs) -> Partition:
    assembly = Assembly(blobs)
    assembly.prose(text)
    parts, _ = assembly.finish()
    return Partition(parts=parts)


def _delimited(text: str, blobs: Blobs) -> Partition:
    assembly = Assembly(blobs)
    rows = [row.cells for row in read_delimited(text, find_delimiter(text, lambda _: 0))]
    assembly.table(pipe_table(rows))
    parts, _ = assembly.finish()
    return Partition(parts=parts)


def _workbook(data: bytes, limits: Limits, blobs: Blobs) -> Partition:
    assembly = Assembly(blobs)
    count = 0
    for sheet in read_sheets(data, limits):
        count += 1
        lay_out(sheet, assembly)
    parts, _ = assembly.finish()
    return Partition(parts=parts, fields={"sheets": count})
