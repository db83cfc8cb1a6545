"""LlamaIndex's IngestionPipeline on a folder of documents: upserts and deletions, vectors in LanceDB."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import peer_work

CHUNK_TOKENS, OVERLAP = 180, 20
_QUERY_TYPES = {"hybrid": "hybrid", "dense": "vector"}


class LlamaIndex:
    modes = ("hybrid", "dense")

    def __init__(self, store: Path, model: Path) -> None:
        from llama_index.embeddings.huggingface import HuggingFaceEmbedding
        from llama_index.vector_stores.lancedb import LanceDBVectorStore

        self._kept = store / "pipeline"
        self._embedding = HuggingFaceEmbedding(model_name=str(model), device="cpu")
        self._vectors = LanceDBVectorStore(uri=str(store / "lance"), mode="create")
        self._retrievers: dict[tuple[str, int], Any] = {}

    def sync(self, folder: Path) -> dict[str, int]:
        from llama_index.core import Document
        from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
        from llama_index.core.node_parser import SentenceSplitter
        from llama_index.core.storage.docstore import SimpleDocumentStore

        tokenizer = self._embedding._model.tokenizer
        splitter = SentenceSplitter(
            chunk_size=CHUNK_TOKENS,
            chunk_overlap=OVERLAP,
            tokenizer=lambda text: tokenizer.encode(text, add_special_tokens=False, verbose=False),
        )
        pipeline = IngestionPipeline(
            transformations=[splitter, self._embedding],
            docstore=SimpleDocumentStore(),
            vector_store=self._vectors,
            docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
        )
        if self._kept.exists():
            pipeline.load(persist_dir=str(self._kept))
        paths = sorted(folder.glob("*.md"))
        nodes = pipeline.run(documents=[Document(text=p.read_text(encoding="utf-8"), id_=p.stem) for p in paths])
        pipeline.persist(persist_dir=str(self._kept))
        return {"chunks": self._vectors.table.count_rows(), "changed": len({node.ref_doc_id for node in nodes})}

    def search(self, text: str, mode: str, depth: int) -> peer_work.Hits:
        found = self._retriever(mode, depth).retrieve(text)
        return [(hit.node.ref_doc_id, hit.node.get_content()) for hit in found]

    def close(self) -> None:
        pass

    def _retriever(self, mode: str, depth: int) -> Any:
        from llama_index.core import VectorStoreIndex

        if (mode, depth) not in self._retrievers:
            index = VectorStoreIndex.from_vector_store(self._vectors, embed_model=self._embedding)
            self._retrievers[mode, depth] = index.as_retriever(
                similarity_top_k=depth, vector_store_kwargs={"query_type": _QUERY_TYPES[mode]}
            )
        return self._retrievers[mode, depth]


def load(store: Path, model: Path) -> LlamaIndex:
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.getLogger("llama_index").setLevel(logging.ERROR)
    store.mkdir(parents=True, exist_ok=True)
    return LlamaIndex(store, model)


if __name__ == "__main__":
    peer_work.main(load)
