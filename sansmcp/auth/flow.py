"""Obtain tokens for the requests of one client to one MCP server.

A *flow* leads from a refused request to a token. It is a generator, :meth:`Flow._authorize`, and
reads from top to bottom: metadata of the resource, metadata of the authorization server, client,
login, token. It yields what it waits for and is sent the result. One flow runs at a time, and the
requests of the client wait for it.

:class:`Flow` runs the generator and holds what outlives it. Its owner, the client, pulls steps,
performs each as an effect or an event of its own, and reports the result. Every flow ends with
:class:`Obtained` or :class:`Failed`: each HTTP request has a time limit, a login too, and the
number of requests is bounded by the code. The table AUTHORIZATION names the steps.

Source: 2025-03-26 to 2026-07-28, basic/authorization. The procedure of 2026-07-28 serves all
revisions, because the revision of a server is not known when it refuses the first request. The
fallback of 2025-03-26 is used only if the server has no metadata at all, and had none earlier.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import attrs

from ..addresses import AddressClass, AddressPolicy, classify_address, literal_address
from ..codecs.headers import Headers, get_all
from ..credentials import CredentialsKey
from ..effects import (
    AuthEffect,
    LoadCredentials,
    LockCredentials,
    MakeKey,
    SaveCredentials,
    SignJwt,
    UnlockCredentials,
)
from ..errors import AuthorizationFailed
from ..events import AuthorizationNeeded
from ..http import ResponseHead, ResponsePart
from ..states import AUTHORIZATION, AuthorizationEvent, AuthorizationState, advance
from ..types import assert_never
from .challenges import Challenge, find_challenge
from .clients import (
    AUTH_METHODS,
    REGISTRATION_REFUSED,
    OAuthClient,
    read_registration,
    registration_request,
)
from .codes import RANDOM_BYTES, PendingCode, authorization_request, code_in, random_text
from .http import (
    REQUEST_TIMEOUT,
    AuthRequest,
    AuthResponse,
    ResponseCollector,
    cut,
    nonce_in,
    shown_url,
)
from .metadata import (
    AuthorizationServer,
    ProtectedResource,
    default_server,
    is_same_issuer,
    issuer_named_by_old_server,
    metadata_request,
    read_old_server,
    read_resource,
    read_server,
)
from .options import Authorization, ClientCredentials, IdentityAssertion, JwtAssertion
from .proofs import ALGORITHMS, DPOP_ALGORITHM, client_assertion, dpop_proof
from .saved import Saved
from .scopes import choose_scopes, union, with_offline_access
from .tokens import (
    ID_JAG,
    JWT_BEARER,
    TOKEN_EXCHANGE,
    TokenResponse,
    Tokens,
    read_id_jag,
    read_tokens,
    token_request,
)
from .urls import (
    host_of,
    is_loopback,
    origin_of,
    resource_metadata_urls,
    server_metadata_urls,
    without_query,
)

_Answered = TypeVar("_Answered")

OLDEST = "2025-03-26"
"""The revision whose servers have no metadata of the resource."""

_MAX_SENDS = 3
"""How often one request is sent, with different tokens or proofs."""

_MAX_STEP_UPS = 2
"""Further authorizations for one operation because its token lacked scopes."""

_MAX_SCOPE_CHARS = 16 * 1024
"""The characters of the scopes that are requested. Each step-up can add some, for ever."""

_MAX_OPERATIONS = 1000
"""The operations whose step-ups are counted; beyond that the oldest is forgotten."""

_MAX_NONCES = 20
"""The servers whose latest DPoP nonce is kept."""

_LOCK_INTERVAL = 0.1
"""Seconds between two attempts to lock the storage."""

_LOCK_TIMEOUT = 45.0
"""Seconds after which a lock counts as stuck; its holder needs at most four requests' time."""

LOGOUT_TIMEOUT = 60.0
"""Seconds for a whole logout: the wait for the lock, all requests, and the storage."""

_DELETION_TIMEOUT = 10.0
"""Seconds at the end of a logout for the storage, to delete what was not revoked by then."""

# What a flow waits for, and how it ends


@attrs.frozen(eq=False)
class Fetch:
    """Make an HTTP request, to an address that ``policy`` allows."""

    request: AuthRequest
    policy: AddressPolicy


@attrs.frozen(eq=False)
class AbortFetch:
    """Abort the HTTP request: its response took too long, or is too long."""


@attrs.frozen(eq=False)
class Obtained:
    """The flow has ended, and waiting requests can be sent: with a token, or without any."""


@attrs.frozen(eq=False)
class Failed:
    """The flow has ended, and waiting requests fail with ``error``."""

    error: AuthorizationFailed


Step: TypeAlias = Fetch | AbortFetch | AuthEffect | AuthorizationNeeded | Obtained | Failed


@attrs.frozen(eq=False)
class _Pause:
    """Wait for ``seconds``."""

    seconds: float


_Wait: TypeAlias = Fetch | AuthEffect | PendingCode | _Pause
_Steps: TypeAlias = Generator[_Wait, Any, _Answered]


# What the client asks, and is told


@attrs.define(eq=False)
class Attempt:
    """How often one request of the client was sent, and with which token."""

    operation: str
    """The method, and the name of a tool, prompt or resource."""
    generation: int = -1
    """:attr:`Flow.generation` when it was sent."""
    sends: int = 0
    has_used_nonce: bool = False
    """True if it was sent again for a DPoP nonce."""
    has_refreshed: bool = False
    """True if the token was refreshed for it."""


@attrs.frozen
class SendAgain:
    """Send the request again when the flow, if one runs, has ended."""


@attrs.frozen
class GiveUp:
    """The request fails with ``error``."""

    error: AuthorizationFailed


Verdict: TypeAlias = SendAgain | GiveUp | None
"""What to do about a refusal; None if it is not about authorization."""


