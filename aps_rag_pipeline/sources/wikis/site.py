"""MediaWiki's API: mwclient on the polite transport, and every way in which it says no."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import httpx

from aps_rag_pipeline.settings import Feed, Network
from aps_rag_pipeline.sources.base import UnreadableError
from aps_rag_pipeline.sources.net.bridges import as_httpx, polite_session
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError
from aps_rag_pipeline.sources.net.http import answered, parse_json, refuse_page, without_halves
from aps_rag_pipeline.sources.net.signin import read_sign_in
from aps_rag_pipeline.sources.net.transport import PoliteTransport
from aps_rag_pipeline.sources.wikis.naming import Json

if TYPE_CHECKING:
    import requests

_API = "/api.php"
#: Errors in a reply of status 200 that another attempt may not meet.
_BUSY = frozenset(
    ("maxlag", "ratelimited", "readonly", "internal_api_error_DBConnectionError", "internal_api_error_DBQueryError")
)
_REFUSED = frozenset(("readapidenied", "permissiondenied", "assertuserfailed", "assertbotfailed", "badtoken"))


class Site:
    """One wiki. Every call raises OutageError, or RefusedError where other credentials would help."""

    def __init__(self, feed: Feed, network: Network, maxlag: float) -> None:
        import mwclient

        self.feed = feed
        self.api = _api_address(feed.url)
        self._transport = PoliteTransport(network, again=_asks_again)
        self._session = polite_session(self._transport)
        self._elsewhere = polite_session(self._transport)
        self._common: Json = {"maxlag": f"{maxlag:g}"}
        where = urlsplit(self.api)
        # Attempts, pauses and time-outs are the transport's; mwclient makes none of its own.
        self._site = mwclient.Site(
            where.netloc,
            path=where.path.removesuffix("api.php"),
            scheme=where.scheme,
            pool=self._session,
            max_retries=0,
            retry_timeout=0,
            do_init=False,
        )
        try:
            self._sign_in()
        except BaseException:
            self.close()
            raise

    @property
    def case_sensitive(self) -> bool:
        """Whether titles may begin with a small letter."""
        return str(self._site.site.get("case", "")) == "case-sensitive"

    def close(self) -> None:
        self._session.close()
        self._elsewhere.close()
        self._transport.close()

    def query(self, **params: Any) -> Json:
        """One reply to action=query, with its `query` and perhaps its `continue`."""
        with self._understood():
            reply = self._site.get("query", retry_on_error=False, **self._common, **params)
            if not isinstance(reply["query"]["userinfo"], dict):  # it is always asked for
                raise TypeError("userinfo")
            said: Json = without_halves(dict(reply))
            return said

    def pages_of(self, **params: Any) -> Iterator[Json]:
        """Replies to one question, continued until the wiki has said everything."""
        going_on: Json = {}
        for _ in range(1_000_000):
            reply = self.query(**{**params, **going_on})
            yield reply["query"]
            following = reply.get("continue")
            if not following:
                return
            if not isinstance(following, dict) or following == going_on:
                raise OutageError(f"{self.api}: the listing goes round in circles at {str(following)[:100]}")
            going_on = following
        raise OutageError(f"{self.api}: the listing has no end")

    def download(self, address: str, name: str) -> bytes:
        """The bytes of an uploaded file."""
        url = urljoin(self.api, address)
        ours = urlsplit(url)[:2] == urlsplit(self.api)[:2]
        with self._understood():
            reply = answered(as_httpx((self._session if ours else self._elsewhere).get(url)))
        refuse_page(reply.content, reply.headers["Content-Type"], name, self.api)
        return reply.content

    def _sign_in(self) -> None:
        found = read_sign_in(self.feed)
        if found.token:
            self._session.headers["Authorization"] = f"Bearer {found.token}"
        with self._understood():
            if found.user:
                self._site.login(found.user, found.password)
            else:
                self._site.site_init()
        if found.token or found.user:
            # A session that ends in the middle would show an anonymous reader's wiki: fewer pages, not an error.
            self._common["assert"] = "user"

    @contextmanager
    def _understood(self) -> Iterator[None]:
        import requests
        from mwclient import errors

        try:
            yield
        except (OutageError, UnreadableError):
            raise
        except errors.APIError as error:
            raise self._refusal(str(error.code), str(error.info)) from error
        except errors.LoginError as error:
            raise RefusedError(
                f"{self.api}: signing in failed ({error.code}); check the bot password in `credentials`"
            ) from error
        except errors.InvalidResponse as error:
            parse_json(httpx.Response(200, text=error.response_text, request=httpx.Request("GET", self.api)))
            raise OutageError(f"{self.api}: {error}") from error
        except errors.MaximumRetriesExceeded as error:
            raise OutageError(f"{self.api}: the wiki is too busy; it is asked again with the next sync") from error
        except errors.MwClientError as error:
            raise OutageError(f"{self.api}: {error}; is `url` the address of api.php?") from error
        except requests.HTTPError as error:
            raise self._status(error) from error
        except requests.RequestException as error:
            raise OutageError(f"{self.api}: {error}; mend `url`") from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise OutageError(
                f"{self.api}: a reply of an unexpected shape ({type(error).__name__}: {error}); is `url` the address "
                "of a MediaWiki's api.php?"
            ) from error

    def _status(self, error: requests.HTTPError) -> OutageError:
        try:
            if error.response is not None:
                answered(as_httpx(error.response))
        except GoneError as gone:
            # The API itself is not there: that says nothing about the page it was asked for.
            return OutageError(f"{gone}; is `url` the address of api.php?")
        except OutageError as outage:
            return outage
        return OutageError(f"{self.api}: {error}")

    def _refusal(self, code: str, said: str) -> OutageError:
        if code in _REFUSED:
            return RefusedError(
                f"{self.api}: {code}: {said[:200]}; this wiki wants a reader who has signed in: give a bot password in "
                "`credentials`"
            )
        return OutageError(f"{self.api}: the wiki answers with the error {code}: {said[:200]}")


def _api_address(url: str) -> str:
    """The address of api.php: `url` may be it or the folder that holds it."""
    plain = url.partition("?")[0].partition("#")[0]
    return plain if plain.endswith(_API) else plain.rstrip("/") + _API


def _asks_again(reply: httpx.Response) -> bool:
    if not reply.request.url.path.endswith(_API):
        return False
    try:
        said = json.loads(reply.content)
    except ValueError:
        return not reply.content.lstrip().startswith(b"<")  # cut off; a sign-in page stays what it is
    error = said.get("error") if isinstance(said, dict) else None
    return isinstance(error, dict) and error.get("code") in _BUSY
