"""Changed records → text read from their pictures → passages → chunks."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import lru_cache, partial

from msgspec.structs import replace

from aps_rag_pipeline import clock
from aps_rag_pipeline.content import masking, ocr
from aps_rag_pipeline.content.chunks import CHUNKS_VERSION, Chunker, text_hash
from aps_rag_pipeline.content.ocr.repair import KnownNames, names_within, shape, shapes_in
from aps_rag_pipeline.content.passages import PASSAGES_VERSION, Passage, cut
from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.records import Attachment, Record, decode_record
from aps_rag_pipeline.settings import Chunking
from aps_rag_pipeline.stores.catalog import Catalog, from_iso, iso, marks, pack, unpack
from aps_rag_pipeline.sync.letters import note_next_picture
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.names import CHUNKS, OCR, PASSAGES
from aps_rag_pipeline.sync.workspace import ChangedRecord, StageReport, Workspace, run_stage, touch


def bodies(catalog: Catalog, changed: list[ChangedRecord]) -> Iterator[tuple[ChangedRecord, Record]]:
    """The live records of a batch, as their sources gave them."""
    live = {record.rid: record for record in changed if not record.removed}
    for row in catalog.connection.execute(
        f"select rid, body, access from records where rid in ({marks(live)})", tuple(live)
    ):
        # The labels in force are the row's: they may have moved without the record being read again.
        body = replace(decode_record(unpack(row["body"])), access=tuple(json.loads(row["access"])))
        yield live[row["rid"]], body


# pictures


def read_pictures(workspace: Workspace) -> StageReport:
    """OCR of every picture that a changed record shows and that has not been read yet, by image hash."""
    catalog = workspace.catalog
    engine = ocr.engine_version()
    languages = {feed.name: feed.ocr_language for feed in workspace.settings.feeds}
    misread = _Misread(catalog)

    def work(changed: list[ChangedRecord]) -> Counter[str]:
        counts: Counter[str] = Counter()
        wanted: dict[tuple[str, int, str], tuple[Attachment, set[int]]] = {}
        with catalog.transaction() as connection:
            connection.executemany("delete from attachments where rid = ?", ((record.rid,) for record in changed))
            for record, body in bodies(catalog, changed):
                for attachment in body.attachments:
                    connection.execute(
                        "insert or ignore into attachments values (?, ?)", (record.rid, attachment.sha256)
                    )
                    if not ocr.readable(attachment.media_type):
                        counts["attachments_without_pictures"] += 1
                        continue
                    key = (attachment.sha256, attachment.page, languages.get(record.feed, "eng"))
                    wanted.setdefault(key, (attachment, set()))[1].add(record.rid)
            counts["records_with_new_names"] += misread.touch(changed, catalog.changeset())
            passing("pictures.commit.before")
        passing("pictures.commit.after")
        new = {key: value for key, value in wanted.items() if not _is_read(catalog, key, engine)}
        counts["pictures"] += len(wanted)
        counts["pictures_known"] += len(wanted) - len(new)
        if engine is not None:
            _recognise(workspace, new, engine, counts)
        else:
            counts["pictures_not_read"] += len(new)
        return counts

    _retry_pictures(catalog)
    report = run_stage(workspace, OCR, engine or "none", work)
    note_next_picture(workspace)
    if engine is None and report.counts["pictures_not_read"]:
        report.notices.append(
            f"{report.counts['pictures_not_read']} pictures were not read: no Tesseract here. Install it, or the "
            "project's extra `local`; the next sync reads them"
        )
    return report


def _is_read(catalog: Catalog, key: tuple[str, int, str], engine: str | None) -> bool:
    found = catalog.value(
        "select engine from ocr where sha256 = ? and page = ? and language = ? and retry_at is null", key
    )
    return found is not None and found == engine


def _retry_pictures(catalog: Catalog) -> None:
    """Bring back the records of pictures that failed for a passing reason, once their time has come."""
    due = [
        row["rid"]
        for row in catalog.rows(
            "select distinct a.rid from ocr o join attachments a on a.sha256 = o.sha256 "
            "join records r on r.rid = a.rid where o.retry_at <= ? and r.removed = 0",
            (iso(clock.now()),),
        )
    ]
    if due:
        with catalog.transaction():
            touch(catalog, due, "a picture is due again", catalog.new_changeset("ocr retry"))


def _recognise(
    workspace: Workspace,
    new: dict[tuple[str, int, str], tuple[Attachment, set[int]]],
    engine: str,
    counts: Counter[str],
) -> None:
    catalog, limits, blobs = workspace.catalog, workspace.settings.limits, workspace.home.blobs
    target, pause = catalog.changeset(), timedelta(hours=limits.retry_hours)
    secrets = workspace.settings.secrets()
    jobs = [
        ocr.OcrJob(sha256, blobs.path(sha256), attachment.media_type, page, language)
        for (sha256, page, language), (attachment, _) in new.items()
    ]
    results = ocr.recognise(jobs, limits)
    for job, result in workspace.progress.track(results, "reading pictures", len(jobs)):
        counts["changed"] += 1
        key = (job.sha256, job.page, job.language)
        row: tuple[object, ...]
        if isinstance(result, ocr.OcrFailure):
            counts["pictures_failed"] += 1
            retry_at = None if result.permanent else iso(clock.now() + pause)
            row = (*key, engine, "", 0.0, result.reason, retry_at)
        else:
            text, hidden = masking.mask_all(result.text, secrets)
            counts["pictures_read" if text.strip() else "pictures_without_text"] += 1
            counts["masked_credentials"] += hidden
            row = (*key, engine, text, result.confidence, None, None)
        with catalog.transaction() as connection:
            connection.execute("insert or replace into ocr values (?, ?, ?, ?, ?, ?, ?, ?)", row)
            touch(catalog, new[key][1], "a picture was read", target)
            passing("picture.commit.before")
        passing("picture.commit.after")


def known_names(catalog: Catalog) -> KnownNames:
    """Process variables of the corpus and the devices within their names, with the labels of those who may see them."""
    rows = catalog.connection.execute("select id, access from records where source = 'epics' and removed = 0")
    return KnownNames((name, frozenset(json.loads(row["access"]))) for row in rows for name in names_within(row["id"]))


class _Misread:
    """Records whose pictures, read before this run, may show a name; looked through once, when a name is new."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._records_of: dict[str, set[int]] | None = None

    def touch(self, changed: list[ChangedRecord], target: int) -> int:
        """Bring back those that show, misread, a name of these records: how many."""
        rids = [record.rid for record in changed if not record.removed]
        new = self._catalog.rows(
            f"select id from records where source = 'epics' and rid in ({marks(rids)})", tuple(rids)
        )
        if not new:
            return 0
        if self._records_of is None:
            self._records_of = self._by_shape()
        shapes = {shape(name) for row in new for name in names_within(row["id"])}
        found = {rid for each in shapes for rid in self._records_of.get(each, ())}
        touch(self._catalog, found, "a name that its picture may show is known now", target)
        return len(found)

    def _by_shape(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for row in self._catalog.connection.execute(
            "select distinct a.rid, o.text from ocr o join attachments a on a.sha256 = o.sha256 where o.text <> ''"
        ):
            for each in shapes_in(row["text"]):
                found.setdefault(each, set()).add(row["rid"])
        return found


def picture_reader(
    catalog: Catalog, language: str, names: Callable[[], KnownNames], access: tuple[str, ...]
) -> Callable[[Attachment], str]:
    """Text that was read from an attachment's picture, and below it the known names that were misread in it."""

    def read(attachment: Attachment) -> str:
        found = catalog.value(
            "select text from ocr where sha256 = ? and page = ? and language = ?",
            (attachment.sha256, attachment.page, language),
        )
        if not found or not any(map(str.isalnum, found)):
            return ""
        meant = names().notes(found, access)
        return f"{found}\nRead as: {', '.join(meant)}" if meant else str(found)

    return read


# passages


def passages_version(chunking: Chunking) -> str:
    return f"{PASSAGES_VERSION}:{chunking.passage_words}"


def cut_passages(workspace: Workspace) -> StageReport:
    catalog, settings = workspace.catalog, workspace.settings
    words = settings.chunking.passage_words
    languages = {feed.name: feed.ocr_language for feed in settings.feeds}
    names = lru_cache(maxsize=1)(partial(known_names, catalog))  # only where a picture is shown

    def work(changed: list[ChangedRecord]) -> Counter[str]:
        counts: Counter[str] = Counter()
        with catalog.transaction():
            for record in changed:
                if record.removed:
                    _replace_passages(catalog, record, [], counts)
            for record, body in bodies(catalog, changed):
                # A record whose labels could not be read is served to nobody: nothing is derived from it.
                shown = picture_reader(catalog, languages.get(record.feed, "eng"), names, body.access)
                _replace_passages(catalog, record, cut(body, words, shown) if body.access else [], counts)
            passing("passages.commit.before")
        passing("passages.commit.after")
        return counts

    return run_stage(workspace, PASSAGES, passages_version(settings.chunking), work)


def _replace_passages(catalog: Catalog, record: ChangedRecord, passages: list[Passage], counts: Counter[str]) -> None:
    old = catalog.rows("select passage_id, hash from passages where rid = ? order by ordinal", (record.rid,))
    new = [(f"{record.key}#{passage.ordinal}", passage.hash) for passage in passages]
    counts["passages"] += len(new)
    if [tuple(row) for row in old] == new:
        return
    counts["changed"] += 1
    catalog.connection.execute("delete from passages where rid = ?", (record.rid,))
    catalog.connection.executemany(
        "insert into passages values (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                f"{record.key}#{p.ordinal}",
                record.rid,
                p.ordinal,
                p.kind,
                p.title,
                p.locator,
                pack(p.text.encode()),
                p.hash,
            )
            for p in passages
        ),
    )
    touch(catalog, [record.rid], "its passages moved", catalog.changeset())


