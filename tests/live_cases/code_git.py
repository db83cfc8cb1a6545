"""A git repository in memory behind dulwich's own HTTP server; each change is a commit."""

from __future__ import annotations

from typing import Any

from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.refs import HEADREF, Ref
from dulwich.repo import MemoryRepo

from tests.workshop import ADA, START, git_server

MAIN = Ref(b"refs/heads/main")


class Case:
    source = "code"
    form = "git"
    listing = r"/ops\.git/"
    item = ""

    def __init__(self) -> None:
        self.repo = MemoryRepo()
        self.repo.refs.set_symbolic_ref(HEADREF, MAIN)
        self.app = git_server({"ops.git": self.repo})
        self.items: dict[int, str] = {}
        self.commits = 0

    def feed(self, url: str) -> dict[str, Any]:
        return {"name": "live", "source": "code", "form": "git", "url": f"{url}/ops.git"}

    def put(self, number: int, text: str) -> None:
        self.items[number] = text
        self.commit()

    def delete(self, number: int) -> None:
        del self.items[number]
        self.commit()

    def wanted(self) -> dict[str, str]:
        return {f"ops/notes/item{number}.txt": text for number, text in self.items.items()}

    def close(self) -> None:
        self.repo.close()

    def commit(self) -> ObjectID:
        """Commit what the items are now."""
        store, folder, root = self.repo.object_store, Tree(), Tree()
        for number, text in self.items.items():
            blob = Blob.from_string(f"{text}\n".encode())
            store.add_object(blob)
            folder.add(b"item%d.txt" % number, 0o100644, blob.id)
        root.add(b"notes", 0o040000, folder.id)
        made = Commit()
        made.tree = root.id
        made.parents = [self.repo.refs[MAIN]] if MAIN in self.repo.refs else []
        made.author = made.committer = ADA
        made.author_time = made.commit_time = START + self.commits
        made.author_timezone = made.commit_timezone = 0
        made.message = b"change"
        for thing in (folder, root, made):
            store.add_object(thing)
        self.repo.refs[MAIN] = made.id
        self.commits += 1
        return made.id
