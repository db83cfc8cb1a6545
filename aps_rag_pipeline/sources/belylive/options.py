"""What `options` of a live BELY feed may say."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from aps_rag_pipeline.settings import Feed, SecretPlace, Section
from aps_rag_pipeline.sources.base import FeedError


class Mqtt(Section):
    """The broker that the server sends its events to."""

    host: str = Field(min_length=1)
    port: int = Field(0, ge=0, le=65535, description="0: 8883 with TLS, 1883 without")
    topic: str = Field("bely/#", min_length=1)
    tls: bool = False
    ca_file: Path | None = Field(None, description="certificates to trust instead of the system's")
    user: str = ""
    password: SecretPlace | None = None

    @property
    def broker(self) -> tuple[str, int]:
        return self.host, self.port or (8883 if self.tls else 1883)


class Options(Section):
    logbooks: tuple[str, ...] = Field((), description="names, shown names or ids of logbook types; empty means all")
    attachments: bool = True
    mqtt: Mqtt | None = None


def read_options(feed: Feed) -> Options:
    """The options of a feed.

    Raises:
        FeedError: with the option that cannot be used.
    """
    said = {**feed.options}
    if isinstance(said.get("logbooks"), list):
        said["logbooks"] = tuple(map(str, said["logbooks"]))
    try:
        return Options.model_validate(said)
    except ValidationError as error:
        wrong = "; ".join(f"options.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise FeedError(f"feed {feed.name}: {wrong}") from error
