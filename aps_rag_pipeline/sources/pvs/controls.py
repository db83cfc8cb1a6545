"""PVs as the control system itself tells them, over Channel Access or PVAccess."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from aps_rag_pipeline.content.text import decode
from aps_rag_pipeline.records import Record, access_hash, content_hash
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, FeedError, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan
from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.options import Options, read_options
from aps_rag_pipeline.sources.pvs.answers import Answer, ProtocolName, open_client
from aps_rag_pipeline.sources.pvs.model import MAX_NAME, pv_of_fields, pv_record
from aps_rag_pipeline.sources.pvs.record_fields import lasting

_LISTS = (".txt", ".lst", ".list")


class ControlsOptions(Options):
    """What `options` of the feed may say."""

    #: PVs to read, beside those of `location`.
    names: tuple[str, ...] = ()
    #: Where to search: `host` or `host:port`. Without any, as the environment of the process says.
    addresses: tuple[str, ...] = ()
    port: int | None = Field(None, ge=1, le=65535)
    #: Ask for the type and description of records too; only IOCs, and gateways to them, have these.
    fields: bool = True
    #: Names and values for the database files of `location`.
    macros: dict[str, str] = Field({})


@dataclass(frozen=True)
class AnsweredPv(Listed):
    """A PV that answered, or the reason why it did not."""

    record: Record | None = None
    problem: str = ""


class ControlsPvs(LiveSource[AnsweredPv]):
    """PVs that are named by `location` (a list, tables, database files) or `options.names`, and asked what they are.

    The protocols have no listing and tell of no changes, so every PV is asked at every sync; its token is the digest
    of what it says of itself, values, severities and times left out. A PV that does not answer keeps its record. If
    none answers the feed is out of order. One that is named no longer is gone.
    """

    key = "epics"
    parallel = 1
    protocol: ClassVar[ProtocolName]

    def scan(self, memory: Memory) -> ControlsScan:
        return ControlsScan(self.feed, self.context, memory, self.protocol)


class ChannelAccessPvs(ControlsPvs):
    """PVs over Channel Access."""

    protocol = "channel_access"


class PvAccessPvs(ControlsPvs):
    """PVs over PVAccess."""

    protocol = "pvaccess"


class ControlsScan(Scan[AnsweredPv]):
    def __init__(self, feed: Feed, context: SourceContext, memory: Memory, protocol: ProtocolName) -> None:
        super().__init__(feed, context, memory)
        self.protocol = protocol
        self.options = read_options(feed, ControlsOptions)
        self._answered = 0

    def alive(self) -> bool:
        return self._answered > 0

    def units(self) -> Iterator[AnsweredPv | Failure | Ignored]:
        names: dict[str, None] = {}
        for found in self._named():
            if isinstance(found, str):
                names.setdefault(found)
            else:
                yield found
        wanted = list(names)
        if not wanted:
            raise FeedError(
                f"feed {self.feed.name}: no PV is named; give `options.names`, or `location` a list of them"
            )
        timeout = self.context.network.timeout_s
        problem = ""
        with closing(open_client(self.protocol, self.options.addresses, self.options.port, timeout)) as client:
            for answer in client.ask(wanted, fields=self.options.fields).values():
                self._answered += not answer.problem
                problem = problem or answer.problem
                yield self._listed(answer)
        if not self._answered:
            where = ", ".join(self.options.addresses) or "the addresses of the environment"
            raise OutageError(
                f"feed {self.feed.name}: none of {len(wanted)} PVs answers; searched at {where}; "
                f"the first: {problem}; check `options.addresses`, `options.port` and the gateway's access rules"
            )

    def _listed(self, answer: Answer) -> AnsweredPv:
        if answer.problem:
            return AnsweredPv(answer.name, "", None, answer.problem)
        pv = pv_of_fields(answer.name, "", answer.record_type, lasting(answer.fields))
        if answer.data_type:
            pv.others["data type"] = [answer.data_type]
        if answer.elements > 1:
            pv.others["elements"] = [answer.elements]
        record = pv_record(pv, self.feed)
        return AnsweredPv(answer.name, f"{content_hash(record)}{access_hash(record.access)}", record)

    def read(self, unit: AnsweredPv) -> Iterator[Upsert | Failure | Ignored]:
        if unit.record is None:
            raise OutageError(f"{unit.name}: {unit.problem}")
        yield Upsert(unit.record, unit.name, f"{self.protocol} {unit.name}")

    # names

    def _named(self) -> Iterator[str | Failure | Ignored]:
        """The names, and what of the files could not be read for names.

        Raises:
            FeedError: a whole file cannot be read, so that what it names cannot be told from what is gone.
        """
        yield from self.options.names
        if "location" not in self.feed.model_fields_set:
            return
        location = self.feed.location
        lists = [location] if location.suffix.lower() in _LISTS else []
        if not lists:
            lists = sorted(path for path in location.rglob("*") if path.suffix.lower() in _LISTS and path.is_file())
            yield from self._named_by_files()
        for path in lists:
            yield from self._named_by_list(path)

    def _named_by_list(self, path: Path) -> Iterator[str | Failure]:
        limit = self.context.limits.max_file_mb
        try:
            if path.stat().st_size > limit * 1e6:
                raise FeedError(f"{path}: the list of PVs is above limits.max_file_mb ({limit:g}); split it")
            lines = decode(path.read_bytes(), self.feed.encoding).splitlines()
        except (OSError, UnreadableError) as error:
            raise FeedError(f"{path}: the list of PVs cannot be read ({error})") from error
        for number, line in enumerate(lines, 1):
            name = line.split("#")[0].strip() if line.lstrip().startswith("#") else line.strip()
            if not name:
                continue
            place = f"{path.name}:{number}"
            if len(name) > MAX_NAME or len(name.split()) > 1:
                yield Failure(place, place, place, "not one PV name", "one name a line", True)
            else:
                yield name

    def _named_by_files(self) -> Iterator[str | Failure | Ignored]:
        from aps_rag_pipeline.sources.epics import EpicsFiles

        feed = self.feed.model_copy(update={"form": "files", "url": "", "options": {"macros": self.options.macros}})
        for change in EpicsFiles(feed, self.context).changes(None):
            if isinstance(change, Upsert):
                yield change.record.id
            elif isinstance(change, Failure) and change.item == change.unit:
                raise FeedError(f"{change.place}: what it names cannot be read: {change.reason}")
            elif isinstance(change, Failure | Ignored):
                yield change
