"""What an audit found, and what a repair would have to do about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

#: At most so many findings of a kind are listed; all are counted.
MOST_LISTED = 50

REPAIR = "aps-rag audit --repair"
SYNC = "aps-rag sync"
REPAIR_AND_SYNC = f"{REPAIR}, then {SYNC}"
RESTORE = "aps-rag restore"

#: Kind of finding → what would help. Programs may rely on the names.
REMEDIES: dict[str, str] = {
    "behind": SYNC,
    # the catalog in itself
    "damaged_catalog": RESTORE,
    "unreadable_record": REPAIR_AND_SYNC,
    "wrong_record_hash": REPAIR_AND_SYNC,
    "wrong_label_hash": REPAIR_AND_SYNC,
    "orphan_passage": REPAIR,
    "missing_passage": REPAIR,
    "orphan_chunk": REPAIR,
    "missing_chunk": REPAIR,
    "wrong_passage_hash": REPAIR,
    "wrong_chunk_hash": REPAIR,
    "other_passages": REPAIR,
    "other_chunks": REPAIR,
    "other_graph": REPAIR,
    "chunk_without_vector": REPAIR,
    "wrong_vector": REPAIR,
    "orphan_mention": REPAIR,
    "orphan_edge": REPAIR,
    "edge_without_evidence": REPAIR,
    "edge_without_node": REPAIR,
    "node_without_mention": REPAIR,
    "mention_without_node": REPAIR,
    "wrong_node": REPAIR,
    "missing_blob": REPAIR_AND_SYNC,
    "damaged_blob": REPAIR_AND_SYNC,
    # working indexes, and releases where they hold something else than these
    "missing_store": REPAIR,
    "damaged_store": REPAIR,
    "missing_row": REPAIR,
    "surplus_row": REPAIR,
    "duplicate_row": REPAIR,
    "different_row": REPAIR,
    "missing_mart": REPAIR,
    "stale_mart": REPAIR,
    # releases
    "damaged_release": REPAIR,
    "missing_tag": REPAIR,
    "wrong_pin": REPAIR,
    "wrong_count": REPAIR,
    "wrong_model": REPAIR,
    # the projection
    "projection_behind": SYNC,
    "missing_in_projection": REPAIR,
    "surplus_in_projection": REPAIR,
    "duplicate_in_projection": REPAIR,
    "different_in_projection": REPAIR,
}


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong. `key` is the citation key of the record concerned, empty where there is none."""

    kind: str
    store: str
    id: str
    key: str
    problem: str
    remedy: str


@dataclass
class Damage:
    """What a repair has to see to; it grows with the damage alone."""

    #: Numbers of records whose derived rows are written anew everywhere.
    records: set[int] = field(default_factory=set)
    #: Numbers of records that an index knows and the catalog does not.
    strangers: set[int] = field(default_factory=set)
    #: Ids of nodes and edges whose row in LanceDB goes; those that should be there are written again.
    nodes: set[str] = field(default_factory=set)
    edges: set[str] = field(default_factory=set)
    #: Nodes of the catalog that nobody mentions.
    unmentioned: set[str] = field(default_factory=set)
    #: Hashes of texts whose vector goes.
    vectors: set[bytes] = field(default_factory=set)
    #: Records that only their source can mend, those of them of which only the labels are doubtful, and (feed, unit)
    #: whose attachment is to be fetched again.
    unread: set[int] = field(default_factory=set)
    unlabelled: set[int] = field(default_factory=set)
    units: set[tuple[str, str]] = field(default_factory=set)
    #: Blobs with other bytes than their name says.
    blobs: set[str] = field(default_factory=set)
    #: Stores that are built anew from the catalog: tables by their stored names, and `bm25`.
    stores: set[str] = field(default_factory=set)
    #: Models of dbt_like_sql whose file goes.
    marts: set[str] = field(default_factory=set)
    #: Releases that are not what their manifest says.
    releases: set[int] = field(default_factory=set)
    #: The newest release is replaced.
    republish: bool = False
    projection: bool = False
    #: Stages are behind; where they also ran in another version, catching up may take hours and is left to a sync.
    unfinished: bool = False
    outdated: bool = False
    #: The catalog's file is damaged: nothing can be derived from it.
    lost: bool = False

    @property
    def repairable(self) -> bool:
        """Whether there is something to mend from what the home holds."""
        if self.lost or self.outdated:
            return bool(self.releases or self.stores) and not self.lost
        sets = (self.records, self.strangers, self.nodes, self.edges, self.unmentioned, self.vectors, self.stores)
        return any((*sets, self.marts, self.releases, self.republish, self.projection, self.unfinished))

    @property
    def refetchable(self) -> bool:
        """Whether there is something that only the sources can mend."""
        return bool(self.unread or self.units) and not self.lost


class Findings:
    """Collects what is wrong. `whole` says whether everything was looked at, or only what had moved."""

    def __init__(self, *, whole: bool = True) -> None:
        self.whole = whole
        self.counts: Counter[str] = Counter()
        self.listed: list[Finding] = []
        self.notices: list[str] = []
        self.checked: Counter[str] = Counter()
        self.damage = Damage()
        #: What is wrong with each file of BM25 indexes that was looked at, by device and inode.
        self.sums: dict[tuple[int, int], str] = {}

    def add(self, kind: str, store: str, id: object, problem: str, key: str = "") -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= MOST_LISTED:
            self.listed.append(Finding(kind, store, str(id), key, problem, REMEDIES[kind]))
