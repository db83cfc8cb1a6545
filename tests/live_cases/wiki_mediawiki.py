"""A MediaWiki whose clock goes backwards."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from aps_rag_pipeline.demo.live.mediawiki import Server
from aps_rag_pipeline.demo.live.wiki_store import WikiStore


class Case:
    source = "wiki"
    form = "mediawiki"
    listing = r"generator=allpages"
    item = r"prop=revisions"

    def __init__(self) -> None:
        self.store = WikiStore()
        self.app = Server(self.store)

    def feed(self, url: str) -> dict[str, Any]:
        return {"name": "live", "source": self.source, "form": self.form, "url": f"{url}/w/api.php"}

    def put(self, number: int, text: str) -> None:
        self.store.now -= timedelta(hours=1)
        self.store.edit(f"RF item {number}", f"== Notes ==\n{text}\n", user="Kavya Rao")

    def delete(self, number: int) -> None:
        self.store.delete(f"RF item {number}")

    def wanted(self) -> dict[str, str]:
        return {
            page.title.replace(" ", "_"): page.latest.text.partition("\n")[2].strip()
            for page in self.store.pages.values()
            if not page.redirect
        }

    def close(self) -> None:
        return
