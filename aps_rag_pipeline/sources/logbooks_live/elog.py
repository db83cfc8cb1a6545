"""PSI ELOG."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import quote, unquote

from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, FeedError, Found, Ignored, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan, digest
from aps_rag_pipeline.sources.logbooks.elog import START, Naming, RawEntry, parse_entry, to_entry
from aps_rag_pipeline.sources.logbooks.threads import ThreadWriter
from aps_rag_pipeline.sources.logbooks.units import unit_records
from aps_rag_pipeline.sources.logbooks_live.entries import WebFiles
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError, RefusedError
from aps_rag_pipeline.sources.net.http import Http, refuse_page
from aps_rag_pipeline.sources.options import Options, demand_user_and_password, http_url, read_options, read_secret

_LINE = re.compile(r"^ID:\s*(\d+)\s+MD5:([0-9A-F]{32})$")
#: What an error page says, and nothing else, of an entry that is gone. Servers in other languages say it otherwise.
_GONE = re.compile(
    r"(?:error:? *)?(?:this|the)? *(?:entry|message) *(?:#?\d+)? *(?:has been deleted|does not exist)[.!]?",
    re.IGNORECASE,
)
_ERROR = re.compile(r"class=[\"']?errormsg[^>]*>(.*?)</td", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_CRYPT_ROUNDS = 5000
_PARALLEL = 4
_BLOCK = 50


class ElogOptions(Options):
    """What `options` of the feed may say: the attributes that name an entry's author, title and time, and its log."""

    author: str | None = None
    title: str | None = None
    event: str | None = None
    logbook: str | None = None
    #: The password is as elogd keeps it in its password file.
    password_is_encoded: bool = False


@dataclass(frozen=True)
class ElogThread(Listed):
    """A top-level entry and the ids of its replies."""

    replies: tuple[str, ...] = ()


class Elog(LiveSource[ElogThread]):
    """One log book of an ELOG server."""

    key = "bely"
    version = 1
    block = _BLOCK
    parallel = _PARALLEL

    def scan(self, memory: Memory) -> ElogScan:
        options = read_options(self.feed, ElogOptions)
        cookie = _cookie(self.feed, options.password_is_encoded)
        http = Http(self.context.network, headers={"Cookie": cookie} if cookie else None)
        return ElogScan(self.feed, self.context, memory, http)

    def fingerprint(self) -> str | None:
        """Digests move with every word of an entry, so their list is all that need be looked at."""
        with closing(self.scan(Memory())) as scan:
            return digest(*(f"{number}|{md5}" for number, md5 in sorted(scan.digests().items())))

    def check(self) -> Found:
        with closing(self.scan(Memory())) as scan:
            entries = len(scan.digests())
        if not entries:
            raise FeedError(f"{self.feed.url}: the log book answers, but it is empty; check `url`")
        return Found(entries, f"{self.feed.url} answers; {entries} entries listed")


