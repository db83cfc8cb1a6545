"""A virtual environment for each peer, with fixed versions, so that figures can be compared over time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".venvs"
#: Free space that an environment needs, in bytes.
NEEDED = 4 * 2**30
_DONE = ".packages"


@dataclass(frozen=True)
class Environment:
    """`oldest` is the least Python (major, minor) that the packages run on."""

    name: str
    packages: tuple[str, ...]
    oldest: tuple[int, int] = (3, 11)

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def _stamp(self) -> str:
        return hashlib.sha256("\n".join(self.packages).encode()).hexdigest()

    @property
    def ready(self) -> bool:
        note = self.folder / _DONE
        return note.is_file() and note.read_text().startswith(self._stamp)

    def make(self) -> None:
        """Install the packages, unless they are there.

        Raises:
            UnavailableError: there is no room, no Python that is new enough, or a package cannot be had.
        """
        if self.ready:
            return
        FOLDER.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(FOLDER).free < NEEDED:
            raise UnavailableError(f"{self.name}: less than {NEEDED >> 30} GiB free at {FOLDER}")
        shutil.rmtree(self.folder, ignore_errors=True)
        interpreter = _interpreter(self.oldest)
        if interpreter is None:
            raise UnavailableError(f"{self.name}: needs Python {'.'.join(map(str, self.oldest))} or newer; none found")
        try:
            _run([interpreter, "-m", "venv", self.folder])
            _run([self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.packages])
        except subprocess.CalledProcessError as error:
            raise UnavailableError(f"{self.name}: {error.stderr.strip()[-1000:]}") from error
        (self.folder / _DONE).write_text(self._stamp + "\n" + "\n".join(self.packages) + "\n")

    def versions(self, names: Iterable[str]) -> dict[str, str]:
        """Installed versions of some packages."""
        code = "import importlib.metadata as m, sys; print(*(m.version(n) for n in sys.argv[1:]))"
        wanted = list(names)
        found = _run([self.python, "-c", code, *wanted]).split()
        return dict(zip(wanted, found, strict=True))


class UnavailableError(Exception):
    """An environment cannot be made on this machine; the reason stands in the report."""


#: torch 2.13.0 is what this project pins too: pip takes the CPU build where one is offered. lancedb 0.36 is the newest
#: with which the LanceDB store of LlamaIndex deletes: from 0.40 on its filter `doc_id = "X"` is read as a column.
LLAMA_INDEX = Environment(
    "llama_index",
    (
        "llama-index-core==0.14.25",
        "llama-index-vector-stores-lancedb==0.6.0",
        "llama-index-embeddings-huggingface==0.8.0",
        "lancedb==0.36.0",
        "pandas==2.3.3",  # its store imports it without asking for it
        "torch==2.13.0",
    ),
)
#: Without torch, of which there is no CPU build for every Python: the model runs in a process of the other environment.
HAIKU_RAG = Environment(
    "haiku_rag",
    ("haiku.rag-slim==0.101.1", "docling-core[chunking]==2.104.0", "transformers==5.24.0"),
    oldest=(3, 12),
)


def _interpreter(oldest: tuple[int, int]) -> str | None:
    """The running Python, or the first newer one that starts."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    for minor in range(oldest[1], oldest[1] + 4):
        name = f"python{oldest[0]}.{minor}"
        found = [shutil.which(name), *sorted(Path.home().glob(f".pyenv/versions/{oldest[0]}.{minor}.*/bin/{name}"))]
        for path in filter(None, found):
            if subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
                return str(path)
    return None


def _run(command: list[str | Path]) -> str:
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
    return done.stdout
