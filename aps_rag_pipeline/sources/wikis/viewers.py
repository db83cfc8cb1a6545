"""Who may view a page of a Confluence: its own restrictions and those of everything above it, as access labels."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from aps_rag_pipeline.sources.base import Failure, FeedError
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.wikis.naming import Json, listed

#: What odd replies raise where they are read as if they were of the documented shape.
ODD = (AttributeError, KeyError, TypeError, ValueError)


class UntoldError(FeedError):
    """A page came without a word on who may view it."""


class Viewers:
    """`groups` are Confluence's group → label. `ask` gives what a folder states about who may read it; a folder that
    states nothing counts as open only with `open_folders`, since the Cloud's interface also answers so for restricted
    ones."""

    def __init__(self, place: str, groups: Mapping[str, str], open_folders: bool, ask: Callable[[str], Json]) -> None:
        self._place, self._groups, self._open_folders, self._ask = place, groups, open_folders, ask
        self._folders: dict[str, frozenset[str] | None] = {}
        #: Folders of which it cannot be told.
        self.failures: list[Failure] = []

    def of(self, page: Json, pages: Mapping[str, Json], odd: Container[str]) -> frozenset[str] | None:
        """Labels of those who may view a page; None where all may. `pages` are the listed ones, `odd` the numbers of
        those whose listing could not be understood.

        Raises:
            UntoldError: the listing says nothing on restrictions.
        """
        limits = [self._stated(page)]
        for found in listed(page.get("ancestors", [])):
            number = str(found["id"])
            if found.get("type", "page") != "page":
                limits.append(self._folder(number, str(found["type"]), str(found.get("title") or number)))
            elif number in pages:
                limits.append(self._stated(pages[number]))
            elif number in odd:
                raise ValueError(f"page {number} above it could not be understood")
            else:
                limits.append(frozenset())  # a page above that is not to be seen admits nobody
        given = [limit for limit in limits if limit is not None]
        return frozenset.intersection(*given) if given else None

    def _stated(self, page: Json) -> frozenset[str] | None:
        if "restrictions" not in page:
            raise UntoldError(
                f"{self._place}: does not say who may view {page.get('title')}; with options.restrictions false "
                "restrictions are left out of account"
            )
        return self._labels(page["restrictions"]["read"]["restrictions"])

    def _labels(self, stated: Json) -> frozenset[str] | None:
        """A restriction to single persons, or to groups without a name, admits nobody."""
        groups, users = listed(stated["group"]["results"]), listed(stated["user"]["results"])
        if not groups and not users:
            return None
        names = [group["name"] for group in groups if isinstance(group.get("name"), str) and group["name"]]
        return frozenset(self._groups.get(name, name) for name in names)

    def _folder(self, number: str, kind: str, title: str) -> frozenset[str] | None:
        """The listing has no folders, whiteboards and databases: they are asked one by one."""
        if number in self._folders:
            return self._folders[number]
        reason, limit = "", None
        try:
            limit = self._labels(self._ask(number))
            if limit is None and not self._open_folders:
                reason = "it states no restriction, but Confluence's Cloud answers so for restricted ones too"
        except OutageError as error:
            reason = str(error)
        except ODD as error:
            reason = f"the answer is not of the known shape ({type(error).__name__}: {error})"
        if reason:
            limit = frozenset()
            name = f"{kind} {number}"
            told = f"who may see the pages below it cannot be told, so nobody may: {reason}"
            remedy = "restrict the pages themselves; if no folder is restricted, set options.open_folders"
            self.failures.append(Failure(name, name, f"{self._place} {kind} {title}", told, remedy))
        self._folders[number] = limit
        return limit