class ElogScan(Scan[ElogThread]):
    """`?cmd=GetMD5`, by which ELOG servers mirror one another, lists every entry with the digest of its text.

    It does not say who answers whom, which stands in the entries. So the entries whose digest moved are read while
    listing, and what each answers is kept in the notes, with the digest at which it was read: `id -> [md5, parent]`.
    An entry that cannot be read leaves no note and is read again; a thread that cannot be read whole stays as it was.

    An error page in place of an entry may say anything: that the user may not read it, that a disk fails. It proves
    that the entry is gone only where its words are exactly these, or where the list, had a second time, lacks it.
    """

    def __init__(self, feed: Feed, context: SourceContext, memory: Memory, http: Http) -> None:
        super().__init__(feed, context, memory)
        self.http = http
        self.base = http_url(feed, "a log book of ELOG")
        self.naming = Naming.of(feed.options, unquote(self.base.rsplit("/", 1)[-1]))
        #: As the last sync left them: what had been read of which entry.
        self._noted: dict[str, list[str]] = dict(memory.notes.get("entries", {}))
        self._listed: dict[str, str] = {}
        self._again: dict[str, str] | None = None
        self._lock = threading.Lock()
        self._parents: dict[str, str] = {}
        self._read: dict[str, RawEntry] = {}

    def digests(self) -> dict[str, str]:
        """Every entry with its digest.

        Raises:
            FeedError: the list cannot be had whole.
        """
        place = f"{self.base}/?cmd=GetMD5"
        text = self.http.request("GET", f"{self.base}/", params={"cmd": "GetMD5"}).content.decode("latin-1")
        _refuse_page(text, place)
        found: dict[str, str] = {}
        for line in text.splitlines():
            match = _LINE.match(line.strip())
            if match is None:
                raise OutageError(f"{place}: the list of digests is cut off or damaged at {line.strip()[:60]!r}")
            if int(match[1]):  # 0 is the log book's configuration
                found[str(int(match[1]))] = match[2]
        if not text.endswith("\n"):
            raise OutageError(f"{place}: the list of digests is cut off or damaged: its last line has no end")
        return found

    def units(self) -> Iterator[ElogThread | Failure | Ignored]:
        self._listed = self.digests()
        moved = [number for number, md5 in self._listed.items() if self._noted.get(number, [""])[0] != md5]
        self._parents = {number: note[1] for number, note in self._noted.items() if number in self._listed}
        self._read_moved(moved)
        notes = {number: note for number, note in self._noted.items() if number in self._listed}
        notes.update({n: [self._listed[n], self._parents.get(n, "")] for n in moved if n in self._read})
        self.memory.notes["entries"] = notes
        threads: dict[str, list[str]] = {}
        for number in sorted(self._listed, key=int):
            threads.setdefault(self._top(number), []).append(number)
        for top, members in threads.items():
            state = digest(*(f"{number}|{self._listed[number]}" for number in members))
            yield ElogThread(top, state, tuple(number for number in members if number != top))

    def read(self, unit: ElogThread) -> Iterator[Upsert | Failure | Ignored]:
        top = self._raw(unit.name)
        if top.parent in self._listed and top.parent != self._parents.get(unit.name):
            raise OutageError(f"{self._place(top.id)}: answers {top.parent}, with which the next sync reads it")
        entries, failures = [to_entry(top, self._place(top.id), self.naming)], []
        for number in unit.replies:
            try:
                entries.append(to_entry(self._raw(number), self._place(number), self.naming))
            except GoneError:
                continue
            except (OutageError, UnreadableError) as error:
                if number in self._noted:
                    raise  # its words are known; the thread stays as it was rather than lose them
                failures.append(self._unread(unit.name, number, error))
        files = WebFiles(self.context, self.memory, unit.name, self._file)
        yield from unit_records(entries, ThreadWriter(self.feed, self.context, unit.name, files))
        yield from failures

    def gone(self, name: str) -> bool:
        """Gone, or part of another thread now. The list is had a second time, and the entry asked for by its number."""
        if name in self._listed:
            return True
        if self._lacks(name):
            try:
                self._proven(name)
            except (GoneError, UnreadableError):
                return True
        raise FeedError(f"{self.base}: the list of digests leaves out entry {name}, which is there; nothing is removed")

    def alive(self) -> bool:
        try:
            self.digests()
        except FeedError:
            return False
        return True

    def close(self) -> None:
        self.http.close()

    def _top(self, number: str) -> str:
        """The entry at the head of the thread; one of a ring of replies, or whose parent is gone, is its own."""
        above, seen = number, {number}
        while (parent := self._parents.get(above, "")) in self._listed:
            if parent in seen:
                return number
            seen.add(parent)
            above = parent
        return above

    def _read_moved(self, moved: Sequence[str]) -> None:
        """Read what moved; what cannot be had is left to the reading of its thread. Hanging ones end it early."""
        patience = 2 * self.context.network.deadline_s
        if "digests_hold" not in self.memory.notes and moved:  # settle it before entries come side by side
            self._keep(self._attempt(moved[0])[0])
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix=f"list-{self.feed.name}") as pool:
            for start in range(0, len(moved), _BLOCK):
                if patience < 0:
                    return
                for raw, lost_s in pool.map(
                    self._attempt, [n for n in moved[start : start + _BLOCK] if n not in self._read]
                ):
                    patience -= lost_s / _PARALLEL
                    self._keep(raw)

    def _keep(self, raw: RawEntry | None) -> None:
        if raw is not None:
            self._read[raw.id] = raw
            self._parents[raw.id] = raw.parent
            for reply in raw.replies:
                self._parents.setdefault(reply, raw.id)

    def _attempt(self, number: str) -> tuple[RawEntry | None, float]:
        started = time.monotonic()
        try:
            return self._download(number), 0.0
        except (OutageError, UnreadableError):
            return None, time.monotonic() - started

    def _raw(self, number: str) -> RawEntry:
        known = self._read.pop(number, None)
        return known if known is not None else self._proven(number)

    def _proven(self, number: str) -> RawEntry:
        """An entry; that there is none is told only where it is certain."""
        try:
            return self._download(number)
        except _NoEntryError as error:
            if self._lacks(number):
                raise GoneError(str(error)) from error
            raise

    def _lacks(self, number: str) -> bool:
        """Whether the list of digests, had a second time, leaves an entry out."""
        return number not in self._listed_again()

    def _listed_again(self) -> dict[str, str]:
        with self._lock:
            if self._again is None:
                self._again = self.digests()
            return self._again

    def _download(self, number: str) -> RawEntry:
        place = self._place(number)
        data = self._bytes(number)
        text = data.decode("utf-8", "replace") if _is_utf8(data) else data.decode("cp1252", "replace")
        if text.lstrip().startswith("<"):
            _refuse_login(text, place)
            if (said := _ERROR.search(text[:20_000])) is not None:
                words = " ".join(_TAG.sub(" ", said[1]).split())
                raise (GoneError if _GONE.fullmatch(words) else _NoEntryError)(f"{place}: {words[:200]}")
            raise OutageError(f"{place}: a web page came where an entry was due")
        if not text.startswith(START):
            raise OutageError(f"{place}: no entry of ELOG came, but {text.strip()[:60]!r}")
        self._check_whole(number, data)
        raw = parse_entry(text)
        if raw.id != number:
            raise OutageError(f"{place}: entry {raw.id} came instead")
        return raw

    def _bytes(self, number: str) -> bytes:
        try:
            return self.http.request("GET", f"{self.base}/{number}", params={"cmd": "Download"}).content
        except GoneError as error:
            raise _NoEntryError(str(error)) from error

    def _check_whole(self, number: str, data: bytes) -> None:
        """An entry is whole when its digest is the listed one, or that of a second list if it was edited meanwhile. A
        server of which no digest was ever right may reckon them in another way: there an entry is believed that ends
        like one and comes the same twice."""
        if _has_digest(data, self._listed.get(number)):
            self.memory.notes["digests_hold"] = True
            return
        if self.memory.notes.get("digests_hold"):
            sound = number not in self._listed or _has_digest(data, self._listed_again().get(number))
        else:
            sound = data.endswith((b"\n", b"\r")) and self._bytes(number) == data
        if not sound:
            raise OutageError(f"{self._place(number)}: the entry is cut off: its digest is another than the listed one")

    def _file(self, address: str) -> bytes:
        """An attachment by its stored name, YYMMDD_hhmmss_name; the server shows a page with status 200 for none."""
        stored, name = address[:13], address[14:]
        url = f"{self.base}/{quote(stored)}/{quote(name, safe='')}"
        reply = self.http.request("GET", url)
        if reply.content[:512].lstrip().startswith(b"<"):
            page = reply.content[:8000].decode("latin-1")
            _refuse_login(page, url)
            if "was not found on this server" in page:
                raise GoneError(f"{url}: the server has no such file")
        refuse_page(reply.content, reply.headers.get("Content-Type", ""), name, url)
        return reply.content

    def _unread(self, unit: str, number: str, error: OutageError | UnreadableError) -> Failure:
        reason = f"a reply cannot be read: {error}"
        return Failure(unit, f"{unit}/{number}", self._place(number), reason, "the next sync asks again", False, unit)

    def _place(self, number: str) -> str:
        return f"{self.base}/{number}"


