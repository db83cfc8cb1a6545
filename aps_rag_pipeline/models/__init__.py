"""Embedding models: described rather than assumed, found among local files, run with or without torch."""

from aps_rag_pipeline.models.description import (
    ModelDescription,
    ModelError,
    TextTooLongError,
    describe,
    resolve,
)
from aps_rag_pipeline.models.encoder import Encoder, Progress
from aps_rag_pipeline.models.opening import open_encoder
from aps_rag_pipeline.models.tokens import Tokens

__all__ = [
    "Encoder",
    "ModelDescription",
    "ModelError",
    "Progress",
    "TextTooLongError",
    "Tokens",
    "describe",
    "open_encoder",
    "resolve",
]