@attrs.define(eq=False, repr=False)
class Flow:
    """The authorization of one client."""

    endpoint: str
    """The URL of the MCP server. Tokens are sent to its origin only."""
    _options: Authorization
    _random: Callable[[int], bytes]
    _wall_clock: Callable[[], float]
    _is_legacy_allowed: bool
    """True if the client supports 2025-03-26."""
    state: AuthorizationState = attrs.field(default=AuthorizationState.NEW, init=False)
    logins: int = attrs.field(default=0, init=False)
    """How often it has obtained tokens otherwise than by a refresh: they may be of another user."""
    generation: int = attrs.field(default=0, init=False)
    """Grows with each new token."""
    deadline: float = attrs.field(default=math.inf, init=False)
    """When :meth:`due` is to be called, in seconds on the machine's clock."""
    _steps: deque[Step] = attrs.field(factory=deque[Step], init=False)
    _running: _Steps[None] | None = attrs.field(default=None, init=False)
    _logout_deadline: float = attrs.field(default=math.inf, init=False)
    """The time at which a logout ends; infinite in flows that are no logout."""
    _wait: _Wait | None = attrs.field(default=None, init=False)
    _collector: ResponseCollector | None = attrs.field(default=None, init=False)
    _saved: Saved = attrs.field(factory=Saved, init=False)
    _is_locked: bool = attrs.field(default=False, init=False)
    _resource: ProtectedResource | None = attrs.field(default=None, init=False)
    _server: AuthorizationServer | None = attrs.field(default=None, init=False)
    _nearest: AddressClass = attrs.field(default=AddressClass.PUBLIC, init=False)
    _key: dict[str, Any] | None = attrs.field(default=None, init=False)
    """The key of DPoP proofs in this flow; None without DPoP."""
    _nonces: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    """The latest DPoP nonce of each origin."""
    _wants_refresh: bool = attrs.field(init=False)
    """False once ``offline_access`` was refused."""
    _requested: tuple[str, ...] = attrs.field(default=(), init=False)
    """The scopes that were requested for the last token."""
    _step_ups: dict[str, int] = attrs.field(factory=dict[str, int], init=False)

    def __attrs_post_init__(self) -> None:
        self._wants_refresh = self._options.wants_refresh

    @property
    def is_busy(self) -> bool:
        """True if requests must wait."""
        return self.state not in _NOT_BUSY

    @property
    def tokens(self) -> Tokens | None:
        """The tokens in use; None if there are none."""
        return self._saved.tokens

    # Inputs

    def start(self, now: float) -> None:
        """Read the stored credentials, and refresh an expired token."""
        self._advance(AuthorizationEvent.STARTED)
        self._run(self._load(), now)

    def log_out(self, now: float) -> None:
        """Revoke the stored tokens, and delete them; call this instead of :meth:`start`."""
        self._advance(AuthorizationEvent.LOGOUT)
        self._logout_deadline = now + LOGOUT_TIMEOUT
        self._run(self._log_out(), now)

    def close(self) -> None:
        """Break off the flow, and release the lock."""
        self._unlock()
        if self._collector is not None:
            self._collector = None
            self._steps.append(AbortFetch())
        self._running = self._wait = None
        self.deadline = math.inf
        self._advance(AuthorizationEvent.CLOSE)

    def next_step(self) -> Step | None:
        """Remove and return what to do next; None if there is nothing."""
        return self._steps.popleft() if self._steps else None

    def receive(self, part: ResponsePart, now: float) -> None:
        """Receive a part of the response to the request of the last :class:`Fetch`."""
        if self._collector is not None:
            result = self._collector.receive(part)
            if isinstance(result, AuthorizationFailed):
                self._collector = None
                self._steps.append(AbortFetch())
                self._throw(result, now)
            elif result is not None:
                self._collector = None
                self._remember_nonce(result.request.url, result.headers)
                self._resume(result, now)

    def completed(self, effect: AuthEffect, result: Any, now: float) -> None:
        """Receive the result of an effect. Those of a flow that was broken off are ignored."""
        if effect is self._wait:
            self._resume(result, now)
        elif isinstance(effect, LockCredentials) and result:
            self._steps.append(UnlockCredentials(effect.key))

    def effect_failed(self, effect: AuthEffect, reason: str, now: float) -> None:
        """Record that an effect could not be performed."""
        if effect is self._wait:
            failures: dict[type[AuthEffect], str] = {
                LoadCredentials: "the stored credentials cannot be read",
                SaveCredentials: "the credentials cannot be stored",
                LockCredentials: "the stored credentials cannot be locked",
                MakeKey: "no key can be made",
                SignJwt: "a JWT cannot be signed",
            }
            text = f"Authorization failed: {failures[type(effect)]}: {reason}"
            self._throw(AuthorizationFailed(text, reason="effect_failed"), now)

    def redirected(self, redirect: str, now: float) -> bool:
        """Receive the URL to which a browser was sent. Return False if it is not of this login."""
        if not isinstance(self._wait, PendingCode):
            return False
        try:
            code = code_in(self._wait, redirect)
        except AuthorizationFailed as error:
            self._throw(error, now)
            return True
        if code is None:
            return False
        self._resume(code, now)
        return True

    def login_failed(self, reason: str, now: float) -> None:
        """Record that the person does not log in."""
        if isinstance(self._wait, PendingCode):
            text = f"Authorization failed at the login: {reason}"
            self._throw(AuthorizationFailed(text, reason="login_failed"), now)

    def due(self, now: float) -> None:
        """Handle the deadline."""
        match self._wait:
            case Fetch():
                assert self._collector is not None
                is_last = now >= self._logout_deadline - _DELETION_TIMEOUT
                seconds = LOGOUT_TIMEOUT - _DELETION_TIMEOUT if is_last else REQUEST_TIMEOUT
                limit = f"within {seconds:g} s" + " of the logout" * is_last
                error, self._collector = self._collector.timed_out(limit), None
                self._steps.append(AbortFetch())
                self._throw(error, now)
            case PendingCode():
                limit = f"{self._options.login_timeout:g} s (login_timeout)"
                self.login_failed(f"nobody has logged in within {limit}", now)
            case _Pause() | None:
                self._resume(None, now)
            case effect:
                reason = f"the logout has taken {LOGOUT_TIMEOUT:g} s, and still waits for that"
                self.effect_failed(effect, reason, now)

    # Requests of the client

    def prepare(self, now: float) -> bool:
        """Return whether a request can be sent now. If not, it must wait for the flow."""
        tokens = self.tokens
        if self.state is AuthorizationState.READY and tokens is not None:
            has_refresh = tokens.refresh_token is not None
            if has_refresh and tokens.is_expired(self._wall_clock()):
                self._advance(AuthorizationEvent.EXPIRED)
                self._run(self._refresh_expired(tokens), now)
        return not self.is_busy

    def proof(self, method: bytes, url: str) -> SignJwt | None:
        """Return the effect that signs the proof for a request; None if the token needs none."""
        tokens = self.tokens
        if tokens is None or not tokens.is_dpop or tokens.dpop_key is None:
            return None
        return self._proof(tokens.dpop_key, method, url, tokens.access_token)

    def headers(self, proof: str | None) -> Headers:
        """Return the headers that authorize a request; empty if there is no token."""
        if self.tokens is None:
            return ()
        token = self.tokens.access_token.encode()
        if proof is None:
            return ((b"authorization", b"Bearer " + token),)
        return ((b"authorization", b"DPoP " + token), (b"dpop", proof.encode()))

    def responded(self, attempt: Attempt, url: str, head: ResponseHead) -> None:
        """Record what the head of a response tells."""
        self._remember_nonce(url, head.headers)
        if head.status < 400:
            self._step_ups.pop(attempt.operation, None)

    def refused(self, attempt: Attempt, url: str, head: ResponseHead, now: float) -> Verdict:
        """Return what to do about a refusal of the MCP server, and start a flow if one is needed.

        Args:
            attempt: the attempt that was refused; it is counted here.
            url: the URL of the request.
            head: the head of the response.
            now: the current time in seconds, on the machine's clock.
        """
        challenge = find_challenge(get_all(head.headers, b"www-authenticate"))
        error = "" if challenge is None else challenge.error
        lacks_scope = head.status == 403 and error == "insufficient_scope"
        if head.status != 401 and not lacks_scope:
            return None
        if attempt.sends >= _MAX_SENDS:
            text = f"The server refused the request {attempt.sends} times, each with another token"
            return GiveUp(AuthorizationFailed(text, reason="refused_again", url=url))
        if error == "use_dpop_nonce" and nonce_in(head.headers) and not attempt.has_used_nonce:
            attempt.has_used_nonce = True
            return SendAgain()
        if self.is_busy or attempt.generation != self.generation:
            return SendAgain()
        challenge = challenge or _NO_CHALLENGE
        if lacks_scope and (failure := self._count_step_up(attempt, challenge, url)) is not None:
            return GiveUp(failure)
        failure = self._set_nearest(head.peer, url)
        if failure is not None:
            self._take(None)  # the name of a private server leads elsewhere now
            return GiveUp(failure)
        self._advance(AuthorizationEvent.CHALLENGED)
        self._run(self._authorize(challenge, attempt, is_step_up=lacks_scope), now)
        if self._running is None:  # it failed before it waited for anything
            failed = self._steps.pop()
            assert isinstance(failed, Failed)
            return GiveUp(failed.error)
        return SendAgain()

    def _set_nearest(self, peer: str, url: str) -> AuthorizationFailed | None:
        """Record how near the server is, by its address. Return the error if that is not safe.

        Behind a proxy, and with most HTTP libraries, the address is not known: ``peer`` is empty.
        A name may then lead anywhere.
        """
        literal = "127.0.0.1" if is_loopback(url) else literal_address(host_of(url))
        nearest = classify_address(peer or literal or "")
        self._nearest = AddressClass.PUBLIC if nearest is None else nearest
        if not self._is_plain:
            return None
        text = "The server asks for a token over http, where others could read it; use https"
        if nearest is AddressClass.PUBLIC:
            return AuthorizationFailed(text, reason="insecure_endpoint", url=url)
        if nearest is not None or self._is_allowed:
            return None
        text += (
            f". Or list {host_of(url)} in allowed_hosts if you trust the network between; the "
            "client does not know the address of the host, for example behind a proxy"
        )
        return AuthorizationFailed(text, reason="unknown_address", url=url)

    @property
    def _is_plain(self) -> bool:
        """True if what is sent to the MCP server is not encrypted, and leaves this machine."""
        return urlsplit(self.endpoint).scheme == "http" and not is_loopback(self.endpoint)

    @property
    def _is_allowed(self) -> bool:
        """True if the application has listed the MCP server itself in ``allowed_hosts``."""
        return host_of(self.endpoint) in self._options.allowed_hosts

    def _count_step_up(
        self, attempt: Attempt, challenge: Challenge, url: str
    ) -> AuthorizationFailed | None:
        """Count a step-up of an operation. Return the error if it would be no use, or too many."""
        requested = () if self.tokens is None else self.tokens.requested
        wanted = union(requested, challenge.scopes)
        if self.tokens is not None and set(challenge.scopes) <= set(requested):
            had, needed = (
                cut(" ".join(scopes)) or "none" for scopes in (requested, challenge.scopes)
            )
            text = (
                f"The server requires the scopes {needed!r}, and refuses a token for which {had!r} "
                "were requested"
            )
            return self._lacking(text, wanted)
        count = self._step_ups.pop(attempt.operation, 0) + 1
        self._step_ups[attempt.operation] = count
        if len(self._step_ups) > _MAX_OPERATIONS:
            del self._step_ups[next(iter(self._step_ups))]
        if count <= _MAX_STEP_UPS:
            return None
        text = f"The server required further scopes for {attempt.operation} {count} times"
        return self._lacking(text, wanted)

    def _lacking(self, text: str, wanted: tuple[str, ...]) -> AuthorizationFailed:
        """Return the error for a token that lacks scopes: people log in for them at the server.

        With HTTP+SSE the server chooses where requests are sent, which is no place for a login.
        """
        scopes = wanted if _chars(wanted) <= _MAX_SCOPE_CHARS else ()
        return AuthorizationFailed(
            text, reason="insufficient_scope", url=self.endpoint, scopes=scopes
        )

    # Running a flow

    def _advance(self, event: AuthorizationEvent) -> None:
        self.state = advance(AUTHORIZATION, self.state, event)

    def _run(self, steps: _Steps[None], now: float) -> None:
        self._running = steps
        self._resume(None, now)

    def _resume(self, result: Any, now: float) -> None:
        running = self._running
        assert running is not None
        self._step(lambda: running.send(result), now)

    def _throw(self, error: AuthorizationFailed, now: float) -> None:
        running = self._running
        assert running is not None
        self._step(lambda: running.throw(error), now)

    def _step(self, advance_generator: Callable[[], _Wait], now: float) -> None:
        self.deadline, self._wait = math.inf, None
        try:
            self._wait = advance_generator()
        except StopIteration:
            self._finish(Obtained())
        except AuthorizationFailed as error:
            self._fail(error)
        except Exception as error:  # a bug of this library: no request may wait for ever
            text = f"Authorization failed after an internal error: {error!r}"
            failure = AuthorizationFailed(text, reason="internal_error")
            failure.__cause__ = error
            self._fail(failure)
        else:
            self._begin_wait(self._wait, now)

    def _fail(self, error: AuthorizationFailed) -> None:
        kept = AuthorizationEvent.KEPT if self.tokens is not None else AuthorizationEvent.FAILED
        self._advance(kept)
        self._finish(Failed(error))

    def _begin_wait(self, wait: _Wait, now: float) -> None:
        match wait:
            case Fetch(request):
                self._collector = ResponseCollector(request)
                self.deadline = min(
                    now + REQUEST_TIMEOUT, self._logout_deadline - _DELETION_TIMEOUT
                )
                self._steps.append(wait)
            case PendingCode():
                self.deadline = now + self._options.login_timeout
                self._steps.append(AuthorizationNeeded(wait.url))
            case _Pause(seconds):
                self.deadline = now + seconds
            case _:
                self.deadline = self._logout_deadline
                self._steps.append(wait)

    def _finish(self, end: Obtained | Failed) -> None:
        self._unlock()
        self._running = None
        self._steps.append(end)

    # The storage

    @property
    def _storage_key(self) -> CredentialsKey:
        return CredentialsKey(self.endpoint, self._options.account)

    def _load(self) -> _Steps[None]:
        """Read the stored credentials."""
        tokens = yield from self._reload()
        is_public = tokens is not None and tokens.nearest is AddressClass.PUBLIC
        if is_public and self._is_plain and not self._is_allowed:
            tokens = None  # of an earlier release, or obtained with other allowed_hosts
        if tokens is not None and tokens.refresh_token and tokens.is_expired(self._wall_clock()):
            self._advance(AuthorizationEvent.EXPIRED)
            yield from self._refresh_expired(tokens)
            return
        self._take(tokens)
        if tokens is None and self._options.log_in_first:
            self._advance(AuthorizationEvent.CHALLENGED)
            yield from self._log_in_first()
            return
        found = AuthorizationEvent.OBTAINED if tokens else AuthorizationEvent.FAILED
        self._advance(found)

    def _reload(self) -> _Steps[Tokens | None]:
        """Read the stored credentials again, and return the tokens."""
        document = cast("str | None", (yield LoadCredentials(self._storage_key)))
        stored = Saved.parse(document)
        if stored.may_overwrite:
            self._saved = stored
        else:  # of a newer release: this client keeps its credentials in memory
            self._saved.may_overwrite = False
        return self._saved.tokens

    def _take(self, tokens: Tokens | None) -> None:
        """Use these tokens from now on."""
        self._saved.tokens = tokens
        if tokens is not None:
            self._requested = tokens.requested
        self.generation += 1

    def _save(self) -> _Steps[None]:
        if self._resource is not None and self._resource.resource is not None:
            self._saved.resource = self._resource.resource
        if self._saved.may_overwrite:
            yield SaveCredentials(self._storage_key, self._saved.encode())

    def _lock(self) -> _Steps[None]:
        for _ in range(int(_LOCK_TIMEOUT / _LOCK_INTERVAL)):
            self._is_locked = cast("bool", (yield LockCredentials(self._storage_key)))
            if self._is_locked:
                return
            yield _Pause(_LOCK_INTERVAL)
        text = "Authorization failed: another process has locked the stored credentials"
        raise AuthorizationFailed(f"{text} for {_LOCK_TIMEOUT:g} s", reason="lock_held")

    def _unlock(self) -> None:
        if self._is_locked:
            self._is_locked = False
            self._steps.append(UnlockCredentials(self._storage_key))

    # The flow

    def _log_in_first(self) -> _Steps[None]:
        """Obtain a token before the first request; go on without one if there is no metadata."""
        # The metadata has the origin of the endpoint, whose address is not known yet.
        self._nearest = AddressClass.LOOPBACK
        try:
            self._resource, response = yield from self._find_resource(_NO_CHALLENGE, is_first=True)
        except AuthorizationFailed as error:
            if error.reason not in _UNFOUND:
                raise
            self._advance(AuthorizationEvent.FAILED)
            return
        failure = self._set_nearest(response.peer, response.request.url)
        if failure is not None:
            raise failure
        yield from self._obtain_for(self._resource, _NO_CHALLENGE, Attempt(""), is_step_up=False)

    def _authorize(
        self, challenge: Challenge, attempt: Attempt, *, is_step_up: bool
    ) -> _Steps[None]:
        """Obtain a token after a refusal."""
        # A token was refused that should be valid: the server may have changed to another
        # authorization server. Only its metadata tell. A lack of scopes tells nothing of that.
        if self._resource is None or not is_step_up:
            self._resource, _ = yield from self._find_resource(challenge)
            self._server = None
        yield from self._obtain_for(self._resource, challenge, attempt, is_step_up=is_step_up)

    def _obtain_for(
        self,
        resource: ProtectedResource,
        challenge: Challenge,
        attempt: Attempt,
        *,
        is_step_up: bool,
    ) -> _Steps[None]:
        """Obtain a token for a resource, whose metadata have been found."""
        self._advance(AuthorizationEvent.FOUND)
        if not is_step_up and (yield from self._refresh_refused(resource, challenge, attempt)):
            return
        if self._server is None:
            self._server = yield from self._find_server(resource)
        server = self._server
        resource = self._with_audience(resource, server)
        self._advance(AuthorizationEvent.FOUND)
        yield from self._decide_dpop(resource, server, challenge)
        chosen = choose_scopes(
            self._options.scopes, self._requested, challenge.scopes, resource.scopes
        )
        if _chars(chosen) > _MAX_SCOPE_CHARS:
            text = (
                f"The server requires {len(chosen)} scopes of {_chars(chosen)} characters, and at "
                f"most {_MAX_SCOPE_CHARS} are requested"
            )
            raise AuthorizationFailed(text, reason="too_many_scopes", url=self.endpoint)
        match self._options.grant:
            case None:
                yield from self._log_in(resource, server, chosen)
            case ClientCredentials():
                form = {"grant_type": "client_credentials"}
                yield from self._obtain(resource, server, self._given(server), form, chosen)
            case IdentityAssertion() as identity:
                assertion = yield from self._exchange_identity(identity, resource, server, chosen)
                form = {"grant_type": JWT_BEARER, "assertion": assertion}
                yield from self._obtain(resource, server, self._given(server), form, chosen)
            case JwtAssertion(assertion=assertion):
                form = {"grant_type": JWT_BEARER, "assertion": assertion}
                has_client = self._options.client is not None
                client = self._given(server) if has_client else None
                yield from self._obtain(resource, server, client, form, chosen)
            case _ as impossible:
                assert_never(impossible)

    def _fetch(self, request: AuthRequest, *, is_trusted: bool = False) -> _Steps[AuthResponse]:
        """Make an HTTP request; ``is_trusted``: the application has given its URL."""
        host = host_of(request.url)
        policy = self._policy
        if is_trusted:
            policy = attrs.evolve(policy, nearest=AddressClass.LOOPBACK)
        if not policy.allows_literal(host):
            text = f"{host} is in a more private network than the MCP server (allowed_hosts)"
            response = AuthResponse(request, 0)
            raise response.failed(f"cannot be used: {text}", "private_address")
        return cast("AuthResponse", (yield Fetch(request, policy)))

    def _find_resource(
        self, challenge: Challenge, *, is_first: bool = False
    ) -> _Steps[tuple[ProtectedResource, AuthResponse]]:
        """Find the metadata of the MCP server; return them, and the last response.

        ``is_first``: the server has refused nothing, so that there is no fallback.
        """
        tried: list[AuthResponse] = []
        for url in resource_metadata_urls(self.endpoint, challenge.resource_metadata):
            response = yield from self._fetch(metadata_request("the metadata of the server", url))
            found = read_resource(response, self.endpoint)
            if found is not None:
                return found, response
            tried.append(response)
        barrier = (
            _no_metadata("the server", tried) if is_first else self._barrier_to_fallback(tried)
        )
        if barrier is not None:
            raise barrier
        return ProtectedResource(resource=None), tried[-1]

    def _barrier_to_fallback(self, tried: list[AuthResponse]) -> AuthorizationFailed | None:
        """Return why the fallback of 2025-03-26 is not used; None to use it.

        In the fallback the MCP server alone decides who gets what is secret. So an error of the
        server, or a server that has been taken over, must not lead to it, and neither must a secret
        that the application has not bound to an issuer.
        """
        if not self._is_legacy_allowed or any(each.status != _NOT_FOUND for each in tried):
            return _no_metadata("the server", tried)
        if self._saved.resource is not None:
            more = (
                "; it had metadata earlier, so that it is not taken for a server of 2025-03-26 as "
                "long as these credentials are stored"
            )
            return _no_metadata("the server", tried, more)
        if self._options.client is not None and self._bound_issuer is None:
            issuer = default_server(self.endpoint).issuer
            more = f"; if it is a server of 2025-03-26, set {issuer=} of the client"
            return _no_metadata("the server", tried, more, reason="no_issuer")
        return None

    def _find_server(self, resource: ProtectedResource) -> _Steps[AuthorizationServer]:
        """Find the metadata of the authorization server: of the first that can be used."""
        if resource.resource is None:
            return (yield from self._find_old_server())
        failure: AuthorizationFailed | None = None
        for issuer in self._preferred(resource.servers):
            try:
                return (yield from self._find_metadata(issuer, self._options.needs_person))
            except AuthorizationFailed as error:
                failure = failure or error
        assert failure is not None
        raise failure

    @property
    def _bound_issuer(self) -> str | None:
        """The issuer of what the application has given; None if it may be any, or gave nothing."""
        fixed, grant = self._options.client, self._options.grant
        if isinstance(grant, JwtAssertion):
            return grant.issuer
        return None if fixed is None else fixed.issuer or self._saved.bound_issuer

    def _preferred(self, issuers: tuple[str, ...]) -> list[str]:
        """Return issuers in the order in which to try them: those first that know this client."""
        bound = self._bound_issuer
        if bound is not None:
            known = [issuer for issuer in issuers if is_same_issuer(issuer, bound)]
            if not known:
                text = (
                    f"Authorization failed: the server names the issuer {cut(issuers[0])!r}, and "
                    f"the client or assertion of the settings is for {bound!r}"
                )
                raise AuthorizationFailed(text, reason="foreign_issuer")
            return known
        holder = None if self.tokens is None else self.tokens.issuer
        clients = self._saved.clients
        return sorted(issuers, key=lambda issuer: (issuer != holder, issuer not in clients))

    def _find_metadata(self, issuer: str, for_code: bool) -> _Steps[AuthorizationServer]:
        tried: list[AuthResponse] = []
        for url in server_metadata_urls(issuer):
            response = yield from self._fetch(metadata_request(_OF_SERVER, url))
            found = read_server(
                response,
                issuer,
                for_code=for_code,
                may_omit_pkce=self._options.assume_pkce,
            )
            if found is not None:
                return found
            tried.append(response)
        raise _no_metadata(f"the authorization server {cut(issuer)}", tried)

    def _find_old_server(self) -> _Steps[AuthorizationServer]:
        """Find the authorization server of a server of 2025-03-26: it has the same origin.

        The metadata there may be a copy of those of another issuer. Then that one's own are used:
        a copy proves nothing.
        """
        usual = default_server(self.endpoint)
        url = server_metadata_urls(usual.issuer)[0]
        response = yield from self._fetch(metadata_request(_OF_SERVER, url, version=OLDEST))
        named = issuer_named_by_old_server(response)
        if named is None and response.status != _NOT_FOUND:
            raise _no_metadata(f"the authorization server {usual.issuer}", [response])
        (issuer,) = self._preferred((named or usual.issuer,))
        for_code = self._options.needs_person
        if not is_same_issuer(issuer, usual.issuer):
            return (yield from self._find_metadata(issuer, for_code))
        return read_old_server(response, usual.issuer, for_code=for_code) or usual

    def _with_audience(
        self, resource: ProtectedResource, server: AuthorizationServer
    ) -> ProtectedResource:
        """Return for which resource to request a token.

        In the fallback, too, another server is told for whom it is. Otherwise an MCP server could
        hide its metadata to get a token that is good for others. Only the settings can leave that
        out.
        """
        if not self._options.names_resource:
            return attrs.evolve(resource, resource=None)
        is_own = origin_of(server.token_endpoint) == origin_of(self.endpoint)
        if resource.resource is not None or is_own:
            return resource
        return attrs.evolve(resource, resource=without_query(self.endpoint))

    # Clients

    def _given(self, server: AuthorizationServer) -> OAuthClient:
        """Return the client of the settings, bound to the issuer if it is not yet."""
        client = self._options.client
        assert client is not None
        if client.issuer is None:
            self._saved.bound_issuer = server.issuer
        return client

    def _choose_client(
        self, server: AuthorizationServer, scopes: tuple[str, ...]
    ) -> _Steps[OAuthClient]:
        """Return the client for a login; register one if none is known."""
        options = self._options
        if options.client is not None:
            if self._bound_issuer is None and not server.names_own_login:
                raise AuthorizationFailed(
                    f"Authorization failed: {cut(server.issuer)} has people log in at another "
                    f"host, {cut(host_of(server.authorization_endpoint or ''))}, which may know "
                    "this client and not belong to it; if it does, set "
                    f"issuer={cut(server.issuer)!r} of the client",
                    reason="no_issuer",
                )
            return self._given(server)
        # Every issuer knows a client by its URL, so a code of one could be led to another.
        takes_url = server.takes_metadata_urls and server.names_own_login
        if options.client_metadata_url is not None and takes_url:
            return OAuthClient(client_id=options.client_metadata_url, auth_method="none")
        stored = self._saved.clients.get(server.issuer)
        is_usable = stored is not None and options.redirect_uri in stored.redirect_uris
        if stored is not None and is_usable and not stored.is_expired(self._wall_clock()):
            return stored
        if server.registration_endpoint is None:
            raise AuthorizationFailed(
                f"Authorization failed: the authorization server {cut(server.issuer)} registers no "
                "clients; set client, or client_metadata_url if it supports that",
                reason="no_client",
            )
        uris = (options.redirect_uri,)
        request = registration_request(
            server.registration_endpoint,
            name=options.client_name,
            redirect_uris=uris,
            supported=server.auth_methods,
            scopes=scopes,
        )
        response = yield from self._fetch(request)
        client = read_registration(response, server.issuer, uris)
        # Another process may have stored newer tokens, which must not be replaced.
        yield from self._lock()
        yield from self._reload()
        self._saved.add_client(server.issuer, client)
        yield from self._save()
        self._unlock()
        return client

    def _client_of(self, tokens: Tokens) -> OAuthClient | None:
        """Return the client to which tokens were issued; None if it is not known any more.

        The id says too little: another issuer may have registered a client under the same one.
        """
        options, wanted = self._options, tokens.client_id
        if options.client is not None:
            bound = self._bound_issuer
            is_its = bound is not None and is_same_issuer(bound, tokens.issuer)
            return options.client if is_its and options.client.client_id == wanted else None
        stored = self._saved.clients.get(tokens.issuer)
        if stored is not None and stored.client_id == wanted:
            return stored
        # It has a metadata document, or another process has registered one more since. Of a public
        # client the id is enough.
        if wanted is None or tokens.auth_method != "none":
            return None
        return OAuthClient(client_id=wanted, auth_method="none")

    # Grants

    def _log_in(
        self, resource: ProtectedResource, server: AuthorizationServer, scopes: tuple[str, ...]
    ) -> _Steps[None]:
        """Obtain a token by the login of a person."""
        options, needed = self._options, scopes
        scopes = with_offline_access(scopes, server.scopes, wants_refresh=self._wants_refresh)
        retried: set[str] = set()
        while True:
            known = self._saved.clients.get(server.issuer)
            try:
                client = yield from self._choose_client(server, union(scopes, resource.scopes))
            except AuthorizationFailed as error:
                if error.reason != REGISTRATION_REFUSED or scopes == needed:
                    raise
                scopes = self._without_own_scopes(needed)
                continue
            self._method_for(client, server)  # what cannot work is said before a person logs in
            self._check_login(server)
            pending = authorization_request(
                server,
                client,
                redirect_uri=options.redirect_uri,
                resource=resource.resource,
                scopes=scopes,
                extra=options.extra,
                random=self._random(2 * RANDOM_BYTES),
            )
            self._advance(AuthorizationEvent.FOUND)
            try:
                code = cast("str", (yield pending))
                self._advance(AuthorizationEvent.FOUND)
                form = {
                    "grant_type": "authorization_code",
                    "code": code,
                    "redirect_uri": pending.redirect_uri,
                    "code_verifier": pending.verifier,
                }
                yield from self._request_and_store(resource, server, client, form, scopes)
            except AuthorizationFailed as error:
                if error.reason == "invalid_scope" and scopes != needed:
                    scopes = self._without_own_scopes(needed)
                    self._advance(AuthorizationEvent.REFUSED)
                    continue
                is_registered = client is self._saved.clients.get(server.issuer)
                # A client may request only the scopes that it was registered for. Those were other
                # ones if it was registered before this flow.
                lacks_scope = error.reason == "invalid_scope" and client is known
                is_old = lacks_scope or (error.reason == "invalid_client" and is_registered)
                if error.reason in retried or not (is_old or error.reason == "invalid_grant"):
                    raise
                if is_old:
                    del self._saved.clients[server.issuer]
                retried.add(error.reason)
                self._advance(AuthorizationEvent.REFUSED)
            else:
                return

    def _check_login(self, server: AuthorizationServer) -> None:
        """Raise if people would open an address that the flow itself may not use.

        A server could have a browser in a private network visit the services of that network.
        """
        url = server.authorization_endpoint or ""
        host = host_of(url)
        address = "127.0.0.1" if is_loopback(url) else literal_address(host)
        if address is not None and not self._policy.allows(host, address):
            text = (
                f"Authorization failed: {cut(server.issuer)} has people log in at {host}, which is "
                "in a more private network than the MCP server (allowed_hosts)"
            )
            raise AuthorizationFailed(text, reason="private_address", url=url)

    @property
    def _policy(self) -> AddressPolicy:
        """The addresses that the MCP server may name."""
        return AddressPolicy(self._nearest, self._options.allowed_hosts)

    def _without_own_scopes(self, needed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the scopes without ``offline_access``, which was the idea of this client alone."""
        self._wants_refresh = False
        return needed

    def _obtain(
        self,
        resource: ProtectedResource,
        server: AuthorizationServer,
        client: OAuthClient | None,
        form: dict[str, str],
        scopes: tuple[str, ...],
    ) -> _Steps[None]:
        """Obtain a token without a person. A refusal is final."""
        self._advance(AuthorizationEvent.UNATTENDED)
        if scopes:
            form = {**form, "scope": " ".join(scopes)}
        yield from self._request_and_store(resource, server, client, form, scopes)

    def _exchange_identity(
        self,
        identity: IdentityAssertion,
        resource: ProtectedResource,
        server: AuthorizationServer,
        scopes: tuple[str, ...],
    ) -> _Steps[str]:
        """Exchange the identity token at the provider for an assertion to the server."""
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": ID_JAG,
            "audience": server.issuer,
            "subject_token": identity.subject_token,
            "subject_token_type": identity.subject_token_type,
        }
        if resource.resource is not None:
            form["resource"] = resource.resource
        if scopes:
            form["scope"] = " ".join(scopes)
        client = identity.client
        method = client.method_for(("client_secret_basic", "client_secret_post", "none")) or "none"
        url = identity.token_endpoint

        def send(repeats_id: bool) -> _Steps[AuthResponse]:
            request = token_request(
                url, client, method, form, step="the identity provider", repeats_id=repeats_id
            )
            return self._fetch(request, is_trusted=True)

        return read_id_jag((yield from self._with_or_without_id(url, method, send)))

    def _request_and_store(
        self,
        resource: ProtectedResource,
        server: AuthorizationServer,
        client: OAuthClient | None,
        form: dict[str, str],
        scopes: tuple[str, ...],
    ) -> _Steps[None]:
        """Request a token, and store it."""
        method = "none" if client is None else self._method_for(client, server)
        if resource.resource is not None:
            form = {**form, "resource": resource.resource}
        url = server.token_endpoint
        algorithms = server.signing_algorithms
        response = self._read_tokens(
            (yield from self._request_token(url, server.issuer, client, method, form, algorithms))
        )
        tokens = Tokens(
            issuer=server.issuer,
            client_id=None if client is None else client.client_id,
            resource=resource.resource,
            token_endpoint=url,
            auth_method=method,
            access_token=response.access_token,
            is_dpop=response.is_dpop,
            refresh_token=response.refresh_token,
            lifetime=response.lifetime,
            expires_at=self._wall_clock() + response.lifetime,
            requested=scopes,
            granted=scopes if response.scopes is None else response.scopes,
            nearest=self._nearest,
            dpop_key=self._key,
        )
        yield from self._store(tokens)
        self.logins += 1

    def _store(self, tokens: Tokens) -> _Steps[None]:
        """Store tokens, then use them. A rotated refresh token must not be lost in a crash."""
        before, self._saved.tokens = self._saved.tokens, tokens
        try:
            yield from self._save()
        except AuthorizationFailed:
            self._saved.tokens = before
            raise
        self._take(tokens)
        self._advance(AuthorizationEvent.OBTAINED)

    def _method_for(self, client: OAuthClient, server: AuthorizationServer) -> str:
        method = client.method_for(server.auth_methods)
        if method is None:
            raise AuthorizationFailed(
                f"Authorization failed: the client {cut(client.client_id)!r} cannot authenticate "
                f"at {cut(server.issuer)}, which supports {cut(', '.join(server.auth_methods))}; "
                f"sansmcp supports {', '.join(AUTH_METHODS)}",
                reason="no_auth_method",
            )
        return method

    def _request_token(
        self,
        url: str,
        issuer: str,
        client: OAuthClient | None,
        method: str,
        form: dict[str, str],
        algorithms: tuple[str, ...] = (),
        step: str = "the token request",
    ) -> _Steps[AuthResponse]:
        """Make a token request, or one that revokes a token."""

        def send(repeats_id: bool) -> _Steps[AuthResponse]:
            return self._send_token_request(
                url, issuer, client, method, form, algorithms, step, repeats_id
            )

        return (yield from self._with_or_without_id(issuer, method, send))

    def _with_or_without_id(
        self, issuer: str, method: str, send: Callable[[bool], _Steps[AuthResponse]]
    ) -> _Steps[AuthResponse]:
        """Make a token request in the way that ``issuer`` accepts, and record which it is.

        The official Python SDK's servers want the id of the client in the form, also beside Basic;
        others refuse that.
        """
        repeats_id = issuer in self._saved.repeating
        response = yield from send(repeats_id)
        if method == "client_secret_basic" and response.error in _NOT_AUTHENTICATED:
            other = yield from send(not repeats_id)
            if other.error not in _NOT_AUTHENTICATED:
                self._saved.set_repeats_id(issuer, not repeats_id)
                return other
        return response

    def _send_token_request(
        self,
        url: str,
        issuer: str,
        client: OAuthClient | None,
        method: str,
        form: dict[str, str],
        algorithms: tuple[str, ...],
        step: str,
        repeats_id: bool,
    ) -> _Steps[AuthResponse]:
        """Send a token request, once more if the server sends a DPoP nonce."""
        is_repeated = False
        while True:
            assertion = proof = None
            if client is not None and method == "private_key_jwt":
                assertion = yield from self._sign_assertion(client, issuer, algorithms)
            if self._key is not None:
                proof = cast("str", (yield self._proof(self._key, b"POST", url)))
            request = token_request(
                url,
                client,
                method,
                form,
                step=step,
                repeats_id=repeats_id,
                assertion=assertion,
                proof=proof,
            )
            response = yield from self._fetch(request)
            needs_nonce = response.error == "use_dpop_nonce" and response.nonce is not None
            if proof is None or not needs_nonce or is_repeated:
                break
            is_repeated = True
        return response

    def _read_tokens(self, response: AuthResponse) -> TokenResponse:
        found = read_tokens(response)
        if found.is_dpop != (self._key is not None):
            what = "sent a token that is " + ("bound to a key" if found.is_dpop else "not bound")
            raise response.failed(f"{what}, unlike what was requested", "dpop_mismatch")
        return found

    # Refresh

    def _refresh_expired(self, tokens: Tokens) -> _Steps[None]:
        """Refresh a token that has expired. If that is refused, go on without a token."""
        self._nearest = tokens.nearest
        if not (yield from self._refresh(tokens)):
            self._take(None)
            self._advance(AuthorizationEvent.FAILED)

    def _refresh_refused(
        self, resource: ProtectedResource, challenge: Challenge, attempt: Attempt
    ) -> _Steps[bool]:
        """Refresh a token that the MCP server refused. Return False if a new one is needed."""
        tokens = self.tokens
        if (
            tokens is None
            or tokens.refresh_token is None
            or not _is_issued_for(resource, tokens)
            or attempt.has_refreshed
            or not set(challenge.scopes) <= set(tokens.requested)  # a refresh cannot widen them
        ):
            return False
        attempt.has_refreshed = True
        self._advance(AuthorizationEvent.EXPIRED)
        has_token = yield from self._refresh(tokens)
        if not has_token:
            self._advance(AuthorizationEvent.REFUSED)
        return has_token

    def _refresh(self, tokens: Tokens) -> _Steps[bool]:
        """Refresh a token. Return False if a new authorization is needed.

        Authorization servers revoke all tokens of a login if one refresh token is used twice. So
        the lock covers reading the storage, the request, and writing the storage: of two processes,
        the second finds the new token of the first.
        """
        yield from self._lock()
        stored = yield from self._reload()
        if stored is None or stored.refresh_token is None:  # another process has logged out
            return self._refresh_impossible()
        is_newer = stored.access_token != tokens.access_token
        if is_newer and not stored.is_expired(self._wall_clock()):
            self._take(stored)
            self._advance(AuthorizationEvent.OBTAINED)
            return True
        tokens = stored
        client = self._client_of(tokens)
        if client is None and tokens.client_id is not None:
            return self._refresh_impossible()
        self._key = tokens.dpop_key
        form = {"grant_type": "refresh_token", "refresh_token": stored.refresh_token}
        if tokens.resource is not None:
            form["resource"] = tokens.resource
        response = yield from self._try_refresh(tokens, client, form)
        if response is None:
            return self._refresh_impossible()
        granted = tokens.granted if response.scopes is None else response.scopes
        renewed = attrs.evolve(
            tokens,
            access_token=response.access_token,
            refresh_token=response.refresh_token or tokens.refresh_token,
            lifetime=response.lifetime,
            expires_at=self._wall_clock() + response.lifetime,
            granted=granted,
        )
        yield from self._store(renewed)
        return True

    def _refresh_impossible(self) -> bool:
        self._unlock()
        return False

    def _try_refresh(
        self, tokens: Tokens, client: OAuthClient | None, form: dict[str, str]
    ) -> _Steps[TokenResponse | None]:
        """Make the request. Return None if the server refuses it for good, in whatever words.

        If the response is lost, the refresh token may be spent. It is tried once more.
        """
        was_lost = False
        while True:
            try:
                response = yield from self._request_token(
                    tokens.token_endpoint, tokens.issuer, client, tokens.auth_method, form
                )
                break
            except AuthorizationFailed as error:
                if was_lost or error.reason not in ("unreachable", "no_response"):
                    raise
                was_lost = True
        if response.status in _LATER or response.status >= 500:
            raise response.refused()
        try:
            return self._read_tokens(response)
        except AuthorizationFailed as error:
            if error.reason == "invalid_client":
                yield from self._forget_client(tokens)
            return None

    def _forget_client(self, tokens: Tokens) -> _Steps[None]:
        """Delete a registered client that its server does not know any more, under the lock.

        A login with it would end at a page of the server, which sends the person nowhere.
        """
        stored = self._saved.clients.get(tokens.issuer)
        is_it = stored is not None and stored.client_id == tokens.client_id
        if self._options.client is None and is_it:
            del self._saved.clients[tokens.issuer]
            yield from self._save()

    # Logout

    def _log_out(self) -> _Steps[None]:
        """Revoke the stored tokens, and delete them here even if they could not be revoked.

        The lock covers all of it: otherwise another process could refresh them meanwhile.
        """
        yield from self._lock()
        tokens, failure = (yield from self._reload()), None
        if tokens is not None:
            try:
                yield from self._revoke(tokens)
            except AuthorizationFailed as error:
                failure = error
            self._take(None)
            yield from self._save()
        if tokens is not None and failure is not None:
            kind = "access token" if tokens.refresh_token is None else "refresh token"
            raise AuthorizationFailed(
                f"The tokens were deleted here. {cut(tokens.issuer)} has not revoked the {kind}, "
                f"and may accept it until it expires: {failure}",
                reason="not_revoked",
                url=failure.url,
            ) from failure
        self._advance(AuthorizationEvent.FAILED)

    def _revoke(self, tokens: Tokens) -> _Steps[None]:
        """Revoke tokens at their issuer. Source: RFC 7009."""
        self._nearest = tokens.nearest
        client = self._client_of(tokens)
        if client is None and tokens.client_id is not None:
            text = f"the client {cut(tokens.client_id)!r} is not known here any more"
            raise AuthorizationFailed(text, reason="no_client")
        server = yield from self._find_metadata(tokens.issuer, for_code=False)
        url = server.revocation_endpoint
        if url is None:
            text = "its metadata name no revocation_endpoint"
            raise AuthorizationFailed(text, reason="no_revocation_endpoint")
        if origin_of(url) != origin_of(tokens.token_endpoint):
            # Metadata may name the login and the tokens of another issuer, to get them in the end.
            text = f"its metadata name a revocation_endpoint at another origin, {origin_of(url)}"
            raise AuthorizationFailed(text, reason="foreign_revocation_endpoint")
        form = {"token": tokens.access_token, "token_type_hint": "access_token"}
        if tokens.refresh_token is not None:  # its access tokens are revoked along with it
            form = {"token": tokens.refresh_token, "token_type_hint": "refresh_token"}
        response = yield from self._request_token(
            url,
            tokens.issuer,
            client,
            tokens.auth_method,
            form,
            server.signing_algorithms,
            step="the revocation",
        )
        if response.is_refusal(""):
            raise response.refused()

    # Signatures

    def _decide_dpop(
        self, resource: ProtectedResource, server: AuthorizationServer, challenge: Challenge
    ) -> _Steps[None]:
        """Make a key for DPoP, if the application or the server wants it."""
        is_wanted = self._options.dpop or resource.requires_dpop or challenge.scheme == "dpop"
        if not is_wanted:
            self._key = None
            return
        if DPOP_ALGORITHM not in server.dpop_algorithms:
            raise AuthorizationFailed(
                f"Authorization failed: DPoP is required, and the authorization server "
                f"{cut(server.issuer)} does not support it with {DPOP_ALGORITHM}",
                reason="dpop_unsupported",
            )
        tokens = self.tokens
        if tokens is not None and tokens.issuer == server.issuer and tokens.dpop_key is not None:
            self._key = tokens.dpop_key
        else:
            self._key = cast("dict[str, Any]", (yield MakeKey(DPOP_ALGORITHM)))

    def _sign_assertion(
        self, client: OAuthClient, issuer: str, algorithms: tuple[str, ...]
    ) -> _Steps[str]:
        algorithm = client.algorithm or next(
            (name for name in ALGORITHMS if name in algorithms), ALGORITHMS[0]
        )
        header, claims = client_assertion(
            client.client_id,
            issuer,
            algorithm=algorithm,
            key_id=client.key_id,
            jti=self._unique(),
            wall_time=self._wall_clock(),
        )
        assert client.private_key is not None, "OAuthClient checks that"
        return cast("str", (yield SignJwt(header, claims, client.private_key)))

    def _proof(
        self, key: dict[str, Any], method: bytes, url: str, access_token: str | None = None
    ) -> SignJwt:
        header, claims = dpop_proof(
            key,
            method,
            url,
            jti=self._unique(),
            wall_time=self._wall_clock(),
            nonce=self._nonces.get(origin_of(url)),
            access_token=access_token,
        )
        return SignJwt(header, claims, key)

    def _unique(self) -> str:
        return random_text(self._random(16))

    def _remember_nonce(self, url: str, headers: Headers) -> None:
        nonce = nonce_in(headers)
        if nonce is not None:
            origin = origin_of(url)
            self._nonces.pop(origin, None)
            self._nonces[origin] = nonce
            if len(self._nonces) > _MAX_NONCES:
                del self._nonces[next(iter(self._nonces))]


def _chars(scopes: tuple[str, ...]) -> int:
    """Return the characters of scopes as a ``scope`` parameter has them."""
    return len(" ".join(scopes))


def _is_issued_for(resource: ProtectedResource, tokens: Tokens) -> bool:
    """Return whether the server still names the issuer of the tokens, or still names none."""
    return resource.resource is None or any(
        is_same_issuer(issuer, tokens.issuer) for issuer in resource.servers
    )


def _no_metadata(
    who: str, tried: list[AuthResponse], more: str = "", *, reason: str = "no_metadata"
) -> AuthorizationFailed:
    places = ", ".join(f"{shown_url(each.request.url)} (HTTP {each.status})" for each in tried)
    text = f"Authorization failed: {who} has no metadata at {places}{more}"
    return AuthorizationFailed(text, reason=reason, url=tried[-1].request.url)


_NOT_BUSY = (AuthorizationState.IDLE, AuthorizationState.READY, AuthorizationState.CLOSED)

_NOT_FOUND = 404
"""The only status which says that there is no document."""

_UNFOUND = ("no_metadata", "unreachable", "no_response")
"""The reasons of errors which say that metadata was not found."""

_NOT_AUTHENTICATED = ("invalid_client", "invalid_request")
"""The errors of a token endpoint that does not accept how a client authenticates."""

_NO_CHALLENGE = Challenge("bearer")

_OF_SERVER = "the metadata of the authorization server"

_LATER = (408, 429)
"""The statuses of a refusal that says nothing about the refresh token, beside 500 and more."""
