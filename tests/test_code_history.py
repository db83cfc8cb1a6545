"""Histories of files: carried on from any earlier head they are what a walk from the start finds."""

from __future__ import annotations

from datetime import UTC, datetime

from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.repo import MemoryRepo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.sources.repositories.history import FileHistory, Walk

NAMES = [b"a", b"b", b"c", b"d"]
AUTHORS = [b"Ada <a@x>", b"Ben <b@x>", b"Cho <c@x>"]


def body(seed: int, edits: int) -> bytes:
    """Texts of one seed are alike, those of others are not."""
    return b"".join(b"line %d of text %d\n" % (n, seed) for n in range(12)) + b"edit %d\n" % edits


class Branches:
    """A repository in memory with commits on several branches; `files` by branch: name -> (seed, edits)."""

    def __init__(self) -> None:
        self.repo = MemoryRepo()
        self.files: dict[str, dict[bytes, tuple[int, int]]] = {"main": {}}
        self.heads: dict[str, ObjectID] = {}
        self.count = 0

    def commit(self, branch: str, *others: ObjectID, late: int = 0) -> ObjectID:
        store, tree = self.repo.object_store, Tree()
        for name, (seed, edits) in self.files[branch].items():
            blob = Blob.from_string(body(seed, edits))
            store.add_object(blob)
            tree.add(name, 0o100644, blob.id)
        made = Commit()
        made.tree = tree.id
        made.parents = [*([self.heads[branch]] if branch in self.heads else []), *others]
        made.author = made.committer = AUTHORS[self.count % 3]
        made.author_time = made.commit_time = 1_700_000_000 + self.count * 60 - late
        made.author_timezone = made.commit_timezone = 0
        made.message = b"%d" % self.count
        store.add_object(tree)
        store.add_object(made)
        self.heads[branch] = made.id
        self.count += 1
        return made.id


def walked(
    repo: MemoryRepo, head: ObjectID, base: ObjectID | None = None, known: dict[str, FileHistory] | None = None
) -> dict[str, FileHistory]:
    walk = Walk(repo, head, base, known)
    assert walk.run(1000) == ""
    return {path.decode(): history for path, history in walk.result().items()}


STEPS = st.lists(
    st.tuples(st.sampled_from(["edit", "add", "rename", "remove"]), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    min_size=1,
    max_size=9,
)


def apply(files: dict[bytes, tuple[int, int]], step: tuple[str, bytes, bytes], number: int) -> None:
    kind, name, other = step
    if kind == "add" and name not in files:
        files[name] = (number, 0)
    elif kind == "edit" and name in files:
        files[name] = (files[name][0], number)
    elif kind == "rename" and name in files and other not in files:
        files[other] = files.pop(name)
    elif kind == "remove":
        files.pop(name, None)


@given(STEPS, st.integers(0, 9), st.integers(0, 7200))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_history_carried_on_is_the_history_walked(
    steps: list[tuple[str, bytes, bytes]], stop: int, late: int
) -> None:
    made = Branches()
    made.files["main"] = {b"a": (1000, 0), b"b": (2000, 0)}
    heads = [made.commit("main")]
    for number, step in enumerate(steps, 1):
        apply(made.files["main"], step, number)
        heads.append(made.commit("main", late=late if number % 2 else 0))  # clocks may be wrong
    base = heads[min(stop, len(heads) - 1)]
    known = walked(made.repo, base)
    assert walked(made.repo, heads[-1], base, known) == walked(made.repo, heads[-1])


@given(STEPS, STEPS, st.integers(0, 3))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_merge_is_carried_on_like_any_other_commit(
    on_main: list[tuple[str, bytes, bytes]], on_side: list[tuple[str, bytes, bytes]], lead: int
) -> None:
    """A side branch that left before the known head and touches files of its own comes in by a merge."""
    made = Branches()
    made.files["main"] = {b"a": (1000, 0), b"b": (2000, 0), b"s": (3000, 0)}
    root = made.commit("main")
    made.files["side"], made.heads["side"] = dict(made.files["main"]), root
    for number, step in enumerate(on_main[:lead], 1):
        apply(made.files["main"], step, number)
        made.commit("main")
    for number, (kind, _, _) in enumerate(on_side, 100):
        apply(made.files["side"], (kind, b"s" if b"s" in made.files["side"] else b"t", b"t"), number)
        made.commit("side")
    base = made.heads["main"]
    known = walked(made.repo, base)
    for number, step in enumerate(on_main[lead:], 200):
        apply(made.files["main"], step, number)
        made.commit("main")
    for name in (b"s", b"t"):
        made.files["main"].pop(name, None)
        if name in made.files["side"]:
            made.files["main"][name] = made.files["side"][name]
    head = made.commit("main", made.heads["side"])
    carried, whole = walked(made.repo, head, base, known), walked(made.repo, head)
    assert carried == whole
    seen = {name.encode() for name in whole}
    assert seen == set(made.files["main"])


def test_a_merge_says_who_wrote_what() -> None:
    made = Branches()
    made.files["main"] = {b"a": (1, 0), b"b": (2, 0)}
    root = made.commit("main")
    made.files["side"], made.heads["side"] = {b"a": (1, 7), b"c": (2, 0)}, root  # edits a, renames b
    side = made.commit("side")
    made.files["main"] = {b"a": (1, 0), b"b": (2, 9)}
    ours = made.commit("main")
    made.files["main"] = {b"a": (1, 7), b"c": (2, 9)}  # b was edited here and renamed there
    merge = made.commit("main", side)
    found = walked(made.repo, merge)
    start = datetime.fromtimestamp(1_700_000_000, UTC)
    assert (found["a"].commit, found["a"].author, found["a"].created_at) == (side.decode(), "Ben", start)
    assert (found["c"].commit, found["c"].former, found["c"].created_at) == (merge.decode(), ("b",), start)
    assert ours.decode() not in {history.commit for history in found.values()}


def test_two_files_that_were_one_name_at_different_times() -> None:
    made = Branches()
    made.files["main"] = {b"a": (1, 0)}
    made.commit("main")
    made.files["main"] = {b"b": (1, 0)}
    made.commit("main")
    made.files["main"] = {b"b": (1, 0), b"a": (5, 0)}
    made.commit("main")
    made.files["main"] = {b"b": (1, 0), b"c": (5, 0)}
    found = walked(made.repo, made.commit("main"))
    assert (found["b"].former, found["c"].former) == (("a",), ("a",))
    assert found["b"].created_at < found["c"].created_at
