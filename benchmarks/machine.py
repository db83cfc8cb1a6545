"""The machine that figures were taken on, as a report states it."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

#: Instruction sets that decide how fast a model runs, by the kernel's names.
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
_PACKAGES = ("lancedb", "tantivy", "duckdb", "openvino", "tokenizers", "numpy", "pyarrow", "torch", "dagster")
#: Load average above which somebody else was at work too.
BUSY = 0.5


def describe() -> dict[str, Any]:
    """Facts of this machine and of the installed packages, JSON-ready."""
    cpu = _cpu()
    flags = set(cpu.get("flags", "").split())
    return {
        "cpu": cpu.get("model name", platform.processor() or "unknown"),
        "cores": os.cpu_count(),
        "flags": {name: name in flags for name in _FLAGS},
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{_release()}, Linux {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def lines(found: dict[str, Any], loads: Sequence[float]) -> list[str]:
    """The description as Markdown lines; with a warning when it was not idle at one of the run's beginnings."""
    has = [name for name, there in found["flags"].items() if there]
    lacks = [name for name, there in found["flags"].items() if not there]
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    told = [
        f"- CPU: {found['cpu']}, {found['cores']} cores; of what speeds up models it has {', '.join(has) or 'nothing'} "
        f"and lacks {', '.join(lacks) or 'nothing'}; memory {found['memory_gib']} GiB",
        f"- {found['system']}, Python {found['python']}; {packages}",
    ]
    if max(loads, default=0.0) > BUSY:
        told.append(
            f"- **Warning: the machine was not idle (load {max(loads):.2f}, above {BUSY}); times are too long by an "
            "unknown share.**"
        )
    return told


def _cpu() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    first = text.partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _release() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return platform.platform()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
