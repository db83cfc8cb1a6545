"""PVs of an Archiver Appliance, for the rules that hold for every live source."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from aps_rag_pipeline.demo.live.archiver import Server
from aps_rag_pipeline.demo.live.archiver_store import Archived


class Case:
    source = "epics"
    form = "archiver"
    listing = r"getAllPVs|getAllAliases|getAppliancesInCluster|exportConfig"
    item = ""

    def __init__(self) -> None:
        self.server = Server()
        self.app = self.server

    def feed(self, url: str) -> dict[str, Any]:
        return {"name": "live", "source": self.source, "form": self.form, "url": url}

    def put(self, number: int, text: str) -> None:
        name = _name(number)
        now = datetime.now(UTC)
        before = self.server.store.pvs.get(name)
        # What a person sees of a PV without its description: units, which are any text, and who else steers it.
        pv = Archived(name, {"EGU": text, "RTYP": "ai"}, created=before.created if before else now, modified=now)
        self.server.store.put(pv)

    def delete(self, number: int) -> None:
        self.server.store.pvs.pop(_name(number), None)

    def wanted(self) -> dict[str, str]:
        return {name: pv.fields["EGU"] for name, pv in self.server.store.pvs.items()}

    def close(self) -> None:
        return


def _name(number: int) -> str:
    return f"S{number:02d}A:Q1:CurrentAI"
