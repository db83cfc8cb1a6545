"""Pictures that were pasted into a text and stand in it as base64."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

from aps_rag_pipeline.sources.logbooks.model import Entry

_DATA_URI = re.compile(r"data:image/([\w.+-]{1,20})(?:;[\w=-]{1,40})?;base64,([A-Za-z0-9+/=%\s]*)")


def take_pasted(entry: Entry) -> None:
    """Move pasted pictures out of the entry's text, each to an address named by its bytes."""
    if "data:image/" not in entry.text:
        return

    def moved(match: re.Match[str]) -> str:
        coded = re.sub(r"\s+|%0[AD]", "", match[2]).replace("%2B", "+").replace("%2F", "/").replace("%3D", "=")
        try:
            data = base64.b64decode(coded, validate=True)
        except binascii.Error:
            return "#damaged-picture"
        if not data:
            return "#damaged-picture"
        ending = match[1].removeprefix("x-").replace("svg+xml", "svg").replace("jpeg", "jpg")
        address = f"pasted-{hashlib.blake2b(data, digest_size=6).hexdigest()}.{ending}"
        entry.pasted[address] = data
        entry.files[address] = address
        return address

    entry.text = _DATA_URI.sub(moved, entry.text)
