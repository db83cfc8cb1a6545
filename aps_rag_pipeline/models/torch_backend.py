"""Encoding through sentence-transformers: any model it can load, on a GPU where there is one."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from aps_rag_pipeline.models.description import ModelDescription
from aps_rag_pipeline.models.encoder import Encoder, Vectors
from aps_rag_pipeline.models.sample import SAMPLE, lowest_cosine
from aps_rag_pipeline.models.tokens import TokenIds, Tokens

log = logging.getLogger(__name__)

#: Half precision is used only while the vectors stay this near to those of full precision.
_BF16_COSINE = 0.999


class TorchEncoder(Encoder):
    """Runs the model of `folder`; in bfloat16 where the processor has it and the vectors bear it."""

    backend = "torch"

    def __init__(
        self, folder: Path, description: ModelDescription, tokens: Tokens, *, threads: int = 0, batch_size: int = 32
    ) -> None:
        import torch

        super().__init__(description, tokens, batch_size)
        if threads:
            torch.set_num_threads(threads)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.precision = "f32"
        self._model = load(folder, self.device)
        if _has_bf16(self.device):
            self._try_bf16(folder)

    def embed(self, ids: TokenIds, mask: TokenIds) -> Vectors:
        import torch

        features = {
            "input_ids": torch.from_numpy(ids).to(self.device),
            "attention_mask": torch.from_numpy(mask).to(self.device),
        }
        with torch.inference_mode():
            found = self._model(features)["sentence_embedding"].float().cpu().numpy()
        return np.asarray(found, dtype=np.float32)

    def _try_bf16(self, folder: Path) -> None:
        import torch

        sample = [self.tokens.head(text) for text in SAMPLE]
        full = self.encode_passages(sample)
        self._model.to(torch.bfloat16)
        cosine = lowest_cosine(full, self.encode_passages(sample))
        if cosine >= _BF16_COSINE:
            self.precision = "bf16"
            return
        log.info("bfloat16 is left alone: its vectors are only %.5f like those of full precision", cosine)
        self._model = load(folder, self.device)  # rounded weights cannot be widened again


def load(folder: Path, device: str) -> Any:
    """The model as sentence-transformers runs it, from local files only."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device=device, local_files_only=True).eval()


def _has_bf16(device: str) -> bool:
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))
