"""What several writers share: files that come out the same every time."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from aps_rag_pipeline.demo.facility import at

#: The earliest time that a zip archive can state.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_CORE_TIMES = re.compile(rb"(<dcterms:(created|modified)[^>]*>)[^<]*(</dcterms:)")


def write_text(path: Path, text: str, minute: int | None = None) -> None:
    """Write a small text file; `minute` sets its modification time, where a reader would take it for the page's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
    if minute is not None:
        stamp(path, minute)


def stamp(path: Path, minute: int) -> None:
    moment = at(minute).timestamp()
    os.utime(path, (moment, moment))


def label_text(labels: Sequence[str]) -> str:
    """Access labels as a table's cell holds them."""
    return "; ".join(labels)


def freeze_office_file(path: Path, minute: int) -> None:
    """Write an Office file again without the hour at which it was written, so that equal contents are equal bytes."""
    stated = at(minute).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    temporary = path.with_name(path.name + ".part")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "docProps/core.xml":
                data = _CORE_TIMES.sub(rb"\g<1>" + stated + rb"\g<3>", data)
            info = zipfile.ZipInfo(name, _ZIP_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            target.writestr(info, data)
    os.replace(temporary, path)
    stamp(path, minute)
