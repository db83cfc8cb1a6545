"""Encoding through the OpenVINO runtime: reads an ONNX file, needs no torch."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import cast

import numpy as np

from aps_rag_pipeline.models.description import ModelDescription
from aps_rag_pipeline.models.encoder import Encoder, Vectors
from aps_rag_pipeline.models.tokens import TokenIds, Tokens


class OpenVinoEncoder(Encoder):
    """Runs `file` (inputs `input_ids`, `attention_mask`; output `embedding`) on the CPU.

    `precision` is `f32`, or `auto` for what the CPU is fastest in (bfloat16 where it has it).
    `threads` 0 is one per core.
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
    ) -> None:
        # Importing OpenVINO reports it to its makers from a forked process; without that package a stub of it is used.
        sys.modules.setdefault("openvino_telemetry", cast(ModuleType, None))
        import openvino

        super().__init__(description, tokens, batch_size)
        config: dict[str, str | int] = {"PERFORMANCE_HINT": "LATENCY"}
        if precision == "f32":
            config["INFERENCE_PRECISION_HINT"] = "f32"
        if threads:
            config["INFERENCE_NUM_THREADS"] = threads
        self._request = openvino.Core().compile_model(file, "CPU", config).create_infer_request()
        # One request at a time: it uses every thread that it may anyway.
        self._lock = threading.Lock()

    def embed(self, ids: TokenIds, mask: TokenIds) -> Vectors:
        with self._lock:
            found = self._request.infer({"input_ids": ids, "attention_mask": mask})
            # The output's memory belongs to the request and is written over by the next call.
            return np.array(found["embedding"], dtype=np.float32)
