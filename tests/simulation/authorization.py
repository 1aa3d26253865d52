"""The authorization of a simulated world: a server that issues tokens, people, and a storage.

The authorization server sees what clients do with its tokens, so most checks are made here. All
secrets have one beginning, by which they are found where they must not be.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs

from sansmcp import (
    Access,
    Authorization,
    Client,
    CredentialsKey,
    DpopProof,
    MemoryCredentials,
    ProtectedResource,
    Refusal,
)
from sansmcp.authentication import bearer_token
from sansmcp.effects import (
    AuthEffect,
    LoadCredentials,
    LockCredentials,
    OpenExchange,
    SaveCredentials,
    UnlockCredentials,
)
from sansmcp.http import (
    BodyData,
    BodyEnd,
    ConnectionLost,
    RequestHead,
    ResponseHead,
    ResponsePart,
)

if TYPE_CHECKING:
    from .peers import Customer
    from .simulator import World

FEATURES = {
    "protected": 0.3,
    "issuer fails": 0.5,
    "logins fail": 0.4,
    "credentials fail": 0.3,
    "refuses tokens": 0.4,
    "redirects": 0.2,
    "slow verifier": 0.4,
}
"""What a world may have, and how likely; the others matter only in a protected one."""

CHECKERS = {
    "tokens": "a token goes to its own server only, and is in no URL, event or log",
    "refusals": "a request that was refused is made again once, with another token",
    "refreshes": "no refresh token is spent twice, and none in vain",
    "logins": "people are asked once at a time, and only for what their client has not got",
    "proofs": "a proof of a client is accepted once, by all instances together",
    "expiry": "event streams end that can be opened again, when their token expires",
}

SOMETIMES = (
    "authorized",
    "authorized by what another client has stored",
    "call failed: AuthorizationFailed",
    "calls cancelled while somebody logs in",
    "client waits for the lock of another",
    "connection of the issuer cut",
    "credentials not stored",
    "issuer out of order",
    "issuer silent",
    "login cut short",
    "login denied",
    "login given up",
    "login never answered",
    "login not of ours",
    "refresh token spent, and the response lost",
    "refused request made again",
    "scopes denied",
    "stepped up",
    "token expired",
    "token refreshed",
    "token revoked",
    "valid token refused",
)

CAUSES = ("issuer", "login", "credentials", "confused", "redirected", "slow", "unauthorized")
"""What may happen to a client that it cannot get a token after."""

_MCP = "http://localhost"
_ELSEWHERE = "http://elsewhere.example/mcp"
_ISSUER = "https://login.example"
_SECRET = "secret-"
_REFRESH = re.compile(r"secret-refresh-\d+")
_NEEDED = "mcp:use"
_PROOF = b"dpop"
SCOPES = {"resources/read": {"mcp:read"}}
"""What handlers need in addition."""

_ANSWERED = 1.0
_EXPIRED_FOR = 20.0
"""Seconds after which an event stream has ended whose token has expired."""

_Answer: TypeAlias = tuple[int, Any]
_Sent: TypeAlias = tuple[str, bytes, str]
"""URL, body and token of a request."""


@attrs.define(eq=False)
class _Grant:
    """What a person has allowed a client; the tokens of it share its fate."""

    account: str
    client_id: str
    scopes: frozenset[str]
    is_alive: bool = True
    has_lost: bool = False
    """Whether tokens of it were lost on their way, or not stored."""


@attrs.define(eq=False)
class _Token:
    """An access token."""

    grant: _Grant
    expires_at: float
    renewed_from: float
    """From when on a refresh makes sense."""
    is_refused: bool = False

    def is_good(self, now: float) -> bool:
        """Whether there is nothing to be gained by another one."""
        return self.grant.is_alive and now < self.renewed_from and not self.is_refused


@attrs.define(eq=False)
class _Refresh:
    """A refresh token, and the access token that came with it."""

    token: _Token
    is_spent: bool = False


@attrs.define(eq=False)
class _Code:
    """What was asked for by the URL that a person has opened."""

    account: str
    parameters: dict[str, str]
    scopes: frozenset[str]


class AuthorizationServer:
    """Issues tokens, verifies them for the MCP servers of its world, and sees what clients do."""

    def __init__(self, world: World) -> None:
        pick = world.fates.pick
        self.world = world
        self.lifetime = pick("token lifetime", (5.0, 20.0, 3600.0))
        self.says_lifetime = pick("lifetime said", (True, True, False))
        self.gives_refresh = pick("refresh tokens", (True, True, True, False))
        self.refuses = (math.inf, math.inf)
        """From when to when the MCP servers refuse valid tokens."""
        self.credentials = MemoryCredentials()
        self.tokens: dict[str, _Token] = {}
        self._refreshes: dict[str, _Refresh] = {}
        self._codes: dict[str, _Code] = {}
        self._count = 0
        if "refuses tokens" in world.features:
            begin = world.fates.between("refuses tokens from", 0.0, 15.0)
            self.refuses = (begin, begin + pick("refuses tokens for", (0.3, 2.0, 5.0)))
            self.is_undecided = pick("cannot decide", (True, False, False))
            world.clock.call_at(world.fates.between("revokes at", 0.0, 20.0), self._revoke)

    @property
    def resource(self) -> ProtectedResource:
        """What the MCP servers publish."""
        return ProtectedResource(
            resource=_MCP,
            authorization_servers=(_ISSUER,),
            required_scopes=(_NEEDED,),
        )

    def _revoke(self) -> None:
        for token in self.tokens.values():
            if token.grant.is_alive:
                self.world.reach("token revoked")
                token.grant.is_alive = False

    # For the MCP servers

    def access(self, head: RequestHead) -> Access | Refusal:
        """The access that a request has."""
        text = bearer_token(head)
        if text is None:
            return Refusal()
        if not text.startswith(_SECRET):  # of those who need none: strangers, visitors, batches
            return Access(text, {_NEEDED, *SCOPES["resources/read"]})
        now, token = self.world.clock.now, self.tokens[text]
        is_valid = token.grant.is_alive and now < token.expires_at
        begin, end = self.refuses
        if is_valid and begin <= now < end and self.world.is_faulty:
            if self.is_undecided:
                self.world.causes.add("hiccup")
                return Refusal(503, "The verifier is out of order", retry_after=1)
            self.world.reach("valid token refused")
            self.world.causes.add("confused")
            is_valid = False
        if not is_valid:
            token.is_refused = True
            return Refusal()
        self.world.reach("authorized")
        left, proof = token.expires_at - now, _proof_in(head, token.grant.account)
        return Access(token.grant.account, token.grant.scopes, expires_in=left, proof=proof)

    def verifying_takes(self, name: str) -> float:
        """Seconds that a server needs in addition to know what a token is."""
        if "slow verifier" in self.world.features and self.world.strikes(f"{name} verifies", 0.2):
            return self.world.fates.pick(f"{name} verifies", (0.5, 2.0, 5.0))
        return 0.0

    # For people

    def authorize(self, url: str, account: str, *, is_narrow: bool) -> str:
        """A person allows what the URL asks for, or a part of it. Return where the browser goes."""
        parameters = dict(parse_qsl(urlsplit(url).query))
        scopes = frozenset(parameters["scope"].split())
        if is_narrow:
            scopes -= {"mcp:read"}
        code = self._new("code")
        self._codes[code] = _Code(account, parameters, scopes)
        answer = {"code": code, "state": parameters["state"], "iss": _ISSUER}
        return f"{parameters['redirect_uri']}?{urlencode(answer)}"

    # For clients

    def answer(self, effect: OpenExchange) -> _Answer:
        """Status and document of the response to a request."""
        path = urlsplit(effect.url).path
        if path == "/.well-known/oauth-authorization-server":
            return 200, {
                "issuer": _ISSUER,
                "authorization_endpoint": f"{_ISSUER}/authorize",
                "token_endpoint": f"{_ISSUER}/token",
                "registration_endpoint": f"{_ISSUER}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "authorization_response_iss_parameter_supported": True,
            }
        if path == "/register":
            return 201, {"client_id": self._new("client").removeprefix(_SECRET)}
        if path != "/token":
            return 404, {}
        form = dict(parse_qsl(effect.body.decode()))
        if form["grant_type"] == "refresh_token":
            return self._refresh(form)
        return self._redeem(form)

    def _redeem(self, form: dict[str, str]) -> _Answer:
        code = self._codes.pop(form["code"], None)
        if code is None:
            self.world.fail("logins", "a code is spent twice")
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        asked = code.parameters
        expected = (_challenge(digest), asked["client_id"], asked["redirect_uri"], _MCP)
        given = (asked["code_challenge"], form["client_id"], form["redirect_uri"], form["resource"])
        if given != expected:
            self.world.fail("logins", f"a code comes with {given}, and not with {expected}")
        return self._issue(_Grant(code.account, form["client_id"], code.scopes))

    def _refresh(self, form: dict[str, str]) -> _Answer:
        refresh = self._refreshes[form["refresh_token"]]
        grant, now = refresh.token.grant, self.world.clock.now
        if refresh.is_spent:
            if not grant.has_lost:
                self.world.fail("refreshes", f"{form['refresh_token']} is spent twice")
            grant.is_alive = False
        if not grant.is_alive:
            return 400, {"error": "invalid_grant"}
        if refresh.token.is_good(now):
            self.world.fail("refreshes", f"{form['refresh_token']} is spent in vain")
        if form["client_id"] != grant.client_id or form["resource"] != _MCP:
            self.world.fail("refreshes", f"{form} is of another client or resource")
        refresh.is_spent = True
        self.world.reach("token refreshed")
        return self._issue(grant)

    def _issue(self, grant: _Grant) -> _Answer:
        now = self.world.clock.now
        lifetime = self.lifetime if self.world.is_faulty else 3600.0
        skew = min(30.0, lifetime / 10) if self.says_lifetime else 0.0
        token = _Token(grant, now + lifetime, now + lifetime - skew)
        text = self._new("access")
        self.tokens[text] = token
        document: dict[str, Any] = {
            "access_token": text,
            "token_type": "Bearer",
            "scope": " ".join(sorted(grant.scopes)),
        }
        if self.says_lifetime:
            document["expires_in"] = lifetime
        if self.gives_refresh:
            document["refresh_token"] = self._new("refresh")
            self._refreshes[document["refresh_token"]] = _Refresh(token)
        return 200, document

    def lose(self, text: str) -> None:
        """What is in a response or document has not arrived where it belongs."""
        for refresh_token in _REFRESH.findall(text):
            self.world.reach("refresh token spent, and the response lost")
            self._refreshes[refresh_token].token.grant.has_lost = True

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"{_SECRET}{kind}-{self._count}"

    # At the end

    def check_nothing_left(self) -> None:
        """Fail if the storage is still locked."""
        for account in ("alice", "bob"):
            for endpoint in (f"{_MCP}/mcp", f"{_MCP}/sse"):
                if not self.credentials.try_lock(CredentialsKey(endpoint, account)):
                    self.world.fail("nothing left", f"the credentials of {account} stay locked")


def _proof_in(head: RequestHead, account: str) -> DpopProof | None:
    """The proof of a request, which all that has come to know it can repeat; it is not signed."""
    values = head.values(_PROOF)
    if not values:
        return None
    path, method = head.path.decode(), head.method.decode()
    url = _MCP if path == "/mcp" else _MCP + path
    id = values[0].decode()
    return DpopProof(thumbprint=account, method=method, url=url, id=id, age=0.0)


class WatchedClient(Client):
    """A client that notes which of its requests were refused, and with which token.

    It tells ``on_accepted`` of those that were not.
    """

    __slots__ = ("on_accepted", "refused", "sent")

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.sent: dict[int, _Sent] = {}
        """Its requests to the MCP server, by exchange."""
        self.refused: set[_Sent] = set()
        self.on_accepted: Callable[[int], None] | None = None

    def receive_part(self, exchange: int, part: ResponsePart, *, now: float) -> None:
        """Note a refusal."""
        if isinstance(part, ResponseHead) and exchange in self.sent:
            lacks_scope = (
                part.status == 403 and b"insufficient_scope" in repr(part.headers).encode()
            )
            if part.status == 401 or lacks_scope:
                self.refused.add(self.sent[exchange])
            if part.status < 300 and self.on_accepted is not None:
                self.on_accepted(exchange)
        super().receive_part(exchange, part, now=now)


class Seat:
    """The way of one client to the authorization server, to the storage, and to a person."""

    def __init__(self, customer: Customer, server: AuthorizationServer, account: str) -> None:
        options = customer.client.authorization
        assert options is not None
        self._login_timeout = options.login_timeout
        self.customer = customer
        self.world = customer.world
        self.server = server
        self.account = account
        self.used: _Token | None = None
        """The token with which it has made its last request."""
        self._asks_until = -math.inf
        """When nobody is asked any more."""
        self._told = ""
        """What the authorization server has answered."""
        self._has_lock = False
        self._logins = 0
        self._under_way: dict[int, str] = {}
        """Its requests to others than the MCP server, and the responses that were sent."""
        self._redirected: set[int] = set()
        """Those that were for the MCP server."""
        self._mcp: dict[int, bytes] = {}
        """The bodies of its requests to the MCP server that are under way."""
        self._proofs: dict[int, OpenExchange] = {}
        """Its requests with proofs."""
        if "proofs" in self.world.features:
            assert isinstance(customer.client, WatchedClient)
            customer.client.on_accepted = self._is_accepted
        self._storage: deque[AuthEffect] = deque()

    @property
    def carries(self) -> int:
        """How many requests are under way to others than the MCP server."""
        return len(self._under_way)

    def fail(self, checker: str, text: str) -> None:
        """Something has happened that must not."""
        self.world.fail(checker, f"{self.customer.name} {text}")

    def check_hides(self, what: object) -> None:
        """Fail if something that is shown has a secret."""
        if _SECRET in (text := repr(what)):
            self.fail("tokens", f"shows a secret: {text[:300]}")

    # HTTP

    def opens(self, effect: OpenExchange) -> bool:
        """Carry a request to others than the MCP server. Return False for one to that."""
        if _SECRET in effect.url:
            self.fail("tokens", f"has a secret in a URL: {effect.url}")
        token = bearer_token(effect.head)
        is_own = effect.url.startswith(f"{_MCP}/") and effect.address_policy is None
        if token is not None and not is_own:
            self.fail("tokens", f"sends a token to {effect.url}")
        if _SECRET.encode() in effect.body and effect.url != f"{_ISSUER}/token":
            self.fail("tokens", f"sends a secret to {effect.url}")
        if is_own and not self._is_redirected(effect):
            self._sends(effect, token or "")
            return False
        if effect.url.startswith(f"{_MCP}/") and effect.address_policy is not None:
            return False  # the metadata of the MCP server
        self._carry(effect)
        return True

    def _sends(self, effect: OpenExchange, token: str) -> None:
        """Check a request to the MCP server."""
        if self._has_lock:
            self.fail("refreshes", f"keeps the storage locked, and goes on with {effect.url}")
        client, name = self.customer.client, (effect.url, effect.body, token)
        assert isinstance(client, WatchedClient)
        if token:
            if f'"{token}"' not in self._told:
                self.world.reach("authorized by what another client has stored")
            self.used = self.server.tokens[token]
        if effect.body:
            if name in client.refused:
                self.fail("refusals", f"makes a request again that was refused: {name}")
            if any(refused[:2] == name[:2] for refused in client.refused):
                self.world.reach("refused request made again")
            is_open = self.customer.is_open
            self._mcp = {each: body for each, body in self._mcp.items() if is_open(each)}
            if effect.body in self._mcp.values():
                self.fail("refusals", f"makes a request twice: {effect.body!r}")
            self._mcp[effect.exchange] = effect.body
        elif self.used is not None and effect.head.method == b"GET":
            self._watch_expiry(effect, self.used)
        client.sent[effect.exchange] = name

    def with_proof(self, effect: OpenExchange) -> OpenExchange:
        """Return a request to the MCP server as it is sent."""
        if "proofs" not in self.world.features or bearer_token(effect.head) is None:
            return effect
        proof = (_PROOF, f"{self.customer.name} {effect.exchange}".encode())
        head = attrs.evolve(effect.head, headers=(*effect.head.headers, proof))
        self._proofs[effect.exchange] = effect = attrs.evolve(effect, head=head)
        return effect

    def _is_accepted(self, exchange: int) -> None:
        """A request was accepted. At times it comes again, from an attacker who has seen it."""
        world, name = self.world, f"{self.customer.name} proof {exchange}"
        effect = self._proofs.pop(exchange, None)
        if effect is not None and world.strikes(name, 0.3):
            delay = world.fates.pick(f"{name} after", (0.0, 0.1, 5.0))
            world.clock.call_later(delay, lambda: world.replay(self.customer, effect, name))

    def _watch_expiry(self, effect: OpenExchange, token: _Token) -> None:
        """Fail if an event stream is still there long after its token has expired."""

        def look() -> None:
            excuses = {"silence", "stall", "slow", "kill"}
            is_excused = self._is_out_of_time or excuses & self.customer.causes
            if self.customer.is_open(effect.exchange) and not is_excused:
                self.fail("expiry", f"reads {effect.url} with a token that has expired")

        if self.customer.kind == "http" and not self.world.features & {"windows", "proxies"}:
            self.world.clock.call_at(token.expires_at + _EXPIRED_FOR, look)

    def _is_redirected(self, effect: OpenExchange) -> bool:
        name = f"{self.customer.name} redirected {effect.exchange}"
        return "redirects" in self.world.features and self.world.strikes(name, 0.1)

    def abort(self, exchange: int) -> bool:
        """Give up a request to others; False if there is none."""
        response = self._under_way.pop(exchange, None)
        if response is not None:
            self.server.lose(response)
        return response is not None

    def _carry(self, effect: OpenExchange) -> None:
        """Carry a request to another server, and its response back, unless something happens."""
        world, name = self.world, f"{self.customer.name} issuer {effect.exchange}"
        if not effect.url.startswith(_ISSUER):
            self._redirected.add(effect.exchange)
            self._under_way[effect.exchange] = ""
            self._redirect(effect)
            return
        if self._under_way.keys() - self._redirected:
            self.fail("logins", f"makes two requests at once: {effect.url}")
        self._under_way[effect.exchange] = ""
        manner = ""
        if "issuer fails" in world.features and world.strikes(name, 0.3):
            world.causes.add("issuer")
            manner = world.fates.pick(
                f"{name} manner", ("503", "refused", "cut", "cut", "silent", "deaf")
            )
        delay = world.latency + world.fates.pick(f"{name} takes", (0.0, 0.05, _ANSWERED))
        world.clock.call_later(delay / 2, lambda: self._arrive(effect, manner, delay / 2))

    def _redirect(self, effect: OpenExchange) -> None:
        """Something before the MCP server sends the client elsewhere."""
        self.customer.causes.add("redirected")
        location = (b"location", _ELSEWHERE.encode())
        parts = (ResponseHead(status=307, headers=(location,)), BodyEnd())
        self.world.clock.call_later(self.world.latency, lambda: self._give(effect.exchange, parts))

    def _arrive(self, effect: OpenExchange, manner: str, delay: float) -> None:
        """The request reaches the authorization server."""
        world = self.world
        parts: tuple[ResponsePart, ...]
        if effect.exchange not in self._under_way:
            return
        if manner == "503":
            world.reach("issuer out of order")
            parts = (ResponseHead(status=503), BodyData(b"out of order"), BodyEnd())
        elif manner == "refused":
            parts = (ConnectionLost("connection refused"),)
        elif manner == "deaf":
            world.reach("issuer silent")
            return
        else:
            status, document = self.server.answer(effect)
            text = json.dumps(document)
            world.tell(f"the issuer answers {self.customer.name}: {effect.url} {status} {text}")
            if manner == "silent":
                self.server.lose(text)
                world.reach("issuer silent")
                return
            parts = (ResponseHead(status=status), BodyData(text.encode()), BodyEnd())
            if manner == "cut":
                self.server.lose(text)
                world.reach("connection of the issuer cut")
                parts = (*parts[:2], ConnectionLost("connection reset"))
            self._under_way[effect.exchange] = text
        world.clock.call_later(delay, lambda: self._give(effect.exchange, parts))

    def _give(self, exchange: int, parts: tuple[ResponsePart, ...]) -> None:
        """The response reaches the client."""
        response = self._under_way.pop(exchange, None)
        if response is None:
            return
        self._told += response
        for part in parts:
            self.customer.client.receive_part(exchange, part, now=self.customer.now)
        self.customer.touch()

    # The storage

    def perform(self, effect: AuthEffect) -> None:
        """Perform an effect, after those before it."""
        if isinstance(effect, UnlockCredentials):
            self._has_lock = False
        self._storage.append(effect)
        if len(self._storage) == 1:
            self._begin()

    def _begin(self) -> None:
        name = f"{self.customer.name} storage takes"
        delay = self.world.fates.pick(name, (0.0, 0.001, 0.05, 0.2))
        self.world.clock.call_later(delay, self._work)

    def _work(self) -> None:
        effect = self._storage[0]
        client, now = self.customer.client, self.customer.now
        name = f"{self.customer.name} storage {id_of(effect)} {self.world.clock.now:.3f}"
        is_unlock = isinstance(effect, UnlockCredentials)
        fails = "credentials fail" in self.world.features and not is_unlock
        if fails and self.world.strikes(name, 0.1):
            self.world.causes.add("credentials")
            if isinstance(effect, SaveCredentials):
                self.world.reach("credentials not stored")
                self.server.lose(effect.document)
            client.auth_failed(effect, "the disk is full", now=now)
        else:
            result = self._result(effect)
            if not is_unlock:
                client.auth_completed(effect, result, now=now)
        self._storage.popleft()
        if self._storage:
            self._begin()
        self.customer.touch()

    def _result(self, effect: AuthEffect) -> Any:
        storage = self.server.credentials
        match effect:
            case LoadCredentials(key):
                return storage.load(key)
            case SaveCredentials(key, document):
                return storage.save(key, document)
            case LockCredentials(key):
                has_locked = storage.try_lock(key)
                if not has_locked:
                    self.world.reach("client waits for the lock of another")
                self._has_lock = has_locked
                self._may_close(has_locked)
                return has_locked
            case UnlockCredentials(key):
                return storage.unlock(key)
            case _:
                raise AssertionError(effect)

    def _may_close(self, has_locked: bool) -> None:
        """It has locked the storage, which may be the moment in which it is closed."""
        world, name = self.world, f"{self.customer.name} closes at {self.world.clock.now:.3f}"
        if has_locked and "early closes" in world.features and world.strikes(name, 0.3):
            delay = world.fates.pick(f"{name} after", (0.0, 0.05, 0.3))
            world.clock.call_later(delay, lambda: self.customer.close(early=True))

    # A person

    @property
    def has_expired(self) -> bool:
        """Whether a token has expired with which it may have made requests."""
        tokens, now = self.server.tokens.values(), self.world.clock.now + 0.001
        return any(each.expires_at <= now for each in tokens if each.grant.account == self.account)

    @property
    def _is_out_of_time(self) -> bool:
        """Whether clocks jump, or events are taken late."""
        return bool(self.world.features & {"jumps", "naps"})

    def ask(self, url: str) -> None:
        """A person is asked to log in."""
        world, customer = self.world, self.customer
        if world.clock.now < self._asks_until and not self._is_out_of_time:
            self.fail("logins", "asks a person who has not answered yet")
        wanted = set(dict(parse_qsl(urlsplit(url).query))["scope"].split())
        used = self.used
        if used is not None and used.is_good(world.clock.now):
            if wanted <= used.grant.scopes:
                self.fail("logins", f"asks for {sorted(wanted)}, and has a token for it")
            world.reach("stepped up")
        self._asks_until = world.clock.now + self._login_timeout
        self._logins += 1
        name = f"{customer.name} login {self._logins}"
        manner = ""
        if "logins fail" in world.features and world.strikes(name, 0.5):
            manners = ("denied", "given up", "never", "injected", "narrow", "late")
            manner = world.fates.pick(f"{name} manner", manners)
        if 0 <= world.clock.now - customer.naps_until < 0.01:
            customer.causes.add("login")  # it has been waiting for its application
        delay = world.fates.pick(f"{name} takes", (0.0, 0.1, 0.1, 3.0, 15.0))
        world.tell(f"a person is asked: {url}: {manner} after {delay} s")
        if "cancels" in world.features and world.strikes(f"{name} in vain", 0.5):
            self._cancel_all(world.fates.pick(f"{name} cancelled after", (0.0, 0.05, 1.0)))
        world.clock.call_later(delay, lambda: self._answer(url, manner))

    def _cancel_all(self, delay: float) -> None:
        """Cancel the calls that wait for the person."""
        self.world.reach("calls cancelled while somebody logs in")
        for handle, made in self.customer.calls.items():
            if made.end is None and not made.errand.lasts:
                self.world.clock.call_later(delay, partial(self.customer.cancel, handle))

    def _answer(self, url: str, manner: str) -> None:
        """The person answers, in one way or the other."""
        client, now, world = self.customer.client, self.customer.now, self.world
        state = dict(parse_qsl(urlsplit(url).query))["state"]
        if manner in ("denied", "given up", "never", "narrow", "late"):
            self.customer.causes.add("login")
        if manner in ("never", "late"):
            world.reach("login never answered")
            if manner == "late":
                world.clock.call_later(150.0, lambda: self._answer(url, "too late"))
            return
        self._asks_until = -math.inf
        if manner == "too late":
            redirect = self.server.authorize(url, self.account, is_narrow=False)
            if client.redirected(redirect, now=now) and "jump" not in world.causes:
                self.fail("logins", "takes a code after the end of its login")
        elif manner == "denied":
            world.reach("login denied")
            answer = {"error": "access_denied", "state": state, "iss": _ISSUER}
            client.redirected(f"/callback?{urlencode(answer)}", now=now)
        elif manner == "given up":
            world.reach("login given up")
            client.login_failed("the person has gone", now=now)
        else:
            if manner == "injected":
                world.reach("login not of ours")
                answer = {"code": "secret-code-of-mallory", "state": "guessed", "iss": _ISSUER}
                if client.redirected(f"/callback?{urlencode(answer)}", now=now):
                    self.fail("logins", "takes the code of somebody else")
            if manner == "narrow":
                world.reach("scopes denied")
            redirect = self.server.authorize(url, self.account, is_narrow=manner == "narrow")
            if not client.redirected(redirect, now=now):
                world.reach("login cut short")
        self.customer.touch()


def settings_of(world: World, name: str, server: AuthorizationServer, account: str) -> Any:
    """The settings of a client in a protected world."""
    number = world.fates.stream(f"{name} random")

    def random_bytes(count: int) -> bytes:
        return bytes(int(256 * number()) for _ in range(count))

    return {
        "authorization": Authorization(
            credentials=server.credentials,
            account=account,
            login_timeout=world.fates.pick(f"{name} login timeout", (20.0, 100.0)),
        ),
        "random_bytes": random_bytes,
        "wall_clock": lambda: 1e9 + world.clock.now,
    }


def id_of(effect: AuthEffect) -> str:
    """The kind of an effect."""
    return type(effect).__name__


def _challenge(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
