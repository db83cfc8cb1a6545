"""Leaving torch: writes an ONNX file of a local model once, and accepts it only if it gives the same vectors.

The export runs in a process of its own (`python -m aps_rag_pipeline.models.export FOLDER NAME CACHE`), so that the
caller never imports torch and outlives whatever happens there.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from aps_rag_pipeline.models.description import ModelDescription, ModelError, ModelFiles, describe, write_atomically
from aps_rag_pipeline.models.sample import SAMPLE, lowest_cosine
from aps_rag_pipeline.models.tokens import Tokens

log = logging.getLogger(__name__)

_COSINE = 0.9999
_OPSET = 17
_TIME_LIMIT_S = 900


class Exported(msgspec.Struct, frozen=True):
    """What lies beside an accepted ONNX file. `cosine` is the lowest against sentence-transformers, in `precision`."""

    description: ModelDescription
    precision: str
    cosine: float


def exported(cache_dir: Path, fingerprint: str) -> tuple[Path, Exported] | None:
    """The folder (`model.onnx`, `tokenizer.json`, `export.json`) of an accepted export, if there is one."""
    folder = cache_dir / fingerprint
    try:
        note = msgspec.json.decode((folder / "export.json").read_bytes(), type=Exported)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    whole = (folder / "model.onnx").is_file() and (folder / "tokenizer.json").is_file()
    return (folder, note) if whole else None


def ensure_exported(files: ModelFiles, cache_dir: Path) -> tuple[Path, Exported]:
    """The accepted export, made now if there is none. A refusal is remembered until a package changes.

    Raises:
        ModelError: the model cannot leave torch; the message says why.
    """
    fingerprint = files.description.fingerprint
    if (found := exported(cache_dir, fingerprint)) is not None:
        return found
    if not files.plain:
        raise ModelError(f"{files.folder}: more than a transformer with mean or first-token pooling")
    refusal = cache_dir / f"{fingerprint}.refused.json"
    if (reason := _remembered(refusal)) is not None:
        raise ModelError(reason)
    log.info("writing the ONNX form of %s into %s; this is done once", files.description.name, cache_dir)
    reason = _run(files, cache_dir)
    if (found := exported(cache_dir, fingerprint)) is not None:
        return found
    write_atomically(refusal, json.dumps({"versions": _versions(), "reason": reason}).encode())
    raise ModelError(reason)


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("torch", "transformers", "openvino")}


def _remembered(refusal: Path) -> str | None:
    try:
        note = json.loads(refusal.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return str(note["reason"]) if note.get("versions") == _versions() else None


def _run(files: ModelFiles, cache_dir: Path) -> str:
    """Export in a child process; returns what it said when it failed."""
    command = [sys.executable, "-m", __name__, str(files.folder), files.description.name, str(cache_dir)]
    offline = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    try:
        done = subprocess.run(
            command, env=os.environ | offline, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the export took longer than {_TIME_LIMIT_S} s"
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"the export ended with code {done.returncode}"


def export(files: ModelFiles, cache_dir: Path) -> Exported:
    """Write, check and publish the ONNX form in this process. Imports torch.

    Raises:
        ModelError: its vectors differ from those of sentence-transformers.
    """
    cache_dir.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".export-", dir=cache_dir))
    try:
        _write_onnx(files, draft / "model.onnx")
        shutil.copyfile(files.tokenizer, draft / "tokenizer.json")
        note = _check(files, draft)
        (draft / "export.json").write_bytes(msgspec.json.encode(note))
        draft.chmod(0o755)
        _publish(draft, cache_dir / files.description.fingerprint)
        return note
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _publish(draft: Path, folder: Path) -> None:
    try:
        os.replace(draft, folder)
    except OSError:
        # Another process was first, or left half a folder behind.
        if exported(folder.parent, folder.name) is None:
            shutil.rmtree(folder)
            os.replace(draft, folder)


def _write_onnx(files: ModelFiles, file: Path) -> None:
    import torch
    from transformers import AutoModel

    class Embedder(torch.nn.Module):
        """Transformer and pooling in one graph, so that only one vector a text comes back from the runtime."""

        def __init__(self, model: Any, first_token: bool) -> None:
            super().__init__()
            self.model = model
            self.first_token = first_token

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            states: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            if self.first_token:
                return states[:, 0]
            kept = attention_mask.unsqueeze(-1).to(states.dtype)
            return (states * kept).sum(1) / kept.sum(1).clamp(min=1e-9)

    model = AutoModel.from_pretrained(
        files.transformer, attn_implementation="eager", dtype=torch.float32, local_files_only=True
    )
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 8, 0, 0, 0]])
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    batch, length = {0: "batch"}, {0: "batch", 1: "length"}
    with torch.inference_mode():
        torch.onnx.export(
            Embedder(model, files.description.pooling == "cls").eval(),
            (ids, mask),
            str(file),
            dynamo=False,  # the newer exporter needs two packages more and has nothing to offer here
            opset_version=_OPSET,
            input_names=["input_ids", "attention_mask"],
            output_names=["embedding"],
            dynamic_axes={"input_ids": length, "attention_mask": length, "embedding": batch},
        )


def _check(files: ModelFiles, draft: Path) -> Exported:
    from aps_rag_pipeline.models.openvino_backend import OpenVinoEncoder
    from aps_rag_pipeline.models.torch_backend import load

    description = files.description
    tokens = Tokens.from_file(draft / "tokenizer.json", description)
    sample = [tokens.head(text) for text in SAMPLE]
    texts = [description.passage_prefix + text for text in sample]
    # `prompt` is given, so that no default prompt of the model is added to the prefix.
    reference = load(files.folder, "cpu").encode(texts, prompt="", normalize_embeddings=True, show_progress_bar=False)
    cosine = 0.0
    for precision in ("auto", "f32"):
        encoder = OpenVinoEncoder(draft / "model.onnx", description, tokens, precision=precision)
        cosine = lowest_cosine(reference, encoder.encode_passages(sample))
        if cosine >= _COSINE:
            return Exported(description, precision, cosine)
    raise ModelError(f"the ONNX form's vectors are only {cosine:.6f} like the model's own, {_COSINE} is asked for")


def main(arguments: list[str]) -> int:
    folder, name, cache_dir = arguments
    try:
        export(describe(Path(folder), name, Path(cache_dir)), Path(cache_dir))
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
