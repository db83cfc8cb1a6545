"""Controlled documents of a content server, as a service that the shared rules drive."""

from __future__ import annotations

from typing import Any

from aps_rag_pipeline.demo.live.idcplg import Server


class Case:
    """An empty content server. An edit is a new revision, as people work with one."""

    source = "icms"
    form = "webcenter"
    listing = "IdcService=GET_SEARCH_RESULTS"
    item = "IdcService=GET_FILE"

    def __init__(self) -> None:
        self.app = Server(max_results=7)
        self._texts: dict[str, str] = {}

    def feed(self, url: str) -> dict[str, Any]:
        return {"name": "live", "source": self.source, "form": self.form, "url": f"{url}/docs"}

    def put(self, number: int, text: str) -> None:
        name = _content_id(number)
        self.app.store.check_in(name, text.encode(), title=f"Document {number}", file=f"{name}.txt")
        self._texts[name] = text

    def delete(self, number: int) -> None:
        name = _content_id(number)
        self.app.store.delete(name)
        del self._texts[name]

    def wanted(self) -> dict[str, str]:
        return dict(self._texts)

    def close(self) -> None:
        return


def _content_id(number: int) -> str:
    return f"APS_{1273300 + number}"