# chunks


def chunks_version(chunking: Chunking, model: ConfiguredModel) -> str:
    """What the chunks depend on besides the passages."""
    limits = f"{chunking.chunk_tokens}:{chunking.overlap_tokens}:{model.description.fingerprint}"
    return f"{CHUNKS_VERSION}:{hashlib.blake2b(limits.encode(), digest_size=6).hexdigest()}"


def open_chunker(chunking: Chunking, model: ConfiguredModel) -> Chunker:
    """Reads the model's tokenizer."""
    tokens = model.tokens()
    return Chunker(tokens.tokenizer, min(chunking.chunk_tokens, tokens.room), chunking.overlap_tokens)


def split_chunks(workspace: Workspace, model: ConfiguredModel) -> StageReport:
    catalog, chunking = workspace.catalog, workspace.settings.chunking
    made: list[Chunker] = []  # opened with the first record: a run without work reads no tokenizer

    def work(changed: list[ChangedRecord]) -> Counter[str]:
        counts: Counter[str] = Counter()
        if not made:
            made.append(open_chunker(chunking, model))
        with catalog.transaction():
            for record in changed:
                _replace_chunks(catalog, record, made[0], counts)
            passing("chunks.commit.before")
        passing("chunks.commit.after")
        return counts

    return run_stage(workspace, CHUNKS, chunks_version(chunking, model), work)


