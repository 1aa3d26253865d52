"""How a client finds a transport and a revision that the server speaks, and agrees on them.

A client that is given a URL does not know how old the server is. It begins with the newest way, and
what the server answers decides whether to go on to an older one. Old servers answer in every
possible way, or not at all, to ``server/discover``: all of that means that a handshake is needed. A
refusal that has nothing to do with transport or revision (authorization, overload, a failing
server) decides nothing: it is reported.

The opening is tried again, within ``connect_timeout``, while the server cannot be reached: it may
start a second after its client. A session that the server has forgotten is replaced. The first loss
is replaced at once. Further ones, without an answered request between them, wait longer and longer,
and after ``ReconnectPolicy.attempts`` of them the client closes, so that a server which forgets
every session is not asked for ever.

Each input returns what has to be done next. The table OPENING says which step may follow which.

Source: 2024-11-05 to 2025-11-25, basic/lifecycle: Initialization; 2025-03-26 basic/transports:
Backwards Compatibility, Session Management; 2025-11-25 likewise (400, 404, 405); 2026-07-28
basic/versioning; SEP-2575.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ..codecs import json
from ..codecs.headers import Headers
from ..codecs.jsonrpc import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from ..errors import (
    CallError,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    NegotiationFailed,
    RemoteProtocolError,
    RequestTimeout,
    SessionLost,
)
from ..events import Connected
from ..messages import ErrorResponse
from ..meta_keys import SERVER_INFO
from ..revisions import REVISIONS, of_era
from ..states import OPENING, ClientState, OpeningEvent, OpeningState, advance
from ..types import HTTP_SSE, STDIO, Era
from .http_heads import OUT_OF_REACH, Refusal
from .options import ClientOptions
from .outcomes import (
    Agreed,
    Confirm,
    Failed,
    Initialize,
    Lost,
    OpenEventStream,
    OpeningOutcome,
    Probe,
    Ready,
    Retry,
)
from .post import INITIALIZED
from .request import jsonrpc_error_from

DISCOVER = "server/discover"
INITIALIZE = "initialize"
_STREAM = "opening the event stream"

UNDECIDED = frozenset((401, 403, 407, 408, 413, 425, 429, 431))
"""Refusals that any server could give, whatever it speaks."""

MODERN_ERRORS = frozenset((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION))
"""JSON-RPC errors that only servers of revisions without a handshake give."""


# What an answer says about the server


class Discovered(enum.Enum):
    """What the answer to ``server/discover`` says about the server."""

    MODERN = enum.auto()
    """It does without a handshake, at a version that we share."""
    RETRY = enum.auto()
    """It does, but asks for another version: ask once more, at that one."""
    HANDSHAKE = enum.auto()
    """It needs a handshake; the version, if there is one, is what to offer."""
    FAIL = enum.auto()
    """It does without, and cannot be talked to."""


@attrs.frozen
class DiscoveryResult:
    """What an answer has told, and the version to go on with."""

    discovered: Discovered
    version: str | None = None
    is_disjoint: bool = False
    """None of the versions that it names, if it names any, is ours."""


def is_other_transport(status: int) -> bool:
    """Return whether a refusal of the first request says that the server speaks another transport.

    Other refusals may pass, or could come from any server.
    """
    return 400 <= status < 500 and status not in UNDECIDED


def classify_discover_response(answer: Any, ours: tuple[str, ...]) -> DiscoveryResult:
    """Return what an answer to ``server/discover`` says: a result, or an ErrorResponse.

    Only the three errors of the era are its errors; anything else comes from servers that do not
    know the method, and these answer as they like.
    """
    if isinstance(answer, ErrorResponse):
        if answer.code not in MODERN_ERRORS:
            return DiscoveryResult(Discovered.HANDSHAKE)
        if answer.code != UNSUPPORTED_VERSION:
            return DiscoveryResult(Discovered.FAIL)
        data = json.as_object(answer.data) or {}
        return _choose(data.get("supported"), ours, Discovered.RETRY, otherwise=Discovered.FAIL)
    result = json.as_object(answer) or {}
    served = result.get("supportedVersions")
    return _choose(served, ours, Discovered.MODERN, otherwise=Discovered.HANDSHAKE)


def no_common_version(error: ErrorResponse, ours: tuple[str, ...], method: str) -> CallError:
    """Return the exception for a server that has named its versions, when none of them is ours."""
    theirs = _listed((json.as_object(error.data) or {}).get("supported"))
    text = f"The server speaks {theirs or 'other versions'}, and not {', '.join(ours)}"
    if not theirs:
        text += f": {error.message} (code {error.code})"
    return NegotiationFailed(text, method=method)


def _listed(versions: Any) -> str:
    """Return the versions that a server names, for people; empty where it names none."""
    named = versions if json.is_array(versions) else []
    return ", ".join(str(name)[:40] for name in named[:20])


def _choose(
    served: Any, ours: tuple[str, ...], modern: Discovered, *, otherwise: Discovered
) -> DiscoveryResult:
    """Return the newest version that both speak: without a handshake if there is such a one."""
    names = served if json.is_array(served) else []
    for era, discovered in ((Era.MODERN, modern), (Era.LEGACY, Discovered.HANDSHAKE)):
        mutual = [name for name in of_era(ours, era) if name in names]
        if mutual:
            return DiscoveryResult(discovered, mutual[-1])
    return DiscoveryResult(otherwise, is_disjoint=True)


# The opening


class _Probing(enum.Enum):
    """Whether a server is asked by ``server/discover`` before a handshake is tried."""

    DUE = enum.auto()
    SKIPPED = enum.auto()
    """It is remembered as one that needs a handshake; if that fails, it is asked after all."""
    UNANSWERED = enum.auto()
    """It has left the question unanswered in this opening."""
    NEVER = enum.auto()
    """Its process has ended because of the question."""


_CLIENT_STATES = {
    OpeningState.NEW: ClientState.NEW,
    OpeningState.CONFIRMING: ClientState.CONFIRMING,
    OpeningState.READY: ClientState.READY,
    OpeningState.CLOSING: ClientState.CLOSING,
    OpeningState.CLOSED: ClientState.CLOSED,
}


@attrs.define(eq=False, repr=False)
class Opening:
    """Decides what to ask a server next, from nothing to an agreement, and again after a loss."""

    _options: ClientOptions
    _jitter: Callable[[], float]
    _target: str
    """What the application has named: a URL, or a command."""
    server: str
    """The same, for people; changes with a redirect."""
    transport: str = attrs.field(default="", init=False)
    """The name of the transport in use."""
    state: OpeningState = attrs.field(default=OpeningState.NEW, init=False)
    deadline: float = attrs.field(default=math.inf, init=False)
    """When :meth:`due` is to be called, in seconds on the machine's clock."""
    _request_id: int | None = attrs.field(default=None, init=False)
    """Of the latest ``server/discover`` or ``initialize``."""
    _untried: list[str] = attrs.field(factory=list[str], init=False)
    """Further transports."""
    _attempts: list[tuple[str, CallError]] = attrs.field(
        factory=list[tuple[str, CallError]], init=False
    )
    """The transports that were tried, and how they failed."""
    _failures: list[CallError] = attrs.field(factory=list[CallError], init=False)
    """How the attempts at this opening have failed, which were made by the transport in use."""
    _ends: float = attrs.field(default=0.0, init=False)
    """When the opening must be done, in seconds on the machine's clock."""
    _probing: _Probing = attrs.field(default=_Probing.DUE, init=False)
    _has_probed_again: bool = attrs.field(default=False, init=False)
    """True if the server was asked at a version that it has named itself."""
    _is_era_certain: bool = attrs.field(default=True, init=False)
    """False if the server has answered ``server/discover`` by a failure, which any server could."""
    _result: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    """Of ``initialize``."""
    _agreed: Agreed = attrs.field(factory=Agreed, init=False)
    _why_unconfirmed: str = attrs.field(default="no answer", init=False)
    _losses: int = attrs.field(default=0, init=False)
    """Sessions that the server has forgotten since it answered a request."""
    _streams_lost: int = attrs.field(default=0, init=False)
    """Of HTTP+SSE, since the last message of the server."""
    _stream_wait: float = attrs.field(default=0.0, init=False)
    """Seconds that the server wants us to wait before the next one."""

    @property
    def client_state(self) -> ClientState:
        """How the client stands, for the application."""
        return _CLIENT_STATES.get(self.state, ClientState.CONNECTING)

    @property
    def is_closed(self) -> bool:
        """True if nothing can be said any more."""
        return self.state in (OpeningState.CLOSING, OpeningState.CLOSED)

    @property
    def is_ready(self) -> bool:
        """True if calls can be sent."""
        return self.state is OpeningState.READY

    @property
    def is_shared(self) -> bool:
        """True if all messages of the server come on one stream."""
        return self.transport in (STDIO, HTTP_SSE)

    # Beginning

    def start(self, transports: Sequence[str], now: float) -> OpeningOutcome:
        """Begin with the first of the transports."""
        self.transport, *self._untried = transports
        return self._connect(now)

    def sent(self, request_id: int) -> None:
        """Record the id of the request that was made for a Probe or Initialize."""
        self._request_id = request_id

    def endpoint_received(self, now: float) -> OpeningOutcome:
        """Go on: the event stream of HTTP+SSE has named where messages go."""
        return self._begin(now)

    def due(self, now: float, printed: tuple[str, ...]) -> OpeningOutcome:
        """Conclude what follows the deadline.

        ``printed``: what the server process has printed for people, if there is one.
        """
        match self.state:
            case OpeningState.BACKING_OFF:
                return self._await_endpoint(now) if self._is_http_sse else self._begin(now)
            case OpeningState.PROBING | OpeningState.PROBING_AGAIN:
                # Old servers may say nothing at all to what they do not know. They get the full
                # time for the handshake, and are not asked again in this opening.
                self._probing = _Probing.UNANSWERED
                self._ends += self._options.capped_probe_timeout
                limit = f"{self._options.capped_probe_timeout:g} s"
                return self._require_handshake(f"{DISCOVER} got no answer within {limit}", now)
            case OpeningState.AWAITING_ENDPOINT:
                seconds = self._options.connect_timeout
                text = f"{self._stream} brought no endpoint event within {seconds:g} s"
                error = RequestTimeout(text, seconds=seconds, method=_STREAM, request_id=None)
                return self._stream_failed(error, now)
            case _:
                return self._timed_out(now, printed)

    # What the server answers to server/discover

    def discovered(self, answer: Any, http_status: int | None, now: float) -> OpeningOutcome:
        """Conclude what follows an answer to ``server/discover``: a result or an ErrorResponse."""
        found = classify_discover_response(answer, self._options.versions)
        if isinstance(answer, ErrorResponse):
            return self._discovery_denied(answer, found, http_status, now)
        if found.discovered is not Discovered.MODERN:
            versions = _listed((json.as_object(answer) or {}).get("supportedVersions"))
            said = (
                f"it speaks {versions}"
                if versions
                else f"the answer to {DISCOVER} names no version"
            )
            return self._after_discovery(found, said, now)
        version, result = str(found.version), json.as_object(answer) or {}
        self._agreed = Agreed(REVISIONS[version])
        meta = json.as_object(result.get("_meta")) or {}
        info = json.as_object(meta.get(SERVER_INFO)) or json.as_object(result.get("serverInfo"))
        return self._ready(Era.MODERN, info or {}, result)

    def discovery_unreadable(self, error: RemoteProtocolError, now: float) -> OpeningOutcome:
        """Conclude what follows an answer that cannot be read: it comes from an old server."""
        return self._require_handshake(
            f"the answer to {DISCOVER} breaks the protocol: {error.message}", now
        )

    def discovery_lost(self, lost: Lost, now: float) -> OpeningOutcome:
        """Conclude what follows a response that ended without the answer.

        A server out of reach says nothing about itself; one that does not answer is old.
        """
        if lost.was_complete:
            return self._require_handshake(f"{DISCOVER} was not answered", now)
        text = f"{DISCOVER} was not answered by {self.server}: {lost.reason}"
        return self._unreachable(self._error(Disconnected, DISCOVER, text), now, wait=0.0)

    def discovery_refused(self, refusal: Refusal, now: float) -> OpeningOutcome:
        """Conclude what follows a refusal of ``server/discover``.

        One with an error of this era says something; after others a handshake is tried. Where any
        server could refuse like that, it says nothing about this one: if the handshake works, it is
        not remembered, and if there can be none, the refusal is what is reported.
        """
        wait = refusal.retry_after if refusal.status in OUT_OF_REACH else None
        decides_nothing = refusal.status in UNDECIDED or refusal.status >= 500
        if refusal.error is not None and refusal.error.code in MODERN_ERRORS:
            found = classify_discover_response(refusal.error, self._options.versions)
            return self._discovery_denied(refusal.error, found, refusal.status, now)
        if wait or (decides_nothing and not self._options.handshake_versions):
            return self._unreachable(refusal.as_error(DISCOVER, self._request_id), now, wait=wait)
        self._is_era_certain = not decides_nothing
        return self._require_handshake(refusal.message, now)

    # What it answers to initialize, and to notifications/initialized

    def initialized(
        self, answer: Any, http_status: int | None, response_headers: Headers, now: float
    ) -> OpeningOutcome:
        """Conclude what follows an answer to ``initialize``: a result or an ErrorResponse."""
        if isinstance(answer, ErrorResponse):
            return self._initialize_denied(answer, http_status, now)
        from .legacy.handshake import agreement  # only here, so that the folder can be deleted

        result = json.as_object(answer) or {}
        agreed = agreement(
            result, response_headers, self._options, self.transport, self._request_id
        )
        if isinstance(agreed, CallError):
            return self._unreachable(agreed, now)
        self._result, self._agreed = result, agreed
        self._advance(OpeningEvent.CONFIRM)
        return Confirm(agreed)

    def initialize_unreadable(self, error: RemoteProtocolError, now: float) -> OpeningOutcome:
        """Conclude what follows an answer that cannot be read."""
        text = f"The answer to {INITIALIZE} from {self.server} breaks the protocol: "
        failure = self._error(InvalidResponse, INITIALIZE, text + error.message)
        failure.__cause__ = error
        return self._unreachable(failure, now)

    def initialize_lost(self, lost: Lost, now: float) -> OpeningOutcome:
        """Conclude what follows a response that ended without the answer."""
        text = f"{INITIALIZE} was not answered by {self.server}: {lost.reason}"
        error = self._error(Disconnected, INITIALIZE, text)
        return self._unreachable(error, now, wait=None if lost.was_complete else 0.0)

    def initialize_refused(self, refusal: Refusal, now: float) -> OpeningOutcome:
        """Conclude what follows a refusal: no MCP server, or one that does not want us."""
        error = refusal.error
        if error is not None and (error.id == self._request_id or error.code in MODERN_ERRORS):
            return self._initialize_denied(error, refusal.status, now)
        return self._unreachable(
            refusal.as_error(INITIALIZE, self._request_id),
            now,
            try_next=is_other_transport(refusal.status),
            wait=refusal.retry_after if refusal.status in OUT_OF_REACH else None,
        )

    def confirmed(self) -> OpeningOutcome:
        """Open the session: the server has taken ``notifications/initialized``."""
        info = json.as_object(self._result.get("serverInfo")) or {}
        return self._ready(Era.LEGACY, info, self._result)

    def confirm_delayed(self, reason: str) -> None:
        """Record why the server has not taken ``notifications/initialized`` so far."""
        self._why_unconfirmed = reason

    def unconfirmed(self, reason: str, now: float) -> OpeningOutcome:
        """Conclude what follows a server that does not take ``notifications/initialized``."""
        text = f"{self.server} did not take {INITIALIZED.method}: {reason}"
        return self._unreachable(self._error(Disconnected, INITIALIZE, text), now)

    # What comes of the event stream of HTTP+SSE

    def stream_invalid(self, what: str, now: float, *, was_read: bool = True) -> OpeningOutcome:
        """Conclude what follows a stream that does not begin as it should.

        ``was_read``: False if it cannot be read at all.
        """
        self._streams_lost += not was_read
        return self._stream_failed(self._stream_error(InvalidResponse, what), now)

    def stream_ended(self, reason: str | None, now: float) -> OpeningOutcome:
        """Conclude what follows the end of a stream that has not named an endpoint."""
        self._streams_lost += 1
        error = self._stream_error(Disconnected, f"failed: {reason or 'the server closed it'}")
        is_unreachable = reason is not None
        return self._stream_failed(
            error,
            now,
            try_next=not is_unreachable,
            is_retryable=True,
            is_unreachable=is_unreachable,
        )

    def stream_refused(self, refusal: Refusal, now: float) -> OpeningOutcome:
        """Conclude what follows a refusal of the stream."""
        self._streams_lost += 1
        self._stream_wait = refusal.retry_after
        return self._stream_failed(
            refusal.as_error(_STREAM, None),
            now,
            try_next=refusal.status not in UNDECIDED and refusal.status < 500,
            is_retryable=refusal.is_retryable,
            is_unreachable=refusal.status in OUT_OF_REACH,
        )

    def stream_lost(self, reason: str, now: float) -> OpeningOutcome:
        """Conclude what follows the end of the stream that was the session.

        Failed if no session can be opened in its place.
        """
        self._streams_lost += 1
        most = self._options.reconnect.max_attempts
        if self._streams_lost > most:
            why = f"failed: given up after {most} attempts without any message: {reason}"
            return self._stream_failed(self._stream_error(Disconnected, why), now)
        return self._connect(now)

    def stream_message_received(self) -> None:
        """Record a message on the stream."""
        if self.is_ready:
            self._streams_lost = 0

    # What ends a session, and all

    def reset_session_losses(self) -> None:
        """Record that the server has answered in this session."""
        self._losses = 0

    def session_lost(self, refusal: Refusal, now: float) -> OpeningOutcome:
        """Open a new session: the server has forgotten the one there was (404).

        Failed if it has forgotten too many in a row. Source: 2025-11-25, basic/transports, Session
        Management: the client MUST do so.
        """
        losses, policy = self._losses, self._options.reconnect
        self._losses += 1
        if losses > policy.max_attempts:
            text = f"The server has forgotten {self._losses} sessions in a row: {refusal.message}"
            return Failed(SessionLost(text))
        if losses == 0:
            return self._connect(now)
        self._failures.clear()
        delay = policy.delay(losses, refusal.retry_after, self._jitter())
        return self._back_off(delay, losses, refusal.message, now)

    def version_refused(self, now: float) -> OpeningOutcome:
        """Begin again: the server does not speak the version in force any more."""
        self._failures.clear()
        return self._begin(now)

    def restarts_process(self) -> bool:
        """Return whether the server process has ended because it was asked for its version.

        Some servers of a handshake revision exit when their first message is not ``initialize``.
        That is no failure: the process is started once more, and is not asked again.
        """
        was_asked = self.state in (OpeningState.PROBING, OpeningState.PROBING_AGAIN)
        may_restart = self._probing is not _Probing.NEVER and self._options.handshake_versions
        if not was_asked or not may_restart:
            return False
        self._probing = _Probing.NEVER
        return True

    def process_restarted(self, now: float) -> OpeningOutcome:
        """Go on with the new process."""
        return self._begin(now)

    def close(self) -> None:
        """Record that the client ends the session."""
        self._advance(OpeningEvent.CLOSE)
        self.deadline = math.inf

    def closed(self) -> None:
        """Record that the session has been ended, or there was none."""
        self._advance(OpeningEvent.DONE)

    # Steps

    @property
    def _is_http_sse(self) -> bool:
        return self.transport == HTTP_SSE

    @property
    def _stream(self) -> str:
        return f"{_STREAM} (GET {self.server})"

    def _connect(self, now: float) -> OpeningOutcome:
        """Begin an opening: its time runs from now on."""
        self._failures.clear()
        self._probing = _Probing.DUE
        self._ends = now + self._options.connect_timeout
        if not self._is_http_sse:
            return self._begin(now)
        if not self._streams_lost:
            return self._await_endpoint(now)
        policy, wait = self._options.reconnect, self._stream_wait
        self._stream_wait = 0.0
        delay = policy.delay(self._streams_lost, wait, self._jitter())
        return self._back_off(delay, self._streams_lost, "the event stream is lost", now)

    def _begin(self, now: float) -> OpeningOutcome:
        """Ask the first question: messages can be sent."""
        if not self._failures:
            self._ends = now + self._options.connect_timeout
        self._is_era_certain = True
        if self._probing is _Probing.SKIPPED:
            self._probing = _Probing.DUE
        versions = self._options.modern_versions
        if self._probing is not _Probing.DUE or self._is_http_sse or not versions:
            return self._initialize(None)
        is_known_as_old = self._options.known_servers.era(self._target) is Era.LEGACY
        if is_known_as_old and self._options.handshake_versions:
            self._probing = _Probing.SKIPPED
            return self._initialize(None)
        self._has_probed_again = False
        return self._probe(versions[-1], OpeningEvent.PROBE, now)

    def _probe(self, version: str, event: OpeningEvent, now: float) -> Probe:
        self._advance(event)
        self.deadline = now + self._options.capped_probe_timeout
        return Probe(version)

    def _initialize(self, version: str | None) -> Initialize:
        """Offer a version, or our newest."""
        self._advance(OpeningEvent.INITIALIZE)
        self.deadline, self._result, self._why_unconfirmed = self._ends, {}, "no answer"
        return Initialize(version or self._options.handshake_versions[-1])

    def _await_endpoint(self, now: float) -> OpenEventStream:
        self._advance(OpeningEvent.LOCATE)
        self.deadline = now + self._options.connect_timeout
        return OpenEventStream()

    def _back_off(self, delay: float, attempt: int, reason: str, now: float) -> Retry:
        self._advance(OpeningEvent.BACK_OFF)
        self.deadline = now + delay
        return Retry(delay, attempt, reason)

    def _ready(self, era: Era, info: dict[str, Any], result: dict[str, Any]) -> Ready:
        self._advance(OpeningEvent.OPEN)
        self.deadline = math.inf
        self._has_probed_again = False
        self._untried.clear()
        self._attempts.clear()
        self._failures.clear()
        if self._is_era_certain or era is Era.MODERN:
            self._options.known_servers.remember(self._target, self.transport, era)
        instructions = result.get("instructions")
        event = Connected(
            transport=self.transport,
            version=self._agreed.revision.name,
            server_info=info,
            capabilities=json.as_object(result.get("capabilities")) or {},
            instructions=instructions if isinstance(instructions, str) else None,
        )
        return Ready(self._agreed, event)

    def _require_handshake(self, said: str, now: float) -> OpeningOutcome:
        return self._after_discovery(DiscoveryResult(Discovered.HANDSHAKE), said, now)

    def _after_discovery(self, found: DiscoveryResult, said: str, now: float) -> OpeningOutcome:
        """Go on. ``said``: what the server has said, for a client that cannot."""
        if found.discovered is Discovered.RETRY:
            return self._probe_again(str(found.version), now)
        if self._options.handshake_versions:
            return self._initialize(found.version)
        ours = ", ".join(self._options.versions)
        text = f"The server needs a handshake, which {ours} does without: {said}"
        return self._unreachable(self._error(NegotiationFailed, DISCOVER, text), now)

    def _probe_again(self, version: str, now: float) -> Probe:
        self._has_probed_again = True
        if self._probing is _Probing.SKIPPED:
            self._probing = _Probing.DUE
        return self._probe(version, OpeningEvent.PROBE_AGAIN, now)

    def _discovery_denied(
        self, error: ErrorResponse, found: DiscoveryResult, http_status: int | None, now: float
    ) -> OpeningOutcome:
        if found.discovered is Discovered.RETRY and self._has_probed_again:
            found = DiscoveryResult(Discovered.FAIL)
        if found.discovered is not Discovered.FAIL:
            return self._after_discovery(found, f"{error.message} (code {error.code})", now)
        if found.is_disjoint:
            failure = no_common_version(error, self._options.versions, DISCOVER)
            return self._unreachable(failure, now)
        return self._unreachable(
            jsonrpc_error_from(error, DISCOVER, self._request_id, http_status), now
        )

    def _initialize_denied(
        self, error: ErrorResponse, http_status: int | None, now: float
    ) -> OpeningOutcome:
        found = classify_discover_response(error, self._options.versions)
        may_probe = not self._is_http_sse and not self._has_probed_again
        if found.discovered is Discovered.RETRY and may_probe:  # it was slow to say what it is
            return self._probe_again(str(found.version), now)
        if found.discovered is Discovered.FAIL and found.is_disjoint:
            return self._unreachable(
                no_common_version(error, self._options.versions, INITIALIZE), now
            )
        return self._unreachable(
            jsonrpc_error_from(error, INITIALIZE, self._request_id, http_status), now
        )

    def _timed_out(self, now: float, printed: tuple[str, ...]) -> OpeningOutcome:
        """Conclude what follows a server that is silent.

        Source: basic/utilities/cancellation: ``initialize`` is never cancelled.
        """
        seconds = self._options.connect_timeout
        text = f"{INITIALIZE} got no answer from {self.server} within {seconds:g} s"
        if self.state is OpeningState.CONFIRMING:
            method, why = INITIALIZED.method, self._why_unconfirmed
            text = f"{self.server} did not take {method} within {seconds:g} s: {why}"
        error = RequestTimeout(
            text + (":" if printed else ""),
            seconds=seconds,
            method=INITIALIZE,
            request_id=self._request_id,
            lines=printed,
        )
        return self._unreachable(error, now)

    def _stream_failed(
        self,
        error: CallError,
        now: float,
        *,
        try_next: bool = True,
        is_retryable: bool = False,
        is_unreachable: bool = False,
    ) -> OpeningOutcome:
        """Conclude what follows an event stream that is none.

        Args:
            error: why.
            now: seconds on the machine's clock.
            try_next: the server may speak another transport.
            is_retryable: it may do so while a stream that was lost is replaced.
            is_unreachable: the server cannot be reached, so the first stream is retried, too.
        """
        is_new = self._streams_lost <= 1
        if (
            is_retryable
            and not is_new
            and self._streams_lost <= self._options.reconnect.max_attempts
        ):
            return self._connect(now)
        wait, self._stream_wait = self._stream_wait, 0.0
        if is_new:
            self._streams_lost = 0
        wait_at_least = wait if is_new and is_unreachable else None
        return self._unreachable(error, now, try_next=try_next, wait=wait_at_least)

    def _unreachable(
        self,
        error: CallError,
        now: float,
        *,
        try_next: bool = False,
        wait: float | None = None,
    ) -> OpeningOutcome:
        """Conclude what follows a transport that does not work.

        Args:
            error: how it failed.
            now: seconds on the machine's clock.
            try_next: the server may speak another transport.
            wait: seconds to wait at least before the same is tried again; None if that would be of
                no use.
        """
        if wait is not None and (again := self._try_again(error, wait, now)) is not None:
            return again
        if self._failures:
            error.note_attempts([failure for failure in self._failures if failure is not error])
        self._attempts.append((self.transport, error))
        is_record_wrong = try_next or isinstance(error, JsonRpcError | NegotiationFailed)
        if is_record_wrong:
            self._options.known_servers.forget(self._target)
        if is_record_wrong and self._probing is _Probing.SKIPPED:
            return self._begin(now)
        if try_next and self._untried:
            self.transport = self._untried.pop(0)
            return self._connect(now)
        if len(self._attempts) == 1:
            return Failed(error)
        lines = [f"- {name}: {attempt}" for name, attempt in self._attempts]
        text = f"No transport of MCP works at {self.server}:"
        attempts = tuple(attempt for _, attempt in self._attempts)
        return Failed(NegotiationFailed(text, attempts=attempts, lines=lines))

    def _try_again(self, error: CallError, wait: float, now: float) -> Retry | None:
        """Try the opening again after a while; None if there is no time left for that.

        At least half of the time that is left is kept for the attempt.
        """
        policy, left = self._options.reconnect, self._ends - now
        if wait >= left or len(self._failures) >= policy.max_attempts:
            return None
        self._failures.append(error)
        delay = policy.delay(len(self._failures), wait, self._jitter())
        return self._back_off(min(delay, max(wait, left / 2)), len(self._failures), str(error), now)

    def _error(self, kind: type[CallError], method: str, text: str) -> CallError:
        return kind(text, method=method, request_id=self._request_id)

    def _stream_error(self, kind: type[CallError], what: str) -> CallError:
        return kind(f"{self._stream} {what}", method=_STREAM)

    def _advance(self, event: OpeningEvent) -> None:
        self.state = advance(OPENING, self.state, event)