class _NoEntryError(OutageError):
    """An error page came in place of an entry, which may or may not be there."""


def _cookie(feed: Feed, is_encoded: bool) -> str:
    """The cookie by which ELOG knows a user; none where nobody is named.

    Raises:
        FeedError: the credentials are no user with a password, or this cannot be read.
    """
    demand_user_and_password(feed, "ELOG")
    credentials = feed.credentials
    if credentials.password is None:
        return ""
    password = read_secret(feed, credentials.password)
    coded = password.removeprefix("$5$$") if is_encoded else elog_password(password)
    return f"unm={credentials.user}; upwd={coded}"


def elog_password(password: str) -> str:
    """What ELOG keeps of a password, and wants in its cookie: SHA-256 crypt without salt, in its usual rounds."""
    from passlib.hash import sha256_crypt

    coded: str = sha256_crypt.using(salt="", rounds=_CRYPT_ROUNDS).hash(password)
    return coded.removeprefix("$5$$")


def _refuse_page(text: str, place: str) -> None:
    """A list of digests begins with the log book's own."""
    if text.lstrip().startswith("<"):
        _refuse_login(text, place)
        raise OutageError(f"{place}: a web page ({_plain(text)}) came where the list of digests was due")
    if not text.startswith("ID:"):
        raise OutageError(
            f"{place}: {text.strip()[:60]!r} came where the list of digests was due; is `url` the address of a log "
            "book of ELOG 2.5 or later, such as https://elog.example.org/Operations ?"
        )


def _refuse_login(text: str, place: str) -> None:
    if re.search(r"type=[\"']?password|form name=[\"']?form1", text, re.IGNORECASE):
        raise RefusedError(f"{place}: the server wants a user and a password; check the feed's `credentials`")


def _plain(page: str) -> str:
    title = re.search(r"<title[^>]*>\s*(.*?)\s*</title|class=\"errormsg\"[^>]*>(.*?)<", page, re.IGNORECASE | re.DOTALL)
    return (title[1] or title[2] or "")[:80] if title else "untitled"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _has_digest(data: bytes, listed: str | None) -> bool:
    return hashlib.md5(data, usedforsecurity=False).hexdigest().upper() == listed
