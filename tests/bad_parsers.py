"""The reading process with a parser that does what the file says, for tests of what a parser may do at its worst."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

from aps_rag_pipeline.content import parse_worker
from aps_rag_pipeline.content.children import write_frame
from aps_rag_pipeline.content.marked import parse_page
from aps_rag_pipeline.content.parsers import parse
from aps_rag_pipeline.content.workbooks import read_sheets

WORKER = "tests.bad_parsers"


def misbehave(data: bytes, *others: Any) -> Any:
    order = data.removeprefix(b"%PDF-")
    held = []
    while order == b"hang":
        time.sleep(10)
    while order == b"spin":
        pass
    while order == b"grow":
        held.append(bytearray(b"x" * 8_000_000))
    if order == b"crash":
        ctypes.string_at(0)
    if order == b"exit":
        os._exit(3)
    if order == b"killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == b"deep":
        return misbehave(data, *others)
    if order == b"nonsense":
        write_frame(others[2]._target, b"hello")
    if order == b"talk":
        print("frames are not written here")
        os.write(1, b"nor here")
        sys.stdin.read()
        return parse(b"<html><p>said</p>", *others)
    return parse(data, *others)


def misbehave_on_page(markup: str, text: str, *others: Any) -> Any:
    if "hang" in text:
        misbehave(b"hang")
    return parse_page(markup, text, *others)


def misbehave_on_rows(data: bytes, limits: Any) -> Any:
    if b"crash" in data:
        ctypes.string_at(0)
    return read_sheets(data, limits)


if __name__ == "__main__":
    parse_worker.parse = misbehave
    parse_worker.parse_page = misbehave_on_page
    parse_worker.read_sheets = misbehave_on_rows
    parse_worker.main()
