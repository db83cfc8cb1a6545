"""What PVs say at this moment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from aps_rag_pipeline.sources.pvs.answers import Answer, ProtocolName, open_client


def read_now(
    names: Sequence[str],
    protocol: ProtocolName = "channel_access",
    *,
    addresses: Sequence[str] = (),
    port: int | None = None,
    timeout_s: float = 5.0,
) -> dict[str, Answer]:
    """An answer for each name: value, units, severity and time, or why there is none.

    All names are asked at once; it takes no longer than a few `timeout_s`. Without `addresses` PVs are searched for as
    the environment says (`EPICS_CA_ADDR_LIST`, `EPICS_PVA_ADDR_LIST`).
    """
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    with closing(open_client(protocol, addresses, port, timeout_s)) as client:
        return client.ask(wanted, fields=False)
