"""BELY by its REST interface: entries of shift documents, some in sections, some told by their reply."""

from __future__ import annotations

from typing import Any

from aps_rag_pipeline.demo.live.bely import Server
from aps_rag_pipeline.demo.live.bely_store import MemoryStore

_PER_DOCUMENT = 4


class Case:
    """Items 3, 6, ... stand in a section; of 1, 4, ... the text is that of a reply. Writing even ones leaves the time
    of their document alone."""

    source = "bely"
    form = "rest"
    listing = r"^/api/Logbook/Log(bookTypes|Documents)|^/api/Search"
    item = r"^.*/api/Logbook/(LogEntries|LogbookSections)"
    per_item = 3  # entries of the document, its sections, entries of the one section

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.app = Server(self.store)
        self.texts: dict[int, str] = {}

    def feed(self, url: str) -> dict[str, Any]:
        return {"name": "live", "source": "bely", "form": "rest", "url": url}

    def put(self, number: int, text: str) -> None:
        document = 100 + number // _PER_DOCUMENT
        if document not in self.store.documents:
            self.store.add_document(document, kinds=(4, 7) if document % 2 else (4,))
            self.store.add_section(document, document * 10, "Radio frequency")
        quiet = number % 2 == 0
        if number % 3 == 1:
            if number not in self.texts:
                self.store.write(document, number, "Seen from the control room")
            self.store.write(document, 1000 + number, text, parent=number, quiet=quiet)
        else:
            section = document * 10 if number % 3 == 0 else 0
            self.store.write(document, number, text, section=section, quiet=quiet)
        self.texts[number] = text

    def delete(self, number: int) -> None:
        document = 100 + number // _PER_DOCUMENT
        self.store.delete(document, number)
        del self.texts[number]
        if not any(other // _PER_DOCUMENT == number // _PER_DOCUMENT for other in self.texts):
            del self.store.documents[document]

    def wanted(self) -> dict[str, str]:
        return {str(number): text for number, text in self.texts.items()}

    def close(self) -> None:
        return
