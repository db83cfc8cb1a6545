"""Named places before and after every durable step, where a test can kill the process.

`APS_RAG_FAILPOINT=NAME` kills at the first passage of a place, `NAME:3` at the third. Without the variable a place costs
a comparison.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "APS_RAG_FAILPOINT"

_wanted, _, _times = os.environ.get(VARIABLE, "").partition(":")
_left = int(_times or 1)


def passing(name: str) -> None:
    """Die here, as by a power failure, when this place is the wanted one: nothing is cleaned up or flushed."""
    global _left
    if name != _wanted:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
