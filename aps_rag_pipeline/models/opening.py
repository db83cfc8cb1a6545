"""From the settings to a ready encoder."""

from __future__ import annotations

import logging
from pathlib import Path

from aps_rag_pipeline.models.description import ModelDescription, ModelError, ModelFiles, describe, resolve
from aps_rag_pipeline.models.encoder import Encoder
from aps_rag_pipeline.models.export import Exported, ensure_exported, exported
from aps_rag_pipeline.models.hashing import PREFIX, HashEncoder
from aps_rag_pipeline.models.tokens import Tokens
from aps_rag_pipeline.settings import Models

log = logging.getLogger(__name__)

#: What the NVIDIA driver makes; without it nobody need import torch to learn that there is no GPU.
_GPU_NODE = Path("/dev/nvidiactl")


def open_encoder(models: Models, cache_dir: Path, *, fingerprint: str | None = None, bulk: bool = False) -> Encoder:
    """The encoder of `models.embedding`.

    `models.backend` `auto` takes the first of these that can be had: torch, if `bulk` (many texts are to come) and
    there is an NVIDIA GPU; OpenVINO, exporting the model into `cache_dir/<fingerprint>` if that was not done before;
    torch, with the reason in the log. A named backend is taken or fails.

    `fingerprint` asks for exactly that model, as a release names it: it is opened from `cache_dir` if it lies there,
    whatever the settings name by now.

    Raises:
        ModelError: the model is not on this machine, is not the one asked for, or the backend cannot run it.
    """
    if models.embedding.startswith(PREFIX):
        encoder = HashEncoder(models.embedding, models.batch_size)
        _demand(encoder.description, fingerprint)
        return encoder
    torch_first = models.backend == "torch" or (models.backend == "auto" and bulk and _has_gpu())
    if not torch_first and fingerprint is not None and (found := exported(cache_dir, fingerprint)) is not None:
        return _openvino(*found, models, bulk)
    files = describe(resolve(models.embedding), models.embedding, cache_dir)
    _demand(files.description, fingerprint)
    if torch_first:
        return _torch(files, models)
    try:
        return _openvino(*ensure_exported(files, cache_dir), models, bulk)
    except (ModelError, ImportError, RuntimeError, OSError) as error:
        if models.backend == "openvino":
            raise ModelError(f"OpenVINO cannot run {models.embedding!r}: {error}") from error
        log.warning("torch runs %s because OpenVINO cannot: %s", models.embedding, error)
        return _torch(files, models)


def _demand(description: ModelDescription, fingerprint: str | None) -> None:
    if fingerprint is not None and description.fingerprint != fingerprint:
        raise ModelError(
            f"the settings name the model {description.name!r} ({description.fingerprint}), but {fingerprint} is asked "
            "for; name the model that the release was made with, or publish a release with this one (aps-rag sync)"
        )


def _openvino(folder: Path, note: Exported, models: Models, bulk: bool) -> Encoder:
    from aps_rag_pipeline.models.openvino_backend import OpenVinoEncoder

    return OpenVinoEncoder(
        folder / "model.onnx",
        note.description,
        Tokens.from_file(folder / "tokenizer.json", note.description),
        precision=note.precision,
        threads=models.threads,
        batch_size=models.batch_size,
        bulk=bulk,
    )


def _torch(files: ModelFiles, models: Models) -> Encoder:
    from aps_rag_pipeline.models.torch_backend import TorchEncoder

    tokens = Tokens.from_file(files.tokenizer, files.description)
    return TorchEncoder(files.folder, files.description, tokens, threads=models.threads, batch_size=models.batch_size)


def _has_gpu() -> bool:
    if not _GPU_NODE.exists():
        return False
    import torch

    return torch.cuda.is_available()
