"""Encodes JSON lists of texts from standard input, a line each; answers base64 of float32 rows, a line each."""

from __future__ import annotations

import base64
import json
import os
import sys


def main(folder: str) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    for line in sys.stdin.buffer:
        rows = model.encode(json.loads(line), normalize_embeddings=True, show_progress_bar=False)
        sys.stdout.buffer.write(base64.b64encode(rows.astype("float32").tobytes()) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
