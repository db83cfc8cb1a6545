"""Confluence's REST interface: the Atlassian client on the polite transport, of a Data Center server or the Cloud.

A server lists content by space and gives it by id. The Cloud has given up both in this version of the interface; there
the same expansions come through a search in its own query language, and version 2 says whether a page still exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx
import requests

from aps_rag_pipeline.settings import Feed, Network
from aps_rag_pipeline.sources.net.bridges import as_httpx, polite_session
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.net.http import answered, parse_json, refuse_page
from aps_rag_pipeline.sources.net.signin import read_sign_in
from aps_rag_pipeline.sources.net.transport import PoliteTransport
from aps_rag_pipeline.sources.wikis.naming import Json

#: What is asked for at a time; a server lowers it where the expansions cost it much.
_LIMIT = 200
_SEARCH = "rest/api/content/search"
#: So many replies in a row that bring nothing new end a listing: long stretches may be hidden from this reader, but a
#: cursor that leads nowhere (a known fault) leads on for ever.
_IDLE = 100


class Spaces:
    """One Confluence. Every call raises OutageError, GoneError or RefusedError."""

    def __init__(self, feed: Feed, network: Network, cloud: bool) -> None:
        from atlassian import Confluence

        self.cloud = cloud
        self.url = feed.url.rstrip("/")
        if cloud and not urlsplit(self.url).path:
            self.url += "/wiki"  # where every Cloud site has it
        self._transport = PoliteTransport(network, again=_is_torn)
        self._session = polite_session(self._transport)
        self._elsewhere = polite_session(self._transport)
        found = read_sign_in(feed)
        signed = {"token": found.token} if found.token else {}
        if found.user:
            signed = {"username": found.user, "password": found.password}
        # Attempts, pauses and time-outs are the transport's; the client makes none of its own.
        client: Any = Confluence  # has no types of its own
        self._client = client(
            self.url, session=self._session, cloud=cloud, backoff_and_retry=False, retry_with_header=False, **signed
        )

    def close(self) -> None:
        self._session.close()
        self._elsewhere.close()
        self._transport.close()

    def get(self, path: str, **params: Any) -> Json:
        """A JSON object."""
        reply = self._asked(path, params)
        if reply.status_code in (404, 410) and not _is_its_own(reply):
            raise OutageError(f"{self.url}: {path} is not there; is `url` the address of a Confluence?")
        said = parse_json(answered(reply))
        if not isinstance(said, dict):
            raise OutageError(f"{self.url}: {path} answers with no object; is `url` the address of a Confluence?")
        return said

    def listed(self, path: str, **params: Any) -> Iterator[Json]:
        """All results of a listing. A server may give fewer at a time than asked for, and fewer than there are on a
        page where some are hidden from this reader; only its own link to the next page says whether there is one."""
        asked: Json = {"limit": _LIMIT, **params}
        seen: set[str] = set()
        known: set[str] = set()
        idle = replies = 0
        while True:
            said = self.get(path, **asked)
            results = said.get("results")
            if not isinstance(results, list):
                told = said.get("message") or "no results"
                raise OutageError(f"{self.url}: {path} answers without a listing: {str(told)[:200]}")
            yield from (result for result in results if isinstance(result, dict))
            links = said.get("_links", {})
            if not isinstance(links, dict):
                raise OutageError(f"{self.url}: {path} does not say whether there is more")
            following = links.get("next")
            if not following:
                return
            if str(following) in seen:
                raise OutageError(f"{self.url}: {path} goes round in circles at {str(following)[:100]}")
            seen.add(str(following))
            new = {_name(result) for result in results} - known
            known |= new
            replies, idle = replies + 1, 0 if new else idle + 1
            total = said.get("totalSize")
            if idle > _IDLE or (isinstance(total, int) and replies > total + _IDLE):
                raise OutageError(f"{self.url}: {path} has no end: {len(known)} items in {replies} replies")
            # The link lacks the context path of some servers; its question is all that is needed.
            asked = dict(parse_qsl(urlsplit(str(following)).query))

    def contents(self, space: str, kinds: tuple[str, ...], expand: str) -> Iterator[Json]:
        """Current pages and blog posts of a space; of all spaces but personal ones where `space` is empty."""
        if self.cloud:
            where = f'space = "{space}"' if space else "space.type = global"
            yield from self.listed(_SEARCH, cql=f"type in ({', '.join(kinds)}) and {where}", expand=expand)
            return
        for kind in kinds:
            yield from self.listed("rest/api/content", spaceKey=space, type=kind, status="current", expand=expand)

    def spaces(self) -> list[str]:
        """Keys of the spaces that are no person's; on the Cloud one empty key that stands for all."""
        if self.cloud:
            return [""]
        found = self.listed("rest/api/space", type="global")
        return [space["key"] for space in found if isinstance(space.get("key"), str) and space["key"]]

    def attachments(self, space: str) -> Iterator[Json]:
        where = f'space = "{space}"' if space else "space.type = global"
        yield from self.listed(_SEARCH, cql=f"type = attachment and {where}", expand="version,container")

    def content(self, number: str, expand: str) -> Json:
        """One page.

        Raises:
            GoneError: it is not there, or only in the trash, or not for this reader.
        """
        if self.cloud:
            found = next(self.listed(_SEARCH, cql=f"id = {number}", expand=expand), None)
            if found is None:
                raise self._left_out(number)
        else:
            found = self.get(f"rest/api/content/{number}", expand=expand)
        self._check(found, number)
        return found

    def _left_out(self, number: str) -> OutageError:
        """What it means that the Cloud's search has no such content: its index may lag behind, or be built anew, so
        that only the content itself tells."""
        for kind in ("pages", "blogposts"):
            try:
                self._check(self.get(f"api/v2/{kind}/{number}"), number)
            except GoneError:
                continue
            return OutageError(f"{self.url}: content {number} is there, but the search does not find it")
        return GoneError(f"{self.url}: content {number} is not there any more")

    def _check(self, found: Json, number: str) -> None:
        status = found.get("status", "current")
        if str(found.get("id")) != number or not isinstance(status, str) or not status:
            raise OutageError(f"{self.url}: another answer came than content {number}")
        if status != "current":
            raise GoneError(f"{self.url}: content {number} is not there any more")

    def readers(self, number: str) -> Json:
        """Persons and groups to whom reading is restricted, of content that no listing has: a folder."""
        path = f"rest/api/content/{number}/restriction/byOperation/read"
        said: Json = self.get(path, expand="restrictions.user,restrictions.group")["restrictions"]
        return said

    def forbids(self, number: str) -> bool:
        """Whether this reader, who may sign in, may not see a page."""
        return not self.cloud and self._asked(f"rest/api/content/{number}", {}).status_code == 403

    def user(self, params: dict[str, str]) -> str:
        """The name of a person; empty where it is not told."""
        reply = self._asked("rest/api/user", params)
        if reply.status_code in (403, 404):
            return ""
        said = parse_json(answered(reply))
        return str(said.get("displayName") or said.get("publicName") or "") if isinstance(said, dict) else ""

    def download(self, address: str, name: str) -> bytes:
        """The bytes of an attachment."""
        url = address if "://" in address else self.url + "/" + address.lstrip("/")
        ours = urlsplit(urljoin(self.url, url))[:2] == urlsplit(self.url)[:2]
        try:
            reply = answered(as_httpx((self._session if ours else self._elsewhere).get(url)))
        except requests.RequestException as error:
            raise OutageError(f"{self.url}: {error}") from error
        refuse_page(reply.content, reply.headers["Content-Type"], name, self.url)
        return reply.content

    def _asked(self, path: str, params: Json) -> httpx.Response:
        try:
            return as_httpx(self._client.get(path, params=params, advanced_mode=True))
        except requests.RequestException as error:
            raise OutageError(f"{self.url}: {error}; mend `url`") from error


def _name(result: object) -> str:
    """What tells an item of a listing from the others."""
    return str(result.get("id") or result.get("key") or result) if isinstance(result, dict) else str(result)


def _is_its_own(reply: httpx.Response) -> bool:
    """Whether Confluence itself says, in JSON, that a thing is not there; a proxy's page says nothing about it."""
    try:
        return isinstance(json.loads(reply.content), dict)
    except ValueError:
        return False


def _is_torn(reply: httpx.Response) -> bool:
    """Whether JSON came that is cut off; a sign-in page stays what it is."""
    if not any(
        part in reply.request.url.path for part in ("/rest/api/", "/api/v2/")
    ) or reply.content.lstrip().startswith(b"<"):
        return False
    try:
        json.loads(reply.content)
    except ValueError:
        return True
    return False
