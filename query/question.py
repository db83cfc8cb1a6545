"""One question on its way: understood, retrieved, fused, expanded, answered or declined."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from aps_rag_pipeline.knowledge import identifiers
from aps_rag_pipeline.records import KEY_PREFIX
from query import answering, expansion, fusion, retrieval
from query.filters import Filters
from query.found import Found, key_of, source_of
from query.places import Place
from query.results import MODES, Answer, Hit, Mode, SearchResult, Sentence
from query.snapshot import Snapshot
from query.times import ShiftLike
from query.understanding import cleaned, is_bare, understand
from query.words import content_words, snippet

if TYPE_CHECKING:
    import numpy as np
    import tantivy
    from numpy.typing import NDArray

    from aps_rag_pipeline.models import Encoder

#: Records shown where there is no answer.
NEAREST = 5
_PREFIXES = frozenset(KEY_PREFIX.values())
#: Sources that tell of times before their own.
_TELLING = ("icms", "wiki", "sdds_docs", "code", "epics")
_FOCUS_WEIGHTS = {"dense": 0.5, "sparse": 0.5}


@dataclass(frozen=True)
class Request:
    """What was asked, and by whom. `visible` is all that the reader may see, `wanted` what is to be searched."""

    text: str
    visible: Filters
    wanted: Filters
    zone: ZoneInfo
    shifts: Sequence[ShiftLike] = ()
    mode: Mode = "hybrid"
    profile: str | None = None
    now: datetime | None = None
    variants: tuple[str, ...] = ()  # other wordings of the same question

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"no such mode: {self.mode!r}; there are: {', '.join(MODES)}")
        if self.profile is not None and self.profile not in fusion.PROFILES:
            raise ValueError(f"no such profile: {self.profile!r}; there are: {', '.join(fusion.PROFILES)}")


class Question:
    """A request against an open release. Retrieval happens on construction."""

    def __init__(self, snapshot: Snapshot, request: Request) -> None:
        self.snapshot = snapshot
        self.mode = request.mode
        self.weights = fusion.PROFILES[request.profile] if request.profile else None
        self.visible = request.visible
        self.filters = request.wanted
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self._encoding = threading.Lock()
        text = cleaned(request.text)
        self.variants = _others(request.variants, text)
        if self.mode != "sparse" and text:  # encoded while the question is read
            snapshot.once_loaded(lambda: self._vectors_of([text, *self.variants]))
        lexicon = retrieval.IndexLexicon(snapshot.index, request.visible)
        now = request.now or datetime.now(UTC)
        self.understanding = understand(request.text, lexicon, now, request.zone, request.shifts)
        self.channels = self._retrieve()
        self.order = self._fuse()

    def search(self, k: int) -> SearchResult:
        manifest = self.snapshot.release.manifest
        return SearchResult(self.hits(k), self.understanding, manifest.number, manifest.model.name, self.mode)

    @cached_property
    def shelf(self) -> expansion.Shelf:
        held = self.snapshot
        return expansion.Shelf(held.passages, held.records, self.filters, held.pool)

    @cached_property
    def place(self) -> Place | None:
        """The place that the question is about, where it names no thing."""
        if self.understanding.identifiers:
            return None
        return self.snapshot.find_place(self.understanding.text, self.visible)

    def _telling(self, words: Sequence[str]) -> list[str]:
        """Words without those of the thing or place that the question is about."""
        common = set(self.place.name.split()) if self.place else set(self.understanding.identifiers)
        return [word for word in words if word.lower() not in common]

    @property
    def encoder(self) -> Encoder:
        """The release's model. Waits for it, and so must not be asked for in the pool before it is there."""
        return self.snapshot.load_encoder().result()

    @property
    def vector(self) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._vectors_of([self.understanding.text])[0]
        return vector

    def _vectors_of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, a row each; those that are not known yet are made in one batch."""
        import numpy as np

        with self._encoding:
            if missing := [text for text in dict.fromkeys(texts) if text not in self._vectors]:
                encoder = self.encoder
                made = encoder.encode_query([encoder.tokens.head(text) for text in missing])
                self._vectors.update(zip(missing, made, strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def _retrieve(self) -> retrieval.Channels:
        """The channels within the time that the question names, if anything is found there; else without it."""
        asked, window = self.understanding, self.understanding.window
        if not asked.text:
            return retrieval.Channels()
        words = answering.question_words(asked)
        if window is None or self.filters.since is not None or self.filters.until is not None:
            return self._channels(self.filters, words)
        within = replace(self.filters, since=window.start, until=window.end)
        inside = self._channels(within, words)
        if not self._remains(inside):
            return self._channels(self.filters, [*words, window.phrase])
        if asked.told_later:
            # What tells of a period afterwards names it; what was written during it are the events themselves.
            everywhere = self._channels(self.filters, [*words, window.phrase], window.phrase)
            events = self._channels(replace(within, without=_TELLING), words)
            return everywhere.joined(events, "period")
        self.filters = within
        self.understanding = msgspec.structs.replace(asked, window_applied=True)
        return inside

    def _remains(self, found: retrieval.Channels) -> bool:
        """Whether a window holds anything about the subject: a record that shares an identifier or words with it."""
        asked = self.understanding
        if asked.identifiers:
            return bool(found.ranked.get("exact"))
        # What happened then is about whatever happened then, in whatever words it was told.
        return bool(found if asked.intent == "time" or not asked.words else found.ranked.get("sparse"))

    def _channels(self, filters: Filters, said: Sequence[str], phrase: str = "") -> retrieval.Channels:
        """Every channel. The vectors and what is near them are found beside the channels of words."""
        index, asked = self.snapshot.index, self.understanding
        near = None
        if self.mode in ("hybrid", "dense"):
            near = self.snapshot.once_loaded(
                lambda: self._near(self._vectors_of([asked.text, *self.variants]), filters)
            )
        within = self._focus_query() if self.mode == "hybrid" and not is_bare(asked) else None
        words = [" ".join(said) or asked.text, *(" ".join(content_words(text)) or text for text in self.variants)]
        found: dict[str, list[Found]] = {}
        own = 0
        if self.mode == "hybrid" and asked.identifiers:
            found["exact"], own = retrieval.exact_channel(index, asked.identifiers, words[0], filters)
        if self.mode in ("hybrid", "sparse"):
            found["sparse"] = _merged([self._sharing(text, filters, phrase) for text in words])
        if self.mode == "hybrid":
            found["rare"] = self._rare(said or [asked.text], filters)
        focus = [] if within is None else self._focus(within, said, filters)
        if near is not None:
            found["dense"] = near.result()
        if within is not None:
            found["focus"] = focus
        return retrieval.collect(found, found.get("exact", [])[:own])

    def _rare(self, said: Sequence[str], filters: Filters) -> list[Found]:
        """Chunks with a word of the question that few of them have: vectors know nothing of such a word."""
        index = self.snapshot.index

        def is_rare(word: str) -> bool:  # in all that the reader may see, not in the time that is asked about
            return 0 < len(index.words(word, self.visible, fusion.RARE + 1)) <= fusion.RARE

        return _merged([index.words(word, filters, fusion.RARE) for word in dict.fromkeys(said) if is_rare(word)])

    def _sharing(self, words: str, filters: Filters, phrase: str) -> list[Found]:
        index = self.snapshot.index
        return retrieval.capped(lambda f, n: index.words(words, f, n, phrase=phrase), filters)

    def _near(self, vectors: NDArray[np.float32], filters: Filters) -> list[Found]:
        meaning = self.snapshot.meaning

        def best(place: int, ahead: list[Found]) -> list[Found]:
            alone = vectors[place : place + 1]
            return retrieval.capped(lambda f, n: meaning.near(alone, f, n)[0], filters, ahead=ahead)

        return _merged([best(*found) for found in enumerate(meaning.near(vectors, filters, retrieval.AHEAD))])

    def _focus_query(self) -> tantivy.Query | None:
        return self.snapshot.index.focus(self.understanding.identifiers, self.place)

    def _focus(self, within: tantivy.Query, said: Sequence[str], filters: Filters) -> list[Found]:
        """Chunks about the thing or place that the question names, ranked by words and meaning among themselves."""
        index = self.snapshot.index
        # What all of them have in common tells none of them from another.
        rest = " ".join(self._telling(said))
        wording = rest or " ".join(said) or self.understanding.text
        vector = self.snapshot.once_loaded(lambda: self._vectors_of([wording]))
        members = index.members(within, filters, retrieval.FOCUS_DEPTH)
        if not members:
            return []
        by_words = index.words(rest, filters, retrieval.DEPTH, within)
        by_meaning = self.snapshot.meaning.among(vector.result()[0], retrieval.DEPTH, [hit.chunk_id for hit in members])
        lists = {"dense": [hit.chunk_id for hit in by_meaning], "sparse": [hit.chunk_id for hit in by_words]}
        scores = fusion.reciprocal_ranks(lists, _FOCUS_WEIGHTS)
        known = {hit.chunk_id: hit for hit in (*by_words, *by_meaning)}
        return [known[chunk]._replace(score=score) for chunk, score in scores.items()]

    def _fuse(self) -> list[tuple[str, float]]:
        """Passages with their scores, best first."""
        asked = self.understanding
        scores = fusion.reciprocal_ranks(self.channels.ranked, self.weights or fusion.WEIGHTS[asked.intent])
        priors = {} if self.filters.sources else fusion.PRIORS[asked.intent]
        if self.weights is None and priors:
            scores = fusion.preferred(scores, lambda item: _prior(item, priors, asked.sources))
        if self.weights is None and asked.intent in fusion.SUPPORT:
            scores = self._supported(scores, fusion.SUPPORT[asked.intent])
        first = self.channels.own if is_bare(self.understanding) else []
        order = fusion.protect(list(scores), self.channels.ranked.get("exact", []), first)
        return [(passage_id, scores[passage_id]) for passage_id in order]

    def _supported(self, scores: dict[str, float], share: float) -> dict[str, float]:
        best = list(scores)[: fusion.SUPPORT_DEPTH]
        named = {
            passage_id: {
                token
                for token in identifiers.find(f"{passage.record.title}\n{passage.text}")
                if ":" in token or not token.isdigit()
            }
            for passage_id, passage in self.shelf.passages(best).items()
        }
        index = self.snapshot.index
        return fusion.supported(scores, named, key_of, lambda token: index.mentions(token) > fusion.TOO_COMMON, share)

    def hits(self, k: int) -> list[Hit]:
        best: dict[str, tuple[str, float]] = {}
        for passage_id, score in self.order:
            best.setdefault(key_of(passage_id), (passage_id, score))
        places = {
            name: {passage_id: rank for rank, passage_id in enumerate(ids, start=1)}
            for name, ids in self.channels.ranked.items()
        }
        chosen = list(best.values())[:k]
        passages = self.shelf.passages(passage_id for passage_id, _ in chosen)
        words = answering.question_words(self.understanding)
        return [
            Hit(
                key=passage.key,
                title=passage.record.title,
                source=passage.record.source,
                feed=passage.record.feed,
                created_at=passage.record.created_at,
                url=passage.record.url,
                passage_id=passage_id,
                locator=passage.locator,
                snippet=snippet(passage.text, words),
                score=round(score, 6),
                channels={name: ranks[passage_id] for name, ranks in places.items() if passage_id in ranks},
            )
            for passage_id, score in chosen
            if (passage := passages.get(passage_id)) is not None
        ]

    def answer(self) -> Answer:
        asked = self.understanding
        if asked.unknown:
            names = ", ".join(
                name.upper() if name.partition(":")[0].upper() in _PREFIXES else name for name in asked.unknown
            )
            return self._answer([], [], f"{names} stands in no record that you may see")
        passages = expansion.expand([passage_id for passage_id, _ in self.order], self.shelf)
        if not passages:
            return self._answer([], [], "nothing that you may see was found")
        if is_bare(asked):
            own = [p for p in passages if p.passage_id in self.channels.own] or passages
            return self._answer(answering.introduction(own), passages, "")
        index = self.snapshot.index

        def weigh(words: Sequence[str]) -> answering.Weigher:
            return answering.Weigher(words, lambda stem: index.frequency(stem, self.visible), index.size)

        telling = self._telling(asked.words)
        draft = answering.draft(asked, telling, passages, weigh, self.channels.similarity, self.vector, self._embed)
        thresholds = answering.Thresholds.of(self.snapshot.release.manifest.calibrations)
        if not draft.sufficient(thresholds):
            return self._answer([], passages, "no passage holds enough of what is asked")
        return self._answer(draft.sentences, passages, "")

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        encoder = self.encoder
        return encoder.encode_passages([encoder.tokens.head(text) for text in texts])

    def _answer(self, sentences: list[Sentence], passages: Sequence[expansion.Passage], reason: str) -> Answer:
        answered = bool(sentences)
        status = self.snapshot.searched(self.filters)
        cited = {key for sentence in sentences for key in sentence.keys}
        evidence = [p.evidence() for p in passages if answered]
        return Answer(
            question=self.understanding.text,
            answered=answered,
            text=answering.cited_text(sentences)
            if answered
            else f"Not found: {reason or 'no sentence could be supported'}.",
            sentences=sentences,
            evidence=sorted(evidence, key=lambda item: item.key not in cited),
            nearest=[] if answered else self.hits(NEAREST),
            searched=status,
            reason=reason,
            understanding=self.understanding,
            release=self.snapshot.release.manifest.number,
            model=self.snapshot.release.manifest.model.name,
        )


def _prior(passage_id: str, priors: fusion.Weights, wanted: Sequence[str]) -> float:
    source = source_of(passage_id)
    return 1.0 if source in wanted else priors.get(source, 1.0)


def _others(variants: Sequence[str], text: str) -> list[str]:
    """Wordings that say something and are not the question's own, each once."""
    wordings = dict.fromkeys(cleaned(variant) for variant in variants)
    return [wording for wording in wordings if wording and wording != text]


def _merged(lists: Sequence[list[Found]]) -> list[Found]:
    """The hits of several wordings as one channel: by their ranks in each; the score is the best."""
    if len(lists) == 1:
        return lists[0]
    best: dict[str, Found] = {}
    for hit in chain.from_iterable(lists):
        if hit.chunk_id not in best or hit.score > best[hit.chunk_id].score:
            best[hit.chunk_id] = hit
    ranks = {str(place): [hit.chunk_id for hit in hits] for place, hits in enumerate(lists)}
    order = fusion.reciprocal_ranks(ranks, dict.fromkeys(ranks, 1.0))
    return [best[chunk] for chunk in order][: retrieval.DEPTH]
