"""Microsoft Graph as far as Teams channels go, with its habits: small pages, replies apart, shared channels only for
those who ask, and a sign-in that hands out tokens."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

Message = dict[str, Any]

#: Pages of messages and replies: what comes when nothing is said, and what may be asked for at most.
PAGE, LARGEST_PAGE = 20, 50
MOST_REPLIES = 1000
_CLIENT_PAGE = 100


@dataclass
class Channel:
    """Messages as Graph shows them, by id; replies by the id of the message they answer, then by their own."""

    id: str
    name: str
    membership: str = "standard"
    messages: dict[str, Message] = field(default_factory=dict)
    replies: dict[str, dict[str, Message]] = field(default_factory=dict)
    #: Bytes by message id and content id.
    hosted: dict[tuple[str, str], bytes] = field(default_factory=dict)


@dataclass
class Team:
    id: str
    name: str
    channels: list[Channel] = field(default_factory=list)


class Store(Protocol):
    def teams(self) -> list[Team]: ...


@dataclass
class MemoryStore:
    """Teams that are changed in place."""

    found: list[Team] = field(default_factory=list)

    def teams(self) -> list[Team]:
        return self.found


class FolderStore:
    """Teams from an export: `<team>/<channel>/*.json` with pages of messages, read again when a file changes.

    A reply whose first message is in no file is left out, since Graph lists replies below their message only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state: object = None
        self._teams: list[Team] = []

    def teams(self) -> list[Team]:
        files = sorted(path for path in self._folder.rglob("*") if path.is_file())
        state = [(path, (stat := path.stat()).st_size, stat.st_mtime_ns) for path in files]
        if state != self._state:
            self._teams, self._state = self._read(files), state
        return self._teams

    def _read(self, files: list[Path]) -> list[Team]:
        teams: dict[str, Team] = {}
        channels: dict[tuple[str, str], Channel] = {}
        for path in files:
            steps = path.relative_to(self._folder).parts
            if len(steps) < 3:
                continue
            team = teams.setdefault(steps[0], Team(str(uuid.uuid5(uuid.NAMESPACE_URL, steps[0])), steps[0]))
            channel = channels.get((steps[0], steps[1]))
            if channel is None:
                channel = Channel(f"19:{uuid.uuid5(uuid.UUID(team.id), steps[1]).hex}@thread.tacv2", steps[1])
                channels[steps[0], steps[1]] = channel
                team.channels.append(channel)
            if path.suffix == ".json":
                put(channel, json.loads(path.read_bytes())["value"])
            elif len(steps) == 5 and steps[2] == "hostedContents":
                channel.hosted[steps[3], path.stem] = path.read_bytes()
        return list(teams.values())


def put(channel: Channel, messages: Iterable[Message]) -> None:
    """Add messages to a channel, or replace those of the same id."""
    for message in messages:
        parent = message.get("replyToId")
        if parent:
            channel.replies.setdefault(parent, {})[message["id"]] = message
        else:
            channel.messages[message["id"]] = message


