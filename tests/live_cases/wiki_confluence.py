"""A Confluence server of one space, which gives few pages at a time."""

from __future__ import annotations

import re
from typing import Any

from tests.live_cases.confluence import Confluence


class Case:
    source = "wiki"
    form = "confluence"
    listing = r"/rest/api/content\?"
    item = r"/rest/api/content/\d+"
    per_item = 2  # what left the listing is asked for by name

    def __init__(self) -> None:
        self.app = Confluence(most=3)

    def feed(self, url: str) -> dict[str, Any]:
        place = url + self.app.context
        return {"name": "live", "source": self.source, "form": self.form, "url": place, "options": {"spaces": ["OPS"]}}

    def put(self, number: int, text: str) -> None:
        self.app.page("OPS", f"RF item {number}", f"<h2>Notes</h2><p>{text}</p>")

    def delete(self, number: int) -> None:
        page = self.app.find("OPS", f"RF item {number}")
        assert page is not None
        page.status = "trashed"

    def wanted(self) -> dict[str, str]:
        live = (page for page in self.app.pages.values() if page.status == "current")
        return {
            f"OPS/{p.title.replace(' ', '_')}": re.sub("<[^>]*>", " ", p.storage).split(None, 1)[1].strip()
            for p in live
        }

    def close(self) -> None:
        return
