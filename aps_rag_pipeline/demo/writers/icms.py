"""Controlled documents in office formats and papers, each folder described by a sidecar table."""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Iterable
from pathlib import Path

from aps_rag_pipeline.demo.facility import at
from aps_rag_pipeline.demo.items import Document, Section
from aps_rag_pipeline.demo.writers.common import freeze_office_file, label_text, stamp, write_text
from aps_rag_pipeline.demo.writers.pdf import pdf

DOCUMENTS, PAPERS = "icms/documents", "icms/papers"
SIDECAR = ("file", "content_id", "title", "revision", "status", "in_date", "author", "access")
PAPER_SIDECAR = ("file", "arxiv_id", "doi", "title", "authors", "year")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def file_name(document: Document, revision: str) -> str:
    """Path below the feed: folder, content id and revision, as an export names them."""
    return f"{document.folder}/{document.id}_r{revision}.{document.form}"


def sidecar_row(document: Document, revision: str, status: str) -> list[str]:
    day = f"{at(document.minute):%Y-%m-%d}"
    return [file_name(document, revision), document.id, document.title, revision, status, day, document.author,
            label_text(document.access)]  # fmt: skip


def write(feeds: Path, documents: Iterable[Document]) -> int:
    """Write every revision of every document; returns the number of content ids."""
    count = 0
    root = feeds / DOCUMENTS
    root.mkdir(parents=True, exist_ok=True)
    with (feeds / f"{DOCUMENTS}.csv").open("w", encoding="utf-8", newline="") as file:
        sidecar = csv.writer(file)
        sidecar.writerow(SIDECAR)
        for document in documents:
            for revision in document.old_revisions:
                write_document(root / file_name(document, revision), _superseded(document, revision))
                sidecar.writerow(sidecar_row(document, revision, "Obsolete"))
            write_document(root / file_name(document, document.revision), document)
            sidecar.writerow(sidecar_row(document, document.revision, document.status))
            count += 1
    return count


def write_papers(feeds: Path, papers: Iterable[Document]) -> int:
    count = 0
    root = feeds / PAPERS
    root.mkdir(parents=True, exist_ok=True)
    with (feeds / f"{PAPERS}.csv").open("w", encoding="utf-8", newline="") as file:
        sidecar = csv.writer(file)
        sidecar.writerow(PAPER_SIDECAR)
        for paper in papers:
            name = f"{_UNSAFE.sub('_', paper.id.split(':', 1)[1])}.{paper.form}"
            write_document(root / name, paper)
            scheme, _, bare = paper.id.partition(":")
            ids = (bare, "") if scheme == "arXiv" else ("", bare)
            sidecar.writerow([name, *ids, paper.title, paper.author, paper.revision])
            count += 1
    return count


def _superseded(document: Document, revision: str) -> Document:
    """An older revision: the same title, and a first section that says less."""
    first = Section(document.sections[0].heading, document.sections[0].paragraphs[:1])
    return Document(document.id, document.title, document.author, document.minute, [first], document.form, revision)


def write_document(path: Path, document: Document) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _WRITERS[document.form](path, document)
    stamp(path, document.minute)


def _docx(path: Path, document: Document) -> None:
    from docx import Document as Docx

    doc = Docx()
    doc.core_properties.author = document.author
    doc.core_properties.title = document.title
    doc.add_heading(document.title, 0)
    for section in document.sections:
        doc.add_heading(section.heading, 1)
        for paragraph in section.paragraphs:
            doc.add_paragraph(paragraph)
        if section.table:
            table = doc.add_table(len(section.table), len(section.table[0]))
            for row, values in zip(table.rows, section.table, strict=True):
                for cell, value in zip(row.cells, values, strict=True):
                    cell.text = value
    doc.save(str(path))
    freeze_office_file(path, document.minute)


def _pptx(path: Path, document: Document) -> None:
    from pptx import Presentation
    from pptx.util import Inches

    deck = Presentation()
    deck.core_properties.author = document.author
    deck.core_properties.title = document.title
    opening = deck.slides.add_slide(deck.slide_layouts[0])
    opening.shapes.title.text = document.title
    opening.placeholders[1].text = document.author
    for section in document.sections:
        slide = deck.slides.add_slide(deck.slide_layouts[1 if section.paragraphs else 5])
        slide.shapes.title.text = section.heading
        if section.paragraphs:
            slide.placeholders[1].text = "\n".join(section.paragraphs)
        if section.table:
            size = (len(section.table), len(section.table[0]))
            frame = slide.shapes.add_table(*size, Inches(0.5), Inches(3.2), Inches(9), Inches(0.3 * size[0]))
            for row, values in enumerate(section.table):
                for column, value in enumerate(values):
                    frame.table.cell(row, column).text = value
    deck.save(str(path))
    freeze_office_file(path, document.minute)


def _xlsx(path: Path, document: Document) -> None:
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    notes = book.create_sheet("Notes")
    notes.append([document.title])
    for section in document.sections:
        notes.append([section.heading])
        for paragraph in section.paragraphs:
            notes.append([paragraph])
    for section in document.sections:
        if section.table:
            sheet = book.create_sheet(_UNSAFE.sub(" ", section.heading)[:31])
            for row in section.table:
                sheet.append(row)
    book.save(path)
    freeze_office_file(path, document.minute)


def _pdf(path: Path, document: Document) -> None:
    lines = [("title", document.title), ("text", document.author)]
    for section in document.sections:
        lines.append(("heading", section.heading))
        lines += [("text", paragraph) for paragraph in section.paragraphs]
        lines += [("code", "  ".join(f"{value:<18}" for value in row).rstrip()) for row in section.table]
    path.write_bytes(pdf(lines, document.title))


def _html(path: Path, document: Document) -> None:
    out = [f"<!DOCTYPE html>\n<html><head><meta charset='utf-8'><title>{html.escape(document.title)}</title></head>"]
    out.append(f"<body>\n<h1>{html.escape(document.title)}</h1>")
    for section in document.sections:
        out.append(f"<h2>{html.escape(section.heading)}</h2>")
        out += [f"<p>{html.escape(paragraph)}</p>" for paragraph in section.paragraphs]
        if section.table:
            head, *rows = section.table
            out.append("<table><tr>" + "".join(f"<th>{html.escape(v)}</th>" for v in head) + "</tr>")
            out += ["<tr>" + "".join(f"<td>{html.escape(v)}</td>" for v in row) + "</tr>" for row in rows]
            out.append("</table>")
    write_text(path, "\n".join([*out, "</body></html>", ""]))


def markdown(document: Document) -> str:
    out = [f"# {document.title}", ""]
    for section in document.sections:
        if section.heading != document.title:
            out += [f"## {section.heading}", ""]
        for paragraph in section.paragraphs:
            out += [paragraph, ""]
        if section.table:
            head, *rows = section.table
            out.append("| " + " | ".join(head) + " |")
            out.append("|" + " --- |" * len(head))
            out += ["| " + " | ".join(row) + " |" for row in rows]
            out.append("")
        if section.code:
            out += ["```", section.code, "```", ""]
    return "\n".join(out)


def _md(path: Path, document: Document) -> None:
    write_text(path, markdown(document))


def _txt(path: Path, document: Document) -> None:
    out = [document.title.upper(), ""]
    for section in document.sections:
        out += [section.heading, "-" * len(section.heading), *section.paragraphs]
        out += ["   ".join(row) for row in section.table]
        out.append("")
    write_text(path, "\n".join(out))


_WRITERS = {"docx": _docx, "pptx": _pptx, "xlsx": _xlsx, "pdf": _pdf, "html": _html, "md": _md, "txt": _txt}
