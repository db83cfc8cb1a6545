"""What `options` of a live BELY feed may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from aps_rag_pipeline.settings import SecretPlace, Section
from aps_rag_pipeline.sources.options import Options


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


class BelyOptions(Options):
    logbooks: tuple[str, ...] = Field((), description="names, shown names or ids of logbook types; empty means all")
    attachments: bool = True
    mqtt: Mqtt | None = None

    @field_validator("logbooks", mode="before")
    @classmethod
    def _ids_too(cls, value: Any) -> Any:
        return tuple(map(str, value)) if isinstance(value, list) else value
