"""The part of MediaWiki's API that readers use, with its manners: limits, continuation, warnings, errors in a 200."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from werkzeug import Request, Response

from aps_rag_pipeline.demo.live.wiki_folder import FolderPages
from aps_rag_pipeline.demo.live.wiki_store import Json, Page, StoredFile, WikiStore

_COOKIE = "wiki_session"
_TITLES = 50
_FILE = re.compile(r"\[\[(?:File|Image):([^\]|]+)", re.IGNORECASE)
_STAMP = "%Y-%m-%dT%H:%M:%SZ"
_LISTS = ("allpages", "allredirects", "allfileusages", "allimages", "recentchanges", "logevents")


class ApiError(Exception):
    def __init__(self, code: str, info: str, **more: Any) -> None:
        super().__init__(info)
        self.code, self.more = code, more


class Server:
    """A WSGI application: `api.php` in any folder, and the uploads. `store` may be changed between requests."""

    def __init__(self, store: WikiStore, refresh: Callable[[], None] = lambda: None) -> None:
        self.store = store
        self._refresh = refresh
        self._lock = threading.Lock()
        self._sessions: dict[str, str] = {}

    @classmethod
    def of_folder(cls, folder: Path) -> Server:
        """Serve the pages that lie in a folder, as they are at the time of each request."""
        pages = FolderPages(folder)
        return cls(pages.store, pages.refresh)

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        with self._lock:
            if request.path.endswith("/api.php"):
                self._refresh()
                response = self._api(request)
            else:
                response = self._file(request)
        return response(environ, start_response)

    def end_sessions(self) -> None:
        self._sessions.clear()

    def _api(self, request: Request) -> Response:
        asked = {**request.args.to_dict(), **request.form.to_dict()}
        session = request.cookies.get(_COOKIE, "") or secrets.token_hex(8)
        headers = {}
        try:
            answer = self._answered(request, asked, session)
        except ApiError as error:
            headers = {"MediaWiki-API-Error": error.code}
            if error.code == "maxlag":
                headers |= {"Retry-After": "5", "X-Database-Lag": str(int(self.store.lag))}
            docs = f"See {request.base_url} for API usage."
            answer = {"error": {"code": error.code, "info": str(error), **error.more, "*": docs}}
        response = Response(json.dumps(answer), mimetype="application/json", headers=headers)
        if _COOKIE not in request.cookies:
            response.set_cookie(_COOKIE, session, httponly=True)
        return response

    def _answered(self, request: Request, asked: dict[str, str], session: str) -> Json:
        if "maxlag" in asked and self.store.lag > float(asked["maxlag"]):
            info = f"Waiting for db1: {self.store.lag:g} seconds lagged."
            raise ApiError("maxlag", info, host="db1", lag=self.store.lag, type="db")
        user = self._sessions.get(session, "")
        if asked.get("assert") == "user" and not user:
            raise ApiError("assertuserfailed", "You are no longer logged in, so the action could not be completed.")
        match asked.get("action"):
            case "login":
                return self._login(request, asked, session)
            case "query":
                only_tokens = asked.get("meta") == "tokens" and not {"list", "prop", "generator"} & set(asked)
                if not (self.store.anonymous_may_read or user or only_tokens):
                    raise ApiError("readapidenied", "You need read permission to use this module.")
                return _Query(self.store, request, asked, user, session).answer()
        raise ApiError("badvalue", f'Unrecognized value for parameter "action": {asked.get("action")}.')

    def _login(self, request: Request, asked: dict[str, str], session: str) -> Json:
        if request.method != "POST":
            raise ApiError("mustbeposted", 'The "login" module requires a POST request.')
        if asked.get("lgtoken") != _login_token(session):
            token = _login_token(session)
            return {"login": {"result": "NeedToken" if "lgtoken" not in asked else "WrongToken", "token": token}}
        name = asked.get("lgname", "")
        if self.store.users.get(name) != asked.get("lgpassword", ""):
            reason = "Incorrect username or password entered. Please try again."
            return {"login": {"result": "Failed", "reason": reason}}
        self._sessions[session] = name
        return {"login": {"result": "Success", "lguserid": 1, "lgusername": name.partition("@")[0]}}

    def _file(self, request: Request) -> Response:
        name = request.path.rsplit("/", 1)[-1]
        if "/img_auth.php/" in request.path and request.cookies.get(_COOKIE, "") not in self._sessions:
            return Response("<!DOCTYPE html><title>Access denied</title>", 403, mimetype="text/html")
        found = self.store.files.get(name)
        if found is None or not request.path.endswith(_file_path(found)):
            return Response("<!DOCTYPE html><title>404 Not Found</title>", 404, mimetype="text/html")
        return Response(found.data, mimetype="application/octet-stream")


class _Query:
    """One action=query."""

    def __init__(self, store: WikiStore, request: Request, asked: dict[str, str], user: str, session: str) -> None:
        self.store, self.request, self.asked, self.user, self.session = store, request, asked, user, session
        self.reply: Json = {}
        self.going_on: Json = {}
        self.warnings: Json = {}

    def answer(self) -> Json:
        for name in self._several("meta"):
            self._meta(name)
        for name in self._several("list"):
            if name in _LISTS:
                self.reply[name] = getattr(self, f"_{name}")()
            else:
                self.warnings["query"] = {"*": f'Unrecognized value for parameter "list": {name}'}
        pages = self._pages()
        if pages is not None:
            self.reply["pages"] = self._described(pages)
        whole = not any(key in self.going_on for key in ("rvcontinue",))
        return {
            **({"batchcomplete": ""} if whole else {}),
            **({"continue": self.going_on} if self.going_on else {}),
            **({"warnings": self.warnings} if self.warnings else {}),
            **({"query": self.reply} if self.reply else {}),
        }

    def _several(self, name: str) -> list[str]:
        return [value for value in self.asked.get(name, "").split("|") if value]

    def _meta(self, name: str) -> None:
        if name == "userinfo":
            anonymous = {"id": 0, "name": "127.0.0.1", "anon": ""}
            self.reply["userinfo"] = {"id": 1, "name": self.user} if self.user else anonymous
        elif name == "tokens":
            self.reply["tokens"] = {"logintoken": _login_token(self.session)}
        elif name == "siteinfo":
            for part in self._several("siprop") or ["general"]:
                self.reply[part] = self._site(part)

    def _site(self, part: str) -> Json:
        store = self.store
        case = "case-sensitive" if store.case_sensitive else "first-letter"
        if part == "general":
            where = self.request.host_url.rstrip("/")
            return {"generator": "MediaWiki 1.43.0", "case": case, "server": where, "articlepath": "/wiki/$1"}
        if part == "namespaces":
            return {str(n): {"id": n, "case": case, "*": shown} for n, shown in store.namespaces.items()}
        if part == "statistics":
            counts = {"pages": len(store.pages), "articles": len(store.pages), "edits": store.edits}
            return {**counts, "images": len(store.files), "users": 1, "activeusers": 1, "admins": 1, "jobs": 0}
        return {}

    def _limit(self, prefix: str) -> int:
        given = self.asked.get(f"{prefix}limit", "10")
        if given == "max":
            return self.store.limit
        if not given.isdigit():
            raise ApiError("badinteger", f'Invalid value "{given}" for integer parameter "{prefix}limit".')
        if int(given) > self.store.limit:
            self.warnings["query"] = {"*": f'"{prefix}limit" may not be over {self.store.limit}'}
        return max(1, min(int(given), self.store.limit))

    def _cut(self, rows: list[tuple[Any, Json]], prefix: str, key: str) -> list[Json]:
        """The rows, ordered by their key, from where the question goes on."""
        at = self.asked.get(key)
        if at is not None:
            known = [str(name) for name, _ in rows]
            # What the question goes on from may have gone in between: the next in order then.
            start = (
                known.index(at) if at in known else next((i for i, name in enumerate(known) if name >= at), len(rows))
            )
            rows = rows[start:]
        limit = self._limit(prefix)
        if len(rows) > limit:
            self.going_on |= {key: str(rows[limit][0]), "continue": f"{key.removesuffix('continue')}-||"}
        return [row for _, row in rows[:limit]]

    def _allpages(self, prefix: str = "ap") -> list[Json]:
        if not (given := self.asked.get(f"{prefix}namespace", "0")).isdigit():
            raise ApiError("badinteger", f'Invalid value "{given}" for integer parameter "{prefix}namespace".')
        here = [page for page in self.store.pages.values() if self.store.namespace(page.title) == int(given)]
        rows = sorted((page.title.replace(" ", "_"), _named(page, self.store)) for page in here)
        return self._cut([(key, row) for key, row in rows], prefix, f"{prefix}continue")

    def _allredirects(self) -> list[Json]:
        namespace = int(self.asked.get("arnamespace", "0"))
        rows = []
        for page in self.store.pages.values():
            if page.redirect and self.store.namespace(page.redirect) == namespace:
                target = self.store.normal(page.redirect)
                rows.append(
                    (f"{target.replace(' ', '_')}|{page.id}", {"fromid": page.id, "ns": namespace, "title": target})
                )
        return self._cut(sorted(rows, key=lambda row: row[0]), "ar", "arcontinue")

    def _allfileusages(self) -> list[Json]:
        rows = []
        for page in self.store.pages.values():
            for name in {self._file_name(found) for found in _FILE.findall(page.latest.text)}:
                row = {"fromid": page.id, "ns": 6, "title": f"File:{name.replace('_', ' ')}"}
                rows.append((f"{name}|{page.id}", row))
        return self._cut(sorted(rows, key=lambda row: row[0]), "af", "afcontinue")

    def _file_name(self, written: str) -> str:
        name = "_".join(written.split())
        return name if self.store.case_sensitive else name[:1].upper() + name[1:]

    def _allimages(self) -> list[Json]:
        rows = [(name, {"name": name, **self._file(found)}) for name, found in sorted(self.store.files.items())]
        return self._cut(rows, "ai", "aicontinue")

    def _file(self, found: StoredFile) -> Json:
        guarded = "" if self.store.anonymous_may_read else "/img_auth.php"
        url = f"{self.request.host_url.rstrip('/')}{guarded}{_file_path(found)}"
        return {"timestamp": found.time.strftime(_STAMP), "url": url, "sha1": found.sha1, "title": f"File:{found.name}"}

    def _recentchanges(self) -> list[Json]:
        rows = sorted(self.store.changes, key=lambda row: (row["time"], row["rcid"]), reverse=True)
        return [{key: value for key, value in row.items() if key != "time"} for row in rows[: self._limit("rc")]]

    def _logevents(self) -> list[Json]:
        rows = sorted(self.store.log, key=lambda row: (row.get("time", self.store.now), row["logid"]), reverse=True)
        return [{key: value for key, value in row.items() if key != "time"} for row in rows[: self._limit("le")]]

    def _pages(self) -> list[Page | Json] | None:
        """The pages that the question names or generates; JSON for those that do not exist."""
        if self.asked.get("generator") == "allpages":
            return [self.store.pages[row["pageid"]] for row in self._allpages("gap")]
        for name in ("titles", "pageids"):
            if name not in self.asked:
                continue
            values = self._several(name)
            if len(values) > _TITLES:
                info = f'Too many values supplied for parameter "{name}". The limit is {_TITLES}.'
                raise ApiError("toomanyvalues", info, limit=_TITLES)
            return [self._by_title(value) if name == "titles" else self._by_id(value) for value in values]
        return None

    def _by_title(self, title: str) -> Page | Json:
        title = self.store.normal(title)
        page = self.store.find(title)
        if page is None:
            return {"ns": self.store.namespace(title), "title": title, "missing": ""}
        return page

    def _by_id(self, number: str) -> Page | Json:
        if not number.isdigit():
            raise ApiError("badinteger", f'Invalid value "{number}" for integer parameter "pageids".')
        return self.store.pages.get(int(number)) or {"pageid": int(number), "missing": ""}

    def _described(self, pages: list[Page | Json]) -> Json:
        props = self._several("prop")
        absent = [page for page in pages if not isinstance(page, Page)]
        found = {str(page.get("pageid", -number)): self._absent(page, props) for number, page in enumerate(absent, 1)}
        present = sorted((page for page in pages if isinstance(page, Page)), key=lambda page: page.id)
        size = 0
        at = int(self.asked.get("rvcontinue", "0|0").partition("|")[0])
        for page in present:
            row = found[str(page.id)] = _named(page, self.store)
            if "info" in props and "rvcontinue" not in self.asked:
                row |= self._info(page)
            if "revisions" not in props or page.id < at or "rvcontinue" in self.going_on:
                continue
            said = self._revision(page)
            size += len(json.dumps(said))
            if size > self.store.reply_chars and size > len(json.dumps(said)):
                # What would make the reply too large comes with the next one.
                self.going_on |= {"rvcontinue": f"{page.id}|{page.latest.id}", "continue": "||info"}
                told = f"This result was truncated, being larger than the limit of {self.store.reply_chars} bytes."
                self.warnings["result"] = {"*": told}
            else:
                row["revisions"] = [said]
        return found

    def _absent(self, page: Json, props: list[str]) -> Json:
        """A page that does not exist; its file may."""
        if "imageinfo" not in props or page.get("ns") != 6:
            return page
        stored = self.store.files.get(self._file_name(page["title"].partition(":")[2]))
        if stored is None:
            return page
        return {**page, "known": "", "imagerepository": "local", "imageinfo": [self._file(stored)]}

    def _info(self, page: Page) -> Json:
        last = page.latest
        row: Json = {"contentmodel": last.model, "pagelanguage": "en", "lastrevid": last.id, "length": len(last.text)}
        row["touched"] = self.store.now.strftime(_STAMP)
        if page.redirect:
            row["redirect"] = ""
        if "url" in self.asked.get("inprop", ""):
            row["fullurl"] = f"{self.request.host_url}wiki/{quote(page.title.replace(' ', '_'))}"
        if "displaytitle" in self.asked.get("inprop", ""):
            row["displaytitle"] = page.title
        return row

    def _revision(self, page: Page) -> Json:
        last = page.latest
        props = self._several("rvprop") or ["ids", "timestamp", "user"]
        row: Json = {"revid": last.id, "parentid": page.revisions[-2].id if len(page.revisions) > 1 else 0}
        if "user" in props:
            row["user"] = last.user
        if "timestamp" in props:
            row["timestamp"] = last.time.strftime(_STAMP)
        if "content" in props:
            slot = {"contentmodel": last.model, "contentformat": _format(last.model)}
            slot |= {"texthidden": ""} if last.hidden else {"*": last.text}
            if "rvslots" in self.asked:
                row["slots"] = {"main": slot}
            else:
                row |= slot
        return row


def _named(page: Page, store: WikiStore) -> Json:
    return {"pageid": page.id, "ns": store.namespace(page.title), "title": page.title}


def _format(model: str) -> str:
    return {"wikitext": "text/x-wiki", "json": "application/json", "css": "text/css"}.get(model, f"text/x-{model}")


def _file_path(found: StoredFile) -> str:
    digest = hashlib.md5(found.name.encode(), usedforsecurity=False).hexdigest()
    return f"/images/{digest[0]}/{digest[:2]}/{found.name}"


def _login_token(session: str) -> str:
    return hashlib.blake2b(session.encode(), digest_size=8).hexdigest() + "+\\"
