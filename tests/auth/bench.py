"""A flow on the bench: an authorization server, a person and a storage, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs

from sansmcp.auth.flow import Flow, GiveUp, Verdict
from sansmcp.auth.options import Authorization
from sansmcp.auth.step_ups import Attempt
from sansmcp.auth.steps import AbortFetch, Failed, Fetch, Obtained
from sansmcp.effects import (
    LoadCredentials,
    LockCredentials,
    MakeKey,
    SaveCredentials,
    SignJwt,
    UnlockCredentials,
)
from sansmcp.errors import AuthorizationFailed
from sansmcp.events import AuthorizationNeeded
from sansmcp.http import BodyData, BodyEnd, ConnectionLost, ResponseHead

ENDPOINT = "https://h.example/mcp"
PRM = "https://h.example/.well-known/oauth-protected-resource/mcp"
ROOT_PRM = "https://h.example/.well-known/oauth-protected-resource"
ASM = "https://as.example/.well-known/oauth-authorization-server"
OPENID = "https://as.example/.well-known/openid-configuration"
PUBLIC = "93.184.215.14"

RESOURCE: dict[str, Any] = {"resource": ENDPOINT, "authorization_servers": ["https://as.example"]}
SERVER: dict[str, Any] = {
    "issuer": "https://as.example",
    "authorization_endpoint": "https://as.example/authorize",
    "token_endpoint": "https://as.example/token",
    "registration_endpoint": "https://as.example/register",
    "response_types_supported": ["code"],
    "code_challenge_methods_supported": ["S256"],
    "token_endpoint_auth_methods_supported": ["none"],
}

Answer = tuple[int, Any] | tuple[int, Any, Mapping[str, str]] | str | None
"""Status, document and headers; the reason of a lost connection; None for no answer at all."""


@attrs.frozen
class Asked:
    """A request that was made."""

    url: str
    method: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@attrs.define(eq=False)
class World:
    """Everything outside of the client. Tests replace what they are about."""

    documents: dict[str, Any] = attrs.field(factory=lambda: {PRM: RESOURCE, ASM: SERVER})
    """What a GET of each URL returns: a document, or an Answer; 404 for all others."""
    answers: dict[str, Callable[[Asked], Answer]] = attrs.field(factory=dict[str, Any])
    """What a request of a URL returns, before anything else is looked at."""
    peer: str = ""
    """The address of all servers, as their responses tell it."""
    lifetime: float | None = None
    gives_refresh: bool = False
    token_type: str = "Bearer"
    scope: str | None = None
    stored: dict[Any, str] = attrs.field(factory=dict[Any, str])
    locked: set[Any] = attrs.field(factory=set[Any])
    storage_fails: set[type] = attrs.field(factory=set[type])
    silent: set[type] = attrs.field(factory=set[type])
    """The effects that never end."""
    person: Callable[[str], str | None] | None = None
    """Returns the redirect for a URL; None if the person does nothing."""
    asked: list[Asked] = attrs.field(factory=list[Asked])
    opened: list[str] = attrs.field(factory=list[str])
    signed: list[SignJwt] = attrs.field(factory=list[SignJwt])
    wall_time: float = 1_000_000.0
    tokens: int = 0
    codes: dict[str, dict[str, str]] = attrs.field(factory=dict[str, dict[str, str]])

    def answer(self, request: Asked) -> Answer:
        """The answer to a request."""
        if request.url in self.answers:
            return self.answers[request.url](request)
        if request.method == "GET":
            found = self.documents.get(request.url)
            if found is None:
                return 404, b"<html>"
            is_answer = isinstance(found, tuple | str)
            answer: Answer = found if is_answer else (200, found)  # pyright: ignore
            return answer
        if request.url.endswith("/register"):
            return 201, {"client_id": f"client-of-{urlsplit(request.url).netloc}"}
        return self.token(request)

    def token(self, request: Asked) -> Answer:
        """A token, if the code fits its verifier."""
        form = request.form
        if form.get("grant_type") == "authorization_code":
            opened = self.codes.pop(form["code"], None)
            if opened is None or opened["redirect_uri"] != form["redirect_uri"]:
                return 400, {"error": "invalid_grant"}
        self.tokens += 1
        document: dict[str, Any] = {
            "access_token": f"token-{self.tokens}",
            "token_type": self.token_type,
        }
        if self.gives_refresh:
            document["refresh_token"] = f"refresh-{self.tokens}"
        if self.lifetime is not None:
            document["expires_in"] = self.lifetime
        if self.scope is not None:
            document["scope"] = self.scope
        return 200, document

    def log_in(self, url: str) -> str | None:
        """The redirect after a login."""
        self.opened.append(url)
        if self.person is not None:
            return self.person(url)
        parameters = dict(parse_qsl(urlsplit(url).query))
        code = f"code-{len(self.opened)}"
        self.codes[code] = parameters
        answer = {"code": code, "state": parameters["state"]}
        return f"{parameters['redirect_uri']}?{urlencode(answer)}"


@attrs.define(eq=False)
class Bench:
    """A flow and its world."""

    world: World = attrs.field(factory=World)
    options: Authorization = attrs.field(factory=Authorization)
    endpoint: str = ENDPOINT
    is_legacy_allowed: bool = False
    now: float = 0.0
    flow: Flow = attrs.field(init=False)
    ends: list[Obtained | Failed] = attrs.field(factory=list[Any])
    pending: Fetch | None = None
    """A request that got no answer."""
    policies: list[Any] = attrs.field(factory=list[Any])
    _randoms: int = 0

    def __attrs_post_init__(self) -> None:
        self.flow = Flow(
            self.endpoint,
            self.options,
            self._random,
            lambda: self.world.wall_time,
            self.is_legacy_allowed,
        )

    def _random(self, count: int) -> bytes:
        self._randoms += 1
        return self._randoms.to_bytes(4, "big") * (count // 4)

    def start(self) -> Bench:
        """Load what is stored."""
        self.flow.start(self.now)
        self.run()
        return self

    def refused(
        self,
        status: int = 401,
        challenge: str = "Bearer",
        attempt: Attempt | None = None,
        peer: str = PUBLIC,
        nonce: str | None = None,
    ) -> Verdict:
        """Report a refusal of a request that was sent with the present token, and run the flow."""
        headers = [(b"www-authenticate", challenge.encode())]
        if nonce is not None:
            headers.append((b"dpop-nonce", nonce.encode()))
        head = ResponseHead(status=status, headers=tuple(headers), peer=peer)
        attempt = attempt or self.sent()
        self.flow.responded(attempt, self.endpoint, head)
        verdict = self.flow.refused(attempt, self.endpoint, head, self.now)
        if isinstance(verdict, GiveUp):
            self.ends.append(Failed(verdict.error))
        self.run()
        return verdict

    def sent(self, operation: str = "tools/call echo", sends: int = 1) -> Attempt:
        """An attempt with the present token."""
        return Attempt(operation, generation=self.flow.generation, sends=sends)

    def run(self) -> None:
        """Perform what the flow wants, until it waits for time or has ended."""
        while (step := self.flow.next_step()) is not None:
            match step:
                case Fetch():
                    self._fetch(step)
                case AbortFetch():
                    self.pending = None
                case AuthorizationNeeded(url):
                    redirect = self.world.log_in(url)
                    if redirect is not None:
                        self.flow.redirected(redirect, self.now)
                case Obtained() | Failed():
                    self.ends.append(step)
                case UnlockCredentials(key):
                    self.world.locked.remove(key)
                case _ if type(step) in self.world.silent:
                    pass
                case _ if type(step) in self.world.storage_fails:
                    self.flow.effect_failed(step, "it burns", self.now)
                case _:
                    self.flow.completed(step, self._perform(step), self.now)

    def _perform(self, effect: Any) -> Any:
        world = self.world
        match effect:
            case LoadCredentials(key):
                return world.stored.get(key)
            case SaveCredentials(key, document):
                world.stored[key] = document
                return None
            case LockCredentials(key):
                if key in world.locked:
                    return False
                world.locked.add(key)
                return True
            case MakeKey():
                return {"kty": "EC", "crv": "P-256", "x": "x", "y": "y", "d": "private"}
            case SignJwt():
                world.signed.append(effect)
                return f"jwt-{len(world.signed)}"
            case _:
                raise AssertionError(effect)

    def _fetch(self, fetch: Fetch) -> None:
        request = fetch.request
        headers = {name.decode(): value.decode() for name, value in request.headers}
        asked = Asked(request.url, request.method.decode(), headers, request.body)
        self.world.asked.append(asked)
        self.policies.append(fetch.policy)
        answer = self.world.answer(asked)
        if answer is None:
            self.pending = fetch
            return
        if isinstance(answer, str):
            self.flow.receive(ConnectionLost(answer), self.now)
            return
        status, document, *more = answer
        fields: Mapping[str, str] = more[0] if more else {}
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        found = tuple((name.encode(), value.encode()) for name, value in fields.items())
        head = ResponseHead(status=status, headers=found, peer=self.world.peer)
        self.flow.receive(head, self.now)
        self.flow.receive(BodyData(body), self.now)
        self.flow.receive(BodyEnd(), self.now)

    def wait(self) -> None:
        """Let the time of the flow's deadline come."""
        self.now = self.flow.deadline
        self.flow.due(self.now)
        self.run()

    # What has happened

    @property
    def urls(self) -> list[str]:
        """The requests that were made."""
        return [asked.url for asked in self.world.asked]

    @property
    def header(self) -> str:
        """The value of ``Authorization`` for the next request."""
        return dict(self.flow.headers(None)).get(b"authorization", b"").decode()

    @property
    def error(self) -> AuthorizationFailed:
        """The error of the last flow."""
        assert isinstance(self.ends[-1], Failed), self.ends
        return self.ends[-1].error

    def requested(self, name: str) -> list[str | None]:
        """A parameter of all authorization URLs."""
        return [dict(parse_qsl(urlsplit(url).query)).get(name) for url in self.world.opened]

    def forms(self) -> list[dict[str, str]]:
        """The forms of all token requests."""
        return [asked.form for asked in self.world.asked if asked.url.endswith("/token")]