class GraphError(Exception):
    """What Graph answers in place of data."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


_RULES = [
    Rule("/<tenant>/v2.0/.well-known/openid-configuration", endpoint="discovery"),
    Rule("/<tenant>/oauth2/v2.0/token", endpoint="token", methods=["POST"]),
    *(
        Rule(f"/<any('v1.0', 'beta'):version>{path}", endpoint=endpoint)
        for path, endpoint in (
            ("/teams", "teams"),
            ("/teams/<team>", "team"),
            ("/teams/<team>/channels", "channels"),
            ("/teams/<team>/channels/<channel>", "channel"),
            ("/teams/<team>/channels/<channel>/messages", "messages"),
            ("/teams/<team>/channels/<channel>/messages/<root>", "message"),
            ("/teams/<team>/channels/<channel>/messages/<root>/replies", "replies"),
            ("/teams/<team>/channels/<channel>/messages/<root>/replies/<reply>", "reply"),
            ("/teams/<team>/channels/<channel>/messages/<root>/hostedContents/<content>/$value", "hosted"),
            (
                "/teams/<team>/channels/<channel>/messages/<root>/replies/<reply>/hostedContents/<content>/$value",
                "hosted",
            ),
        )
    ),
]
_ROUTES = Map(_RULES, strict_slashes=False)


class Server:
    """A WSGI application. `tokens` are those that are good, any when None; `clients` are ids with their secrets."""

    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = store or MemoryStore()
        self.tokens: set[str] | None = None
        self.clients: dict[str, str] = {}
        self.signed_in = 0
        #: How many replies come along with their message; Graph gives a thousand.
        self.most_replies = MOST_REPLIES

    @classmethod
    def of_folder(cls, folder: Path) -> Server:
        """The teams of an export, as they are at each request."""
        return cls(FolderStore(folder))

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        try:
            endpoint, values = _ROUTES.bind_to_environ(environ).match()
            if endpoint not in ("discovery", "token"):
                self._admit(request)
            response: Response = getattr(self, f"_{endpoint}")(request, **values)
        except GraphError as error:
            response = _failed(error)
        except HTTPException as error:
            response = _failed(GraphError(error.code or 400, "BadRequest", error.description or error.name))
        response.headers["request-id"] = str(uuid.uuid4())
        return response(environ, start_response)

    # signing in

    def _admit(self, request: Request) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token:
            raise GraphError(401, "InvalidAuthenticationToken", "Access token is empty.")
        if self.tokens is not None and token not in self.tokens:
            raise GraphError(401, "InvalidAuthenticationToken", "Lifetime validation failed, the token is expired.")

    def _discovery(self, request: Request, tenant: str) -> Response:
        base = f"{request.host_url}{tenant}"
        return _json(
            {
                "token_endpoint": f"{base}/oauth2/v2.0/token",
                "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                "issuer": f"{base}/v2.0",
            }
        )

    def _token(self, request: Request, tenant: str) -> Response:
        form = request.form
        if form.get("grant_type") != "client_credentials":
            return _json({"error": "unsupported_grant_type", "error_description": "AADSTS70003: not supported."}, 400)
        if self.clients.get(form.get("client_id", "")) != form.get("client_secret"):
            said = "AADSTS7000215: Invalid client secret provided."
            return _json({"error": "invalid_client", "error_description": said}, 401)
        self.signed_in += 1
        token = f"token-{self.signed_in}"
        self.tokens = {*(self.tokens or ()), token}
        return _json({"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599, "access_token": token})

    # collections and items

    def _teams(self, request: Request, version: str) -> Response:
        teams = [
            {"id": team.id, "displayName": team.name, "description": None, "visibility": "private"}
            for team in self.store.teams()
        ]
        return _collection(request, teams, _size(request, _CLIENT_PAGE, 999), "teams")

    def _team(self, request: Request, version: str, team: str) -> Response:
        found = self._find_team(team)
        return _json({"id": found.id, "displayName": found.name, "description": None, "isArchived": False})

    def _channels(self, request: Request, version: str, team: str) -> Response:
        found = self._find_team(team)
        channels = [_channel_json(request, channel) for channel in found.channels]
        return _json({"@odata.context": "$metadata#channels", "@odata.count": len(channels), "value": channels})

    def _channel(self, request: Request, version: str, team: str, channel: str) -> Response:
        return _json(_channel_json(request, self._find(team, channel)))

    def _messages(self, request: Request, version: str, team: str, channel: str) -> Response:
        for option in request.args:
            if option not in ("$top", "$expand", "$skiptoken"):
                raise GraphError(400, "BadRequest", f"Query option '{option}' is not allowed.")
        found = self._find(team, channel)
        roots = sorted(found.messages.values(), key=_newest, reverse=True)
        if request.args.get("$expand") == "replies":
            roots = [self._expanded(request, found, root) for root in roots]
        elif "$expand" in request.args:
            raise GraphError(400, "BadRequest", f"Could not find a property named '{request.args['$expand']}'.")
        return _collection(request, roots, _size(request, PAGE, LARGEST_PAGE), "chatMessages")

    def _expanded(self, request: Request, channel: Channel, root: Message) -> Message:
        replies = _replies(channel, root.get("id", ""))
        shown = {**root, "replies@odata.count": len(replies), "replies": replies[: self.most_replies]}
        if len(replies) > self.most_replies:
            at = f"{quote(str(root.get('id')))}/replies?$skiptoken={self.most_replies}"
            shown["replies@odata.nextLink"] = f"{request.base_url}/{at}"
        return shown

    def _message(self, request: Request, version: str, team: str, channel: str, root: str) -> Response:
        return _json(self._find_message(team, channel, root))

    def _replies(self, request: Request, version: str, team: str, channel: str, root: str) -> Response:
        self._find_message(team, channel, root)
        replies = _replies(self._find(team, channel), root)
        return _collection(request, replies, _size(request, PAGE, LARGEST_PAGE), "chatMessages")

    def _reply(self, request: Request, version: str, team: str, channel: str, root: str, reply: str) -> Response:
        found = self._find(team, channel).replies.get(root, {}).get(reply)
        if found is None:
            raise GraphError(404, "NotFound", "NotFound")
        return _json(found)

    def _hosted(
        self, request: Request, version: str, team: str, channel: str, root: str, content: str, reply: str = ""
    ) -> Response:
        data = self._find(team, channel).hosted.get((reply or root, content))
        if data is None:
            raise GraphError(404, "NotFound", "Hosted content does not exist.")
        return Response(data, mimetype="image/png" if data.startswith(b"\x89PNG") else "application/octet-stream")

    def _find_team(self, team_id: str) -> Team:
        for team in self.store.teams():
            if team.id == team_id:
                return team
        raise GraphError(404, "NotFound", f"No team found with Group Id {team_id}")

    def _find(self, team_id: str, channel_id: str) -> Channel:
        for channel in self._find_team(team_id).channels:
            if channel.id == channel_id:
                return channel
        raise GraphError(404, "NotFound", "Channel does not exist in the team.")

    def _find_message(self, team_id: str, channel_id: str, message_id: str) -> Message:
        found = self._find(team_id, channel_id).messages.get(message_id)
        if found is None:
            raise GraphError(404, "NotFound", "NotFound")
        return found


def _collection(request: Request, values: list[Message], size: int, kind: str) -> Response:
    """A page. There is a link to the next one whenever a page is full, even if nothing comes behind it."""
    try:
        start = int(request.args.get("$skiptoken", "0"))
    except ValueError:
        raise GraphError(400, "BadRequest", "Invalid skiptoken.") from None
    page = values[start : start + size]
    reply: Message = {"@odata.context": f"$metadata#{kind}", "@odata.count": len(page)}
    if len(page) == size:
        kept = [f"{name}={quote(value)}" for name, value in request.args.items() if name != "$skiptoken"]
        reply["@odata.nextLink"] = f"{request.base_url}?{'&'.join([*kept, f'$skiptoken={start + size}'])}"
    return _json({**reply, "value": page})


def _size(request: Request, usual: int, largest: int) -> int:
    asked = request.args.get("$top", str(usual))
    if not asked.isdigit() or int(asked) < 1:
        raise GraphError(400, "BadRequest", f"Invalid value '{asked}' for $top query option found.")
    if int(asked) > largest:
        said = f"The limit of '{largest}' for Top query has been exceeded. The value from the incoming request is"
        raise GraphError(400, "BadRequest", f"{said} '{asked}'.")
    return int(asked)


def _replies(channel: Channel, root: str) -> list[Message]:
    return sorted(channel.replies.get(root, {}).values(), key=_newest, reverse=True)


def _newest(message: Message) -> str:
    return str(message.get("createdDateTime") or "")


def _channel_json(request: Request, channel: Channel) -> Message:
    evolved = "include-unknown-enum-members" in request.headers.get("Prefer", "")
    shared_unseen = channel.membership == "shared" and not evolved
    return {
        "id": channel.id,
        "displayName": channel.name,
        "description": None,
        "membershipType": "unknownFutureValue" if shared_unseen else channel.membership,
    }


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, mimetype="application/json")


def _failed(error: GraphError) -> Response:
    inner = {"date": "2026-01-01T00:00:00", "request-id": str(uuid.uuid4())}
    return _json({"error": {"code": error.code, "message": str(error), "innerError": inner}}, error.status)
