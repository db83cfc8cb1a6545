"""Ask a facility's released knowledge: `Corpus.open(home).ask("why did RF1 trip yesterday?")`.

Importing this package loads nothing heavy; the stores and the embedding model are loaded by the first question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from query.corpus import Corpus as Corpus

__all__ = ["Corpus"]


def __getattr__(name: str) -> object:
    if name == "Corpus":
        from query.corpus import Corpus

        return Corpus
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
