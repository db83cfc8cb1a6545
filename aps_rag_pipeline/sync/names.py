"""Names of the stages, and the versions of those that have no module of their own for it. Importing this is cheap."""

OCR = "ocr"
PASSAGES = "passages"
CHUNKS = "chunks"
EMBEDDINGS = "embeddings"
DENSE = "dense_index"
SPARSE = "sparse_index"
GRAPH = "knowledge_graph"
PROJECTION = "neo4j_projection"
RELEASE = "release"
#: No stage: the note that a purge has not been carried through.
SCRUB = "purge"
#: No stages: up to which changeset vectors, and versions of records, were looked through that nobody needs any more.
SWEPT = "vectors"
COLLECTED = "collection"
SWEEPS = (SWEPT, COLLECTED)
#: Prefix of the stages of SQL models, and the name of all of them together.
MARTS = "mart"

#: Raise one when the stage would now write other rows from the same input.
DENSE_VERSION = "lance:1"
SPARSE_VERSION = "bm25:2"
RELEASE_VERSION = "release:1"
PROJECTION_VERSION = "projection:1"

#: Whose output each stage reads: a stage that is redone leaves everything but these, and what follows them, as it is.
READERS: dict[str, tuple[str, ...]] = {
    OCR: (PASSAGES,),
    PASSAGES: (CHUNKS, GRAPH),
    CHUNKS: (EMBEDDINGS, SPARSE),
    EMBEDDINGS: (DENSE,),
    DENSE: (MARTS,),
    GRAPH: (MARTS, PROJECTION),
}


def downstream(stage: str) -> set[str]:
    """Stages that read, directly or not, what a stage writes."""
    found: set[str] = set()
    for reader in READERS.get(stage, ()):
        found |= {reader} | downstream(reader)
    return found
