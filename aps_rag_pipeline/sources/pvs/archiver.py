"""PVs of an EPICS Archiver Appliance: what they are, and since when and how they are archived."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

from pydantic import Field

from aps_rag_pipeline.records import Record, access_hash, content_hash
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, FeedError, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan, digest
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.net.signin import signed_in
from aps_rag_pipeline.sources.options import Options, http_url, read_options
from aps_rag_pipeline.sources.patience import NotAskedError, Patience
from aps_rag_pipeline.sources.pvs.appliance import ALL, Appliance, appliance_time
from aps_rag_pipeline.sources.pvs.archived import archived_record

log = logging.getLogger(__name__)
T = TypeVar("T")

#: So many PVs may lack their configuration before the export counts as the one of half a cluster.
_FEW_MISSING, _SHARE_MISSING = 100, 0.1
#: Stamps have whole seconds, and the members of a cluster have clocks of their own.
_SETTLED_AFTER = timedelta(seconds=60)


class ArchiverOptions(Options):
    """What `options` of the feed may say."""

    #: export: all type infos at once, in which nothing can hide. recent: the reports of what was added and modified.
    listing: Literal["export", "recent"] = "export"
    #: Ask for the record fields of every PV too (DESC, states): one request a PV, for the fields that are archived.
    metadata: bool = False
    retrieval_url: str = Field("", pattern=r"^(https?://.*)?$")
    #: Appliances that are gone for good, so that PVs that went with them may be removed.
    retired: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArchivedPv(Listed):
    """A PV as it was listed; without a record it is asked for alone."""

    record: Record | None = None


class ArchiverPvs(LiveSource[ArchivedPv]):
    """The PVs of an appliance or a cluster.

    `url` is the address of the appliance (`http://archiver:17665`); `include` and `exclude` are glob patterns of names.

    Nothing can be missed: the export holds every type info in full, and tokens are digests of the records made of it.
    Names and export come from different places, and what the export lacks is asked for by name; a cluster of which a
    member is silent leaves the PVs of that member out of the export without a word. The reports (`listing: recent`)
    are for appliances whose export is too large: they tell all that the archiver's own actions change, but not what
    a script writes with putPVTypeInfo without moving the modification time; the weekly reconciliation finds that.
    """

    key = "epics"

    def scan(self, memory: Memory) -> ArchiverScan:
        return ArchiverScan(self.feed, self.context, memory)


class ArchiverScan(Scan[ArchivedPv]):
    def __init__(self, feed: Feed, context: SourceContext, memory: Memory) -> None:
        super().__init__(feed, context, memory)
        address = http_url(feed, "an appliance, such as http://archiver:17665")
        self.options = read_options(feed, ArchiverOptions)
        if self.options.metadata and self.options.listing == "recent":
            raise FeedError(f"feed {feed.name}: options: `metadata` needs `listing: export`")
        self.http = signed_in(feed, context.network)
        self.appliance = Appliance(self.http, address, self.options.retrieval_url)
        self._aliases: dict[str, str] = {}
        self._aliases_of: dict[str, list[str]] = {}
        self._silent: set[str] = set()
        self._states: dict[str, str] = {}
        self._patience = Patience(context.network, context.network.concurrency)
        #: PVs whose metadata did not come: they are asked for last the next time, so that they hold up no other.
        self._slow: set[str] = set()

    def close(self) -> None:
        self.http.close()

    def alive(self) -> bool:
        try:
            self.appliance.listed("getAllPVs", limit=1)
        except FeedError:
            return False
        return True

    # listing

    def units(self) -> Iterator[ArchivedPv | Failure | Ignored]:
        names = self.appliance.names()
        self._learn_aliases()
        names = {name for name in names if name not in self._aliases and self._wanted(name)}
        exported = self.options.listing == "export"
        yield from self._by_export(names) if exported else self._by_reports(names)

    def _by_export(self, names: set[str]) -> Iterator[ArchivedPv | Failure]:
        infos = {name: i for i in self.appliance.configuration() if self._wanted(name := str(i["pvName"]))}
        self._learn_members({str(info.get("applianceIdentity") or "") for info in infos.values()})
        missing = names - infos.keys()
        if len(missing) > max(_FEW_MISSING, _SHARE_MISSING * len(names)):
            silent = f"; silent: {', '.join(sorted(self._silent))}" if self._silent else ""
            raise OutageError(
                f"{self.feed.place}: exportConfig leaves out {len(missing)} of {len(names)} archived PVs, as it does "
                f"when an appliance of the cluster does not answer{silent}; nothing is changed"
            )
        known: Iterable[tuple[dict[str, Any], dict[str, Any] | NotAskedError | None]]
        known = self._with_metadata(infos) if self.options.metadata else ((info, {}) for info in infos.values())
        for info, metadata in known:
            yield self._listed(info, metadata)
        for name in sorted(missing):
            yield ArchivedPv(name, "")

    def _listed(self, info: dict[str, Any], metadata: dict[str, Any] | NotAskedError | None) -> ArchivedPv | Failure:
        name = str(info["pvName"])
        if metadata is None:
            return ArchivedPv(name, "")
        if isinstance(metadata, NotAskedError):
            reason = f"its metadata: {metadata}; it is kept as it is"
            remedy = "the next sync asks for it; see why the retrieval side is slow, or leave `options.metadata` out"
            return Failure(name, name, f"{self.feed.place} {name}", reason, remedy, False)
        try:
            record = self._record(info, metadata)
            return ArchivedPv(record.id, f"{content_hash(record)}{access_hash(record.access)}", record)
        except Exception as error:  # an odd type info must cost its PV and nothing else
            log.debug("listing %s", name, exc_info=error)
            reason = f"could not be understood ({type(error).__name__}: {error})"
            remedy = "look at its type info in the archiver"
            return Failure(name, name, f"{self.feed.place} {name}", reason, remedy, False)

    def _with_metadata(
        self, infos: Mapping[str, dict[str, Any]]
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any] | NotAskedError | None]]:
        names = sorted(infos, key=set(self.memory.notes.get("slow", ())).__contains__)
        with ThreadPoolExecutor(self.context.network.concurrency, thread_name_prefix="metadata") as pool:
            for name, metadata in zip(names, pool.map(self._metadata_if_any, names), strict=True):
                yield infos[name], metadata
        self.memory.notes["slow"] = sorted(self._slow)

    def _metadata_if_any(self, name: str) -> dict[str, Any] | NotAskedError | None:
        """Nothing where it is worth asking once more, an error where time is up."""
        try:
            return self._metadata(name)
        except NotAskedError as error:
            return error
        except (OutageError, UnreadableError) as error:
            log.debug("metadata of %s: %s; it is asked for once more", name, error)
            self._slow.add(name)
            return None

    def _metadata(self, name: str) -> dict[str, Any]:
        with self._patience.spent_on("it"):
            return self.appliance.metadata(name)

    def _by_reports(self, names: set[str]) -> Iterator[ArchivedPv]:
        """Tokens of the times at which PVs were added and modified. Both reports have to be asked for without a limit:
        the one of modifications begins with the oldest, so that a limit hides the newest.

        Times have whole seconds: a PV whose times are as fresh as the server's own clock could be modified once more
        without moving them, so it has no token until they are old.
        """
        self._learn_members(set())
        added = _stamps(self.appliance.listed("getRecentlyAddedPVs", limit=ALL), "creationTime")
        modified = _stamps(self.appliance.listed("getRecentlyModifiedPVs", limit=ALL), "modificationTime")
        now = self._server_time()
        for name in sorted(names | {name for name in added if self._wanted(name)}):
            stamps = [stamp for found in (added, modified) if (stamp := found.get(name))]
            settled = added.get(name) and now and all(self._settled(stamp, now) for stamp in stamps)
            yield ArchivedPv(name, digest(*stamps, *self._aliases_of.get(name, ())) if settled else "")

    def _settled(self, stamp: str, now: datetime) -> bool:
        moment = appliance_time(stamp, self.context.zone)
        return moment is not None and moment < now - _SETTLED_AFTER

    def _server_time(self) -> datetime | None:
        reply = self.http.request("GET", f"{self.appliance.mgmt}/getAllPVs", params={"limit": 1})
        try:
            return parsedate_to_datetime(reply.headers["Date"]).astimezone(UTC)
        except (KeyError, ValueError):
            return None

    def _learn_aliases(self) -> None:
        self._aliases = self._offered(self.appliance.aliases) or {}
        found = defaultdict(list)
        for alias, real in sorted(self._aliases.items()):
            found[real].append(alias)
        self._aliases_of = dict(found)

    def _learn_members(self, named: set[str]) -> None:
        """Which appliances there ought to be, and which of them are silent."""
        present = self._offered(self.appliance.members)
        if present is None:
            return
        known = ({*self.memory.notes.get("members", ()), *named, *present} - {"", *self.options.retired}) | present
        self._silent = known - present
        self.memory.notes["members"] = sorted(known)

    def _offered(self, ask: Callable[[], T]) -> T | None:
        """What an action answers that older appliances do not have."""
        try:
            return ask()
        except GoneError:
            return None

    def _wanted(self, name: str) -> bool:
        include, exclude = self.feed.include, self.feed.exclude
        return (not include or any(fnmatchcase(name, pattern) for pattern in include)) and not any(
            fnmatchcase(name, pattern) for pattern in exclude
        )

    # reading

    def prefetch(self, units: Sequence[ArchivedPv]) -> None:
        """The states of those that are asked for alone, in one request."""
        if names := [unit.name for unit in units if not unit.record]:
            self._states |= {name: said.get("status", "") for name, said in self.appliance.status(names).items()}

    def read(self, unit: ArchivedPv) -> Iterator[Upsert | Failure | Ignored]:
        record = unit.record
        if record is None:
            try:
                info = self.appliance.type_info(unit.name)
            except GoneError as error:
                self._judge_absence(unit.name, error)
                raise
            if info.get("pvName") != unit.name:
                yield Ignored(f"{self.feed.place} {unit.name}", f"an alias of {info.get('pvName')}")
                return
            record = self._record(info, self._metadata(unit.name) if self.options.metadata else {})
        yield Upsert(record, unit.name, f"{self.feed.place} {unit.name}")

    def gone(self, name: str) -> bool:
        if name in self._aliases or not self._wanted(name):
            return True
        try:
            return self.appliance.type_info(name).get("pvName") != name
        except GoneError as error:
            self._states.pop(name, None)
            self._judge_absence(name, error)
            return True

    def _judge_absence(self, name: str, error: GoneError) -> None:
        """A PV without type info is gone only if the appliance says that it does not archive it, and none is silent.

        Raises:
            OutageError: it may come back.
        """
        if self._silent:
            raise OutageError(
                f"{name}: no type info, but {', '.join(sorted(self._silent))} of the cluster does not answer; "
                "if it is gone for good, name it in `options.retired`"
            ) from error
        if name not in self._states:
            self._states[name] = self.appliance.status([name]).get(name, {}).get("status", "")
        if self._states[name] != "Not being archived":
            said = self._states[name] or "nothing is said of it"
            raise OutageError(f"{name}: no type info, but its status is not that it is gone ({said})") from error

    def _record(self, info: dict[str, Any], metadata: dict[str, Any]) -> Record:
        aliases = self._aliases_of.get(str(info["pvName"]), ())
        return archived_record(info, metadata, aliases, self.feed, self.context.zone)


def _stamps(report: list[Any], key: str) -> dict[str, str]:
    return {str(item["pvName"]): str(item[key]) for item in report if isinstance(item, dict) and item.get(key)}
