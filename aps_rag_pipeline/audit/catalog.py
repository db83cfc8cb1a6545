"""The catalog in itself: nothing derived without what it derives from, and every text what its hash says."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence

import msgspec
import zstandard

from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.scope import Scope
from aps_rag_pipeline.audit.spans import Span
from aps_rag_pipeline.content.chunks import text_hash
from aps_rag_pipeline.content.passages import Passage
from aps_rag_pipeline.models import ModelDescription
from aps_rag_pipeline.records import access_hash, content_hash, decode_record
from aps_rag_pipeline.stores.catalog import Catalog, marks, unpack

STORE = "catalog"
#: What a damaged packed text or record raises when it is opened.
_UNREADABLE = (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError, TypeError)

_DEAD = (
    "case when r.rid is null then 'its record is not there' when r.removed = 1 then 'its record has been removed' "
    "else 'its record is served to nobody' end"
)
_IS_DEAD = "(r.rid is null or r.removed = 1 or r.access = '[]')"
_LIVE = "r.removed = 0 and r.access <> '[]'"

#: Kind → rows (id, key, rid, problem) that must not exist. `:model` and `:bytes` are the configured embedding model's.
_QUERIES: tuple[tuple[str, str], ...] = (
    (
        "orphan_passage",
        f"select p.passage_id, r.key, p.rid, {_DEAD} from passages p left join records r on r.rid = p.rid "
        f"where {_IS_DEAD}",
    ),
    (
        "missing_passage",
        "select r.key || '#', r.key, r.rid, 'it has ' || n || ' passages, the last is number ' || last from "
        "(select rid, count(*) as n, max(ordinal) as last from passages group by rid) p "
        f"join records r on r.rid = p.rid where n <> last + 1 and {_LIVE}",
    ),
    (
        "orphan_chunk",
        "select c.chunk_id, r.key, c.rid, case when p.passage_id is null then 'its passage is not there' "
        f"when p.rid <> c.rid then 'its passage is of another record' else {_DEAD} end "
        "from chunks c left join passages p on p.passage_id = c.passage_id left join records r on r.rid = c.rid "
        f"where p.passage_id is null or p.rid <> c.rid or {_IS_DEAD}",
    ),
    (
        "missing_chunk",
        "select p.passage_id || '.', r.key, p.rid, case when n is null then 'its passage has no chunk' else "
        "'its passage has ' || n || ' chunks, the last is number ' || last end "
        "from passages p join records r on r.rid = p.rid left join "
        "(select passage_id, count(*) as n, max(cast(substr(chunk_id, length(passage_id) + 2) as integer)) as last "
        f"from chunks group by passage_id) c on c.passage_id = p.passage_id "
        f"where {_LIVE} and (n is null or n <> last + 1)",
    ),
    (
        "chunk_without_vector",
        "select c.chunk_id, r.key, c.rid, 'it has no vector of the configured model' from chunks c "
        f"join records r on r.rid = c.rid where {_LIVE} "
        "and not exists (select 1 from embeddings e where e.model = :model and e.hash = c.hash)",
    ),
    (
        "wrong_vector",
        "select c.chunk_id, r.key, c.rid, 'its vector has ' || length(e.vector) || ' bytes instead of ' || :bytes "
        "from embeddings e join chunks c on c.hash = e.hash join records r on r.rid = c.rid "
        "where e.model = :model and length(e.vector) <> :bytes",
    ),
    (
        "orphan_mention",
        f"select m.node_id, r.key, m.rid, {_DEAD} from mentions m left join records r on r.rid = m.rid "
        f"where {_IS_DEAD}",
    ),
    (
        "orphan_edge",
        f"select e.edge_id, r.key, e.rid, {_DEAD} from edges e left join records r on r.rid = e.rid "
        f"where e.removed = 0 and {_IS_DEAD}",
    ),
    (
        "edge_without_evidence",
        "select e.edge_id, r.key, e.rid, 'the passage ' || e.passage_id || ' in which it stands is not there' "
        f"from edges e join records r on r.rid = e.rid where e.removed = 0 and {_LIVE} and e.passage_id is not null "
        "and not exists (select 1 from passages p where p.passage_id = e.passage_id and p.rid = e.rid)",
    ),
    (
        "edge_without_node",
        " union all ".join(
            f"select e.edge_id, r.key, e.rid, 'its end ' || e.{end} || ' is no node' from edges e "
            f"join records r on r.rid = e.rid where e.removed = 0 and {_LIVE} "
            f"and not exists (select 1 from nodes n where n.node_id = e.{end} and n.removed = 0)"
            for end in ("src", "dst")
        ),
    ),
)


def check_relations(catalog: Catalog, model: ModelDescription, scope: Scope, findings: Findings) -> None:
    """What the tables of the catalog say of each other."""
    bound = {"model": model.fingerprint, "bytes": 2 * model.dimensions}
    for kind, sql in _QUERIES:
        scoped = sql if scope.whole else f"select * from ({sql}) where {scope.of_these}"
        for row_id, key, rid, problem in catalog.connection.execute(scoped, bound):
            findings.add(kind, STORE, row_id, problem, key or "")
            (findings.damage.strangers if key is None else findings.damage.records).add(rid)
            if kind == "wrong_vector":
                found = catalog.value("select hash from chunks where chunk_id = ?", (row_id,))
                findings.damage.vectors.add(found)


def check_content(catalog: Catalog, scope: Scope, findings: Findings) -> Iterator[Span[int]]:
    """Records, passages and chunks against their hashes; gives each stretch when it has been looked at."""
    for span in scope.records():
        _check_records(catalog, span.ids, findings)
        _check_texts(catalog, span.ids, findings)
        yield span


def _check_records(catalog: Catalog, rids: Sequence[int], findings: Findings) -> None:
    """Whether live records can be read and are what their hashes say."""
    for row in catalog.connection.execute(
        "select rid, key, access, content_hash, access_hash, body from records "
        f"where removed = 0 and rid in ({marks(rids)})",
        rids,
    ):
        findings.checked["records"] += 1
        problem = _wrong_record(row)
        if problem is not None:
            findings.add(problem[0], STORE, row["key"], problem[1], row["key"])
            findings.damage.unread.add(row["rid"])
            if problem[0] == "wrong_label_hash":
                findings.damage.unlabelled.add(row["rid"])


def _wrong_record(row: sqlite3.Row) -> tuple[str, str] | None:
    try:
        record = decode_record(unpack(row["body"]))
    except _UNREADABLE as error:
        return "unreadable_record", f"what its source said cannot be read any more ({error})"
    if content_hash(record) != row["content_hash"]:
        return "wrong_record_hash", "its content is not that of its hash"
    # Records that are held back have lost their labels and their hash until their feed is back.
    if row["access"] != "[]" and access_hash(tuple(json.loads(row["access"]))) != row["access_hash"]:
        return "wrong_label_hash", f"its labels {row['access']} are not those of their hash"
    return None


def _check_texts(catalog: Catalog, rids: Sequence[int], findings: Findings) -> None:
    """Whether passages and chunks are what their hashes say."""
    of_these = f"rid in ({marks(rids)})"
    for row in catalog.connection.execute(f"select * from passages where {of_these}", rids):
        findings.checked["passages"] += 1
        _judge(findings, "wrong_passage_hash", row["passage_id"], row["rid"], _wrong_passage(row))
    for row in catalog.connection.execute(f"select * from chunks where {of_these}", rids):
        findings.checked["chunks"] += 1
        _judge(findings, "wrong_chunk_hash", row["chunk_id"], row["rid"], _wrong_chunk(row))


def _judge(findings: Findings, kind: str, row_id: str, rid: int, problem: str) -> None:
    if problem:
        findings.add(kind, STORE, row_id, problem, row_id.rpartition("#")[0])
        findings.damage.records.add(rid)


def _wrong_passage(row: sqlite3.Row) -> str:
    try:
        text = unpack(row["text"]).decode()
    except _UNREADABLE as error:
        return f"its text cannot be read any more ({error})"
    made = Passage(row["ordinal"], row["kind"], row["title"], row["locator"], text)
    return "" if made.hash == row["hash"] else "its text is not that of its hash"


def _wrong_chunk(row: sqlite3.Row) -> str:
    try:
        text = unpack(row["text"]).decode()
    except _UNREADABLE as error:
        return f"its text cannot be read any more ({error})"
    return "" if text_hash(text) == row["hash"] else "its text is not that of its hash"
