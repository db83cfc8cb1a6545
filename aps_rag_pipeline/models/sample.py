"""Texts by which two ways of running one model are compared."""

from __future__ import annotations

from itertools import cycle, islice

import numpy as np

from aps_rag_pipeline.models.encoder import Vectors

_TEXT = (
    "Beam was lost at 03:12 when the klystron of sector 36 tripped on reflected power; S-DCCT:CurrentM fell from "
    "102.1 mA to zero. The operator reset the interlock, the RF group replaced the circulator's water flow switch "
    "(WRQ 20417) and injection began again after 47 minutes — see Kühlwasser log, Δp = 0.3 bar, 温度 31 °C. "
    "def restore(file): return caput('L1:RF:PhaseAO', 12.5) # | column | value |\n|---|---|"
)
#: Lengths in words from one to about the 200 tokens that nearly every model can read, plus texts that trip tokenizers.
SAMPLE: tuple[str, ...] = (
    "",
    " ",
    "LTS:H1:CurrentAO",
    "é́ ﬁ 漢字 🔧 \u200b",
    *(
        " ".join(islice(cycle(_TEXT.split()), start, start + length))
        for start, length in enumerate((1, 3, 7, 12, 20, 33, 54, 80))
    ),
)


def lowest_cosine(one: Vectors, other: Vectors) -> float:
    """The smallest cosine between rows of the same place; both of shape (n, dimensions) with rows of length 1."""
    return float(np.sum(one.astype(np.float64) * other, axis=1).min())
