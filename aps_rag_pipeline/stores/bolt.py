"""Speaking Bolt: where the server is, a driver for it, and its errors in words that help."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import neo4j

_CONNECT_S = 10.0
_SCHEMES = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")


class GraphError(Exception):
    """The graph server cannot be used; the message names the address and the remedy."""


@dataclass(frozen=True)
class GraphAddress:
    """A Bolt server and the database on it that the projection goes to."""

    uri: str
    user: str
    password: str = field(repr=False)
    database: str = "neo4j"

    def check(self) -> None:
        """See that the address is one of a Bolt server.

        Raises:
            GraphError: it is not.
        """
        scheme, separator, rest = self.uri.partition("://")
        if scheme not in _SCHEMES or not separator or not rest:
            raise GraphError(f"{self.uri}: not the address of a Bolt server; set graph.uri to bolt://host:port")


@contextlib.contextmanager
def connect(address: GraphAddress) -> Iterator[neo4j.Driver]:
    """A driver that has shaken hands with the server. Errors of the driver become GraphError, inside the block too.

    Raises:
        GraphError: no server, wrong password, no such database, or a statement that failed.
    """
    from neo4j import GraphDatabase

    address.check()
    with (
        translated(address),
        GraphDatabase.driver(
            address.uri,
            auth=(address.user, address.password),
            connection_timeout=_CONNECT_S,
            # Kept short: the driver's own retries would hide a server that is gone for half a minute.
            max_transaction_retry_time=5.0,
            user_agent="aps-rag",
        ) as driver,
    ):
        driver.verify_connectivity()
        yield driver


@contextlib.contextmanager
def translated(address: GraphAddress) -> Iterator[None]:
    """Turn what the driver raises into GraphError."""
    from neo4j import exceptions

    try:
        yield
    except exceptions.AuthError as error:
        raise GraphError(
            f"{address.uri}: the server refuses user {address.user!r}; set graph.user and APS_RAG_GRAPH__PASSWORD"
        ) from error
    except (exceptions.ServiceUnavailable, exceptions.SessionExpired) as error:
        raise GraphError(
            f"{address.uri}: no Bolt server answers ({_first_line(error)}); "
            "start one with `aps-rag graph up` or mend graph.uri"
        ) from error
    except exceptions.Neo4jError as error:
        raise GraphError(
            f"{address.uri}, database {address.database!r}: {_first_line(error.message or error)}"
        ) from error
    except exceptions.DriverError as error:
        raise GraphError(f"{address.uri}: {_first_line(error)}") from error


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:300]
