"""Encoding through the OpenVINO runtime: reads an ONNX file, needs no torch."""

from __future__ import annotations

import os
import queue
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from aps_rag_pipeline.models.description import ModelDescription
from aps_rag_pipeline.models.encoder import Encoder, Vectors
from aps_rag_pipeline.models.tokens import TokenIds, Tokens

#: Each batch at work has memory of its own; beyond this the threads share batches.
_MOST_AT_ONCE = 8


class OpenVinoEncoder(Encoder):
    """Runs `file` (inputs `input_ids`, `attention_mask`; output `embedding`) on the CPU.

    `precision` is `f32`, or `auto` for what the CPU is fastest in (bfloat16 where it has it).
    `threads` 0 is one per core. They work on one batch together, which gives a query its vector soonest; with `bulk` on
    several side by side, which takes less time for many texts, since no thread waits for another's share of each layer.
    """

    backend = "openvino"

    def __init__(
        self,
        file: Path,
        description: ModelDescription,
        tokens: Tokens,
        *,
        precision: str = "f32",
        threads: int = 0,
        batch_size: int = 32,
        bulk: bool = False,
    ) -> None:
        # Importing OpenVINO reports it to its makers from a forked process; without that package a stub of it is used.
        sys.modules.setdefault("openvino_telemetry", cast(ModuleType, None))
        import openvino

        at_once = min(threads or usable_cores(), _MOST_AT_ONCE) if bulk else 1
        super().__init__(description, tokens, batch_size, batches_at_once=at_once)
        config: dict[str, str | int] = {"NUM_STREAMS": at_once} if bulk else {"PERFORMANCE_HINT": "LATENCY"}
        if threads:
            config["INFERENCE_NUM_THREADS"] = threads
        if precision == "f32":
            config["INFERENCE_PRECISION_HINT"] = "f32"
        model = openvino.Core().compile_model(file, "CPU", config)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(self.batches_at_once):
            self._requests.put(model.create_infer_request())
        # OpenVINO's binding prepares itself in its first call; two threads that make it at once wait for each other for
        # ever, one with Python's lock and one with the binding's.
        self.embed(np.ones((1, 1), dtype=np.int64), np.ones((1, 1), dtype=np.int64))

    def embed(self, ids: TokenIds, mask: TokenIds) -> Vectors:
        request = self._requests.get()
        try:
            found = request.infer({"input_ids": ids, "attention_mask": mask})
            # The output's memory belongs to the request and is written over by the next call.
            return np.array(found["embedding"], dtype=np.float32)
        finally:
            self._requests.put(request)


def usable_cores() -> int:
    """Cores that this process may use, which a batch system or a container may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
