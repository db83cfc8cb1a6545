"""Tokens for Graph: with a client secret through azure-identity, or a ready one."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import httpx

from aps_rag_pipeline.settings import Feed, Network, SettingsError
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.sources.graphchat.options import GraphOptions, Service
from aps_rag_pipeline.sources.net.bridges import polite_session
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.net.transport import REPEATABLE, PoliteTransport

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken

#: A token is renewed so long before it ends, since a request may take its time.
_EARLY_S = 300
_FOR_EVER_S = 10**9


class _AskingAgain(PoliteTransport):
    """A request for a token changes nothing, so its POST may be sent again."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions[REPEATABLE] = True
        return super().handle_request(request)


class Tokens:
    """The token of a feed, got when it is needed and renewed when it ends or is refused.

    It is a credential as azure-core wants it (`get_token` may be awaited), used inside one event loop.
    """

    def __init__(self, feed: Feed, options: GraphOptions, service: Service, network: Network) -> None:
        self._feed, self._options, self._service = feed, options, service
        self._client_id = options.client_id or feed.credentials.user
        self._transport = _AskingAgain(network)
        self._lock = asyncio.Lock()
        self._token: AccessToken | None = None
        if feed.credentials.token is None:
            self._require_secret()

    async def get_token(self, *scopes: str, claims: str | None = None, **more: Any) -> AccessToken:
        """Raises:
        FeedError: the sign-in fails.
        """
        async with self._lock:
            if self._token is None or claims or self._token.expires_on - time.time() < _EARLY_S:
                self._token = await asyncio.to_thread(self._obtain, claims)
            return self._token

    async def close(self) -> None:
        self._transport.close()

    @property
    def current(self) -> str:
        """The token that the last request bore."""
        return self._token.token if self._token else ""

    async def renew(self, refused: str) -> bool:
        """Get another token in place of a refused one; whether there is another."""
        async with self._lock:
            if self.current == refused:
                self._token = await asyncio.to_thread(self._obtain, None)
            return self.current != refused

    def _obtain(self, claims: str | None) -> AccessToken:
        from azure.core.credentials import AccessToken

        try:
            if self._feed.credentials.token is not None:
                token = self._feed.credentials.token.read().get_secret_value()
                return AccessToken(token, int(time.time()) + _FOR_EVER_S)
            return self._sign_in(claims)
        except SettingsError as error:
            raise FeedError(f"feed {self._feed.name}: {error}") from error

    def _sign_in(self, claims: str | None) -> AccessToken:
        """A new credential each time: its own memory would give a refused token again."""
        from azure.core.exceptions import AzureError
        from azure.core.pipeline.transport import RequestsTransport
        from azure.identity import ClientSecretCredential

        assert self._feed.credentials.password is not None
        session = polite_session(self._transport)
        authority = {"authority": self._options.authority} if self._options.authority else {}
        try:
            with ClientSecretCredential(
                self._options.tenant,
                self._client_id,
                self._feed.credentials.password.read().get_secret_value(),
                disable_instance_discovery=bool(authority),
                transport=RequestsTransport(session=session, session_owner=False, use_env_settings=False),
                retry_total=0,  # the transport has tried
                **authority,
            ) as credential:
                return credential.get_token(self._service.scope, claims=claims)
        except (AzureError, ValueError) as error:
            outage = _outage_behind(error)
            if outage is not None:
                raise FeedError(f"the sign-in: {outage}") from error
            said = " ".join(str(error).split())[:300]
            raise FeedError(
                f"{self._feed.place}: the sign-in as {self._client_id} fails ({said}); check options.tenant, "
                "options.client_id, options.authority and the secret of credentials.password, which may have expired"
            ) from error
        finally:
            session.close()

    def _require_secret(self) -> None:
        missing = [
            name
            for name, value in (
                ("options.tenant", self._options.tenant),
                ("options.client_id", self._client_id),
                ("credentials.password", self._feed.credentials.password),
            )
            if not value
        ]
        if missing:
            raise FeedError(
                f"feed {self._feed.name}: no way to sign in: {', '.join(missing)} missing; or give `credentials.token`"
            )


def _outage_behind(error: BaseException | None) -> OutageError | None:
    while error is not None and not isinstance(error, OutageError):
        error = error.__cause__ or error.__context__
    return error
