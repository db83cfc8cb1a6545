"""Wiki pages in three markups: Markdown with front matter, DokuWiki and MediaWiki."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from aps_rag_pipeline.demo.facility import at
from aps_rag_pipeline.demo.items import Document
from aps_rag_pipeline.demo.writers.common import write_text
from aps_rag_pipeline.demo.writers.icms import markdown

FOLDER = "wiki"


def file_name(page: Document) -> str:
    return f"{FOLDER}/{page.id}.{page.form}"


def write(feeds: Path, pages: Iterable[Document]) -> int:
    count = 0
    for page in pages:
        write_text(feeds / file_name(page), text(page), page.minute)
        count += 1
    return count


def text(page: Document) -> str:
    return {"md": _markdown, "txt": _dokuwiki, "wiki": _mediawiki}[page.form](page)


def _markdown(page: Document) -> str:
    front = [
        "---",
        f'title: "{page.title}"',
        f"author: {page.author}",
        f"date: {at(page.minute).isoformat()}",
        f"access: [{', '.join(page.access)}]",
        "---",
        "",
    ]
    return "\n".join(front) + markdown(page)


def _dokuwiki(page: Document) -> str:
    out = [f"====== {page.title} ======", ""]
    for section in page.sections:
        if section.heading != page.title:
            out += [f"===== {section.heading} =====", ""]
        for paragraph in section.paragraphs:
            out += [paragraph, ""]
        if section.code:
            out += ["<code>", section.code, "</code>", ""]
    return "\n".join([*out, "See also [[:start|the start page]].", ""])


def _mediawiki(page: Document) -> str:
    out = []
    for section in page.sections:
        out.append(f"== {section.heading} ==" if section.heading != page.title else f"= {page.title} =")
        for paragraph in section.paragraphs:
            out += [paragraph, ""]
        if section.code:
            out += ["<pre>", section.code, "</pre>", ""]
    return "\n".join([*out, "[[Category:Operations]]", ""])