def chunks_of(catalog: Catalog, record: ChangedRecord, made: Chunker) -> list[tuple[str, str, str, bytes]]:
    """(chunk id, passage id, text, hash) of a record, from the passages that the catalog has of it."""
    row = catalog.rows("select title, created_at from records where rid = ?", (record.rid,))[0]
    head = made.header(record.key, row["title"], from_iso(row["created_at"]))
    found: list[tuple[str, str, str, bytes]] = []
    for passage in catalog.rows("select * from passages where rid = ? order by ordinal", (record.rid,)):
        texts = made.split(head, passage["kind"], unpack(passage["text"]).decode())
        for number, text in enumerate(texts):
            passage_id = passage["passage_id"]
            found.append((f"{passage_id}.{number}", passage_id, text, text_hash(text)))
    return found


def _replace_chunks(catalog: Catalog, record: ChangedRecord, made: Chunker, counts: Counter[str]) -> None:
    new = chunks_of(catalog, record, made)
    old = catalog.rows("select chunk_id, hash from chunks where rid = ?", (record.rid,))
    counts["chunks"] += len(new)
    if {(r["chunk_id"], r["hash"]) for r in old} == {(chunk_id, made_hash) for chunk_id, _, _, made_hash in new}:
        return
    counts["changed"] += 1
    catalog.connection.execute("delete from chunks where rid = ?", (record.rid,))
    catalog.connection.executemany(
        "insert into chunks values (?, ?, ?, ?, ?)",
        ((chunk_id, record.rid, passage_id, pack(text.encode()), found) for chunk_id, passage_id, text, found in new),
    )
    touch(catalog, [record.rid], "its chunks moved", catalog.changeset())
