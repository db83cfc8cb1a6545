"""haiku.rag on a folder of documents, through its batch interface.

The interface imports, updates and deletes documents but does not compare: what is new, changed or gone is found here by
address and digest, as a caller would have to. Paragraphs are handed over converted, which needs neither Docling nor
torch. The model runs in a process of another environment behind an OpenAI-compatible address on loopback; it is started
by the first text to embed, and counted with this process.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import peer_work

#: The Python of an environment that has sentence-transformers.
MODEL_PYTHON = "BENCH_MODEL_PYTHON"
DIMENSIONS = 384
CHUNK_TOKENS = 180
BATCH = 500
_SEARCH_TYPES = {"hybrid": "hybrid", "dense": "vector"}


class ModelProcess:
    """Asks `serve_model.py`, which is started when it is first needed."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def encode(self, texts: list[str]) -> list[bytes]:
        with self._lock:
            if self._process is None:
                script = Path(__file__).with_name("serve_model.py")
                self._process = subprocess.Popen(
                    [os.environ[MODEL_PYTHON], script, self._model], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            self._process.stdin.write(json.dumps(texts).encode() + b"\n")
            self._process.stdin.flush()
            rows = base64.b64decode(self._process.stdout.readline())
        size = DIMENSIONS * 4
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()


def serve(model: ModelProcess) -> ThreadingHTTPServer:
    """An address that answers `POST /v1/embeddings` as OpenAI's does."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
            rows = [_embedding(row, asked.get("encoding_format") == "base64") for row in model.encode(texts)]
            data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
            usage = {"prompt_tokens": 0, "total_tokens": 0}
            body = json.dumps({"object": "list", "model": asked["model"], "data": data, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _embedding(row: bytes, encoded: bool) -> str | list[float]:
    if encoded:
        return base64.b64encode(row).decode()
    return list(memoryview(row).cast("f"))


class Haiku:
    modes = ("hybrid", "dense")

    def __init__(self, store: Path, model: Path) -> None:
        from haiku.rag.client import HaikuRAG
        from haiku.rag.config import AppConfig

        self._model = ModelProcess(model)
        self._server = serve(self._model)
        address = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        named = {
            "provider": "openai",
            "name": "minilm",
            "vector_dim": DIMENSIONS,
            "base_url": address,
            "api_key": "none",
        }
        config = AppConfig.model_validate(
            {
                "storage": {"data_dir": str(store)},
                "embeddings": {"model": named},
                "processing": {"chunk_size": CHUNK_TOKENS, "chunking_tokenizer": str(model)},
            }
        )
        self._loop = asyncio.new_event_loop()
        self._client = HaikuRAG(store / "documents.lancedb", config=config, create=True)
        self._run(self._client.__aenter__())

    def sync(self, folder: Path) -> dict[str, int]:
        return self._run(self._sync(folder))

    def search(self, text: str, mode: str, depth: int) -> peer_work.Hits:
        found = self._run(self._client.search(text, limit=depth, search_type=_SEARCH_TYPES[mode]))
        return [(hit.document_uri, hit.content) for hit in found]

    def close(self) -> None:
        self._run(self._client.__aexit__(None, None, None))
        self._loop.close()
        self._server.shutdown()
        self._model.close()

    async def _sync(self, folder: Path) -> dict[str, int]:
        client = self._client
        known = {document.uri: document for document in await client.list_documents()}
        texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
        digests = {name: hashlib.md5(text.encode()).hexdigest() for name, text in texts.items()}
        new = [name for name in texts if name not in known]
        changed = [name for name in texts if name in known and known[name].metadata.get("digest") != digests[name]]
        gone = [name for name in known if name not in texts]
        for start in range(0, len(new), BATCH):
            await client.import_documents(
                [await self._import(name, texts, digests) for name in new[start : start + BATCH]]
            )
        for name in changed:
            made, digest = _converted(name, texts[name]), {"digest": digests[name]}
            await client.update_document(known[name].id, docling_document=made, metadata=digest)
        for name in gone:
            await client.delete_document(known[name].id)
        chunks = await client.store.chunks_table.count_rows()
        return {"chunks": chunks, "added": len(new), "changed": len(changed), "removed": len(gone)}

    async def _import(self, name: str, texts: dict[str, str], digests: dict[str, str]) -> Any:
        from haiku.rag.client import DocumentImport

        made = _converted(name, texts[name])
        chunks = await self._client.chunk(made)
        return DocumentImport(made, chunks, uri=name, title=name, metadata={"digest": digests[name]})

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)


def _converted(name: str, text: str) -> Any:
    """A text as Docling's own form, paragraph by paragraph."""
    from docling_core.types.doc.document import DoclingDocument
    from docling_core.types.doc.labels import DocItemLabel

    made = DoclingDocument(name=name)
    for paragraph in filter(str.strip, text.split("\n\n")):
        made.add_text(label=DocItemLabel.TEXT, text=paragraph.strip())
    return made


def load(store: Path, model: Path) -> Haiku:
    os.environ["HF_HUB_OFFLINE"] = "1"
    store.mkdir(parents=True, exist_ok=True)
    return Haiku(store, model)


if __name__ == "__main__":
    peer_work.main(load)
