"""Find a transport and a revision that the server supports, and open sessions.

A client with a URL does not know how old the server is. It tries the newest transport and revision
first, and the server's response decides whether to try an older one. Old servers respond to
``server/discover`` in any way, or not at all; every such response means that a handshake is needed.
A refusal that is independent of transport and revision (authorization, overload, a server error)
decides nothing and is reported.

While the server cannot be reached, the opening is repeated within ``connect_timeout``, because the
server may start later than its client. If the server discards a session, the client opens a new
one, the first time at once. If the server discards several sessions without a response between
them, the delay grows, and after ``ReconnectPolicy.max_attempts`` of them the client closes.

Each method for an input returns what the client must do next. The table OPENING lists the
transitions.

Source: 2024-11-05 to 2025-11-25, basic/lifecycle: Initialization; 2025-03-26 basic/transports:
Backwards Compatibility, Session Management; 2025-11-25 likewise (400, 404, 405); 2026-07-28
basic/versioning; SEP-2575.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from ..codecs import json
from ..codecs.headers import Headers
from ..codecs.jsonrpc import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from ..errors import (
    AuthorizationFailed,
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
from ..http import Unsent
from ..messages import ErrorResponse, Response
from ..meta_keys import SERVER_INFO
from ..revisions import REVISIONS, of_era
from ..states import OPENING, ClientState, OpeningEvent, OpeningState, advance
from ..types import HTTP_SSE, STDIO, Era, assert_never
from .attempts import LOCAL_PATIENCE
from .http_heads import OUT_OF_REACH, SESSION_NOT_FOUND, Refusal
from .options import ClientOptions
from .outcomes import (
    Agreed,
    Confirm,
    Ended,
    Failed,
    Initialize,
    Lost,
    NoEndpoint,
    OpenEventStream,
    OpeningOutcome,
    OwnAnswer,
    Probe,
    Ready,
    Refused,
    Retry,
)
from .post import INITIALIZED
from .request import jsonrpc_error_from

_READY: Final = OpeningState.READY
_OVER: Final = (OpeningState.CLOSING, OpeningState.CLOSED)

DISCOVER = "server/discover"
INITIALIZE = "initialize"
_STREAM = "opening the event stream"

_BAD_REQUEST = 400
UNDECIDED = frozenset((401, 403, 407, 408, 413, 425, 429, 431))
"""Refusals that a server of any revision or transport can send."""

MODERN_ERRORS = frozenset((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION))
"""JSON-RPC errors that only servers of revisions without a handshake send."""


_VERSION = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}\b")
_MAX_TEXT = 2000
"""Characters of a refusal in which versions are looked for."""


# Classification of responses


class Discovered(enum.Enum):
    """What the response to ``server/discover`` means."""

    MODERN = enum.auto()
    """The server needs no handshake, and supports a version of ours."""
    RETRY = enum.auto()
    """The server needs no handshake, but another version. Send ``server/discover`` with that."""
    HANDSHAKE = enum.auto()
    """The server needs a handshake. Offer the version of the result, if there is one."""
    FAIL = enum.auto()
    """The server needs no handshake, but sent another error."""
    DISJOINT = enum.auto()
    """The server needs no handshake, and lists no version of ours."""


@attrs.frozen
class DiscoveryResult:
    """What a response to ``server/discover`` means, and the version to continue with."""

    discovered: Discovered
    version: str | None = None


def is_other_transport(status: int) -> bool:
    """Return whether a refusal of the first request means that the server has another transport.

    Other refusals are temporary, or any server can send them.
    """
    return 400 <= status < 500 and status not in UNDECIDED


def classify_discover_response(response: Any, ours: tuple[str, ...]) -> DiscoveryResult:
    """Return what a result or error response to ``server/discover`` means.

    Only the three errors of 2026-07-28 show that the server needs no handshake. Servers that do not
    know the method send any other response.
    """
    if isinstance(response, ErrorResponse):
        if response.code not in MODERN_ERRORS:
            return DiscoveryResult(Discovered.HANDSHAKE)
        if response.code != UNSUPPORTED_VERSION:
            return DiscoveryResult(Discovered.FAIL)
        data = json.as_object(response.data) or {}
        return _choose(data.get("supported"), ours, Discovered.RETRY, otherwise=Discovered.DISJOINT)
    result = json.as_object(response) or {}
    served = result.get("supportedVersions")
    return _choose(served, ours, Discovered.MODERN, otherwise=Discovered.HANDSHAKE)


def no_common_version(error: ErrorResponse, ours: tuple[str, ...], method: str) -> CallError:
    """Return the exception for a server that supports none of our versions."""
    theirs = _listed((json.as_object(error.data) or {}).get("supported"))
    text = f"The server speaks {theirs or 'other versions'}, and not {', '.join(ours)}"
    if not theirs:
        text += f": {error.message} (code {error.code})"
    return NegotiationFailed(text, method=method)


def _listed(versions: Any) -> str:
    """Return the versions in a list of the server as text; empty if there are none."""
    named = versions if json.is_array(versions) else []
    return ", ".join(str(name)[:40] for name in named[:20])


def _choose(
    served: Any, ours: tuple[str, ...], modern: Discovered, *, otherwise: Discovered
) -> DiscoveryResult:
    """Return the newest common version; one without a handshake is preferred."""
    names = served if json.is_array(served) else []
    for era, discovered in ((Era.MODERN, modern), (Era.LEGACY, Discovered.HANDSHAKE)):
        mutual = [name for name in of_era(ours, era) if name in names]
        if mutual:
            return DiscoveryResult(discovered, mutual[-1])
    return DiscoveryResult(otherwise)


# The opening


class _Probing(enum.Enum):
    """Whether to send ``server/discover`` before the handshake."""

    DUE = enum.auto()
    SKIPPED = enum.auto()
    """The server is recorded as one that needs a handshake. Probe it if the handshake fails."""
    UNANSWERED = enum.auto()
    """The server has not responded to ``server/discover`` in this opening."""
    NEVER = enum.auto()
    """The server process has exited on ``server/discover``."""


_CLIENT_STATES = {
    OpeningState.NEW: ClientState.NEW,
    OpeningState.CONFIRMING: ClientState.CONFIRMING,
    OpeningState.READY: ClientState.READY,
    OpeningState.CLOSING: ClientState.CLOSING,
    OpeningState.CLOSED: ClientState.CLOSED,
}


@attrs.define(eq=False, repr=False)
class _OpeningTime:
    """The deadlines of an opening, which stand still while a request waits for authorization."""

    deadline: float = math.inf
    """Time when the present step is over, in seconds on the machine's clock."""
    ends: float = 0.0
    """Time when the opening times out, in seconds on the machine's clock."""
    _paused_at: float | None = attrs.field(default=None, init=False)
    """Time since which a request waits for authorization; None if none does."""

    def pause(self, now: float) -> bool:
        """Stop the clock. Return False if it is stopped already."""
        if self._paused_at is not None:
            return False
        self._paused_at = now
        return True

    def resume(self, now: float) -> bool:
        """Move the deadlines by the time of the pause. Return False if there was none."""
        if self._paused_at is None:
            return False
        self.deadline += now - self._paused_at
        self.ends += now - self._paused_at
        self._paused_at = None
        return True

    def forget_pause(self) -> None:
        """End a pause, and leave the deadlines."""
        self._paused_at = None


@attrs.define(eq=False, repr=False)
class _Handshake:
    """One ``initialize`` and what came of it."""

    offered: str = ""
    """The version in the request."""
    result: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    """The result; empty before there is one."""
    agreed: Agreed = attrs.field(factory=Agreed, init=False)
    why_unconfirmed: str = attrs.field(default="no response", init=False)
    """Why the server has not accepted ``notifications/initialized`` so far."""


@attrs.define(eq=False, repr=False)
class Opening:
    """Decides which request of the opening comes next, also after the loss of a session."""

    _options: ClientOptions
    _jitter: Callable[[], float]
    _target: str
    """The URL or command that the application gave."""
    server: str
    """The server as error texts name it: its URL, after redirects, or "the server process"."""
    _is_local: bool
    """True if the URL is of this machine."""
    transport: str = attrs.field(default="", init=False)
    """The name of the transport in use."""
    state: OpeningState = attrs.field(default=OpeningState.NEW, init=False)
    _time: _OpeningTime = attrs.field(factory=_OpeningTime, init=False)
    _request_id: int | None = attrs.field(default=None, init=False)
    """The id of the latest ``server/discover`` or ``initialize``."""
    _untried: list[str] = attrs.field(factory=list[str], init=False)
    """The transports that were not tried yet."""
    _attempts: list[tuple[str, CallError]] = attrs.field(
        factory=list[tuple[str, CallError]], init=False
    )
    """The transports that failed, each with its error."""
    _failures: list[CallError] = attrs.field(factory=list[CallError], init=False)
    """The errors of the earlier attempts of this opening, on the transport in use."""
    _probing: _Probing = attrs.field(default=_Probing.DUE, init=False)
    _has_probed_again: bool = attrs.field(default=False, init=False)
    """True if ``server/discover`` was repeated with a version that the server listed."""
    _is_era_certain: bool = attrs.field(default=True, init=False)
    """False if ``server/discover`` was refused in a way that shows nothing about the era."""
    _handshake: _Handshake = attrs.field(factory=_Handshake, init=False)
    _losses: int = attrs.field(default=0, init=False)
    """The number of sessions that the server discarded since its last response to a call."""
    _streams_lost: int = attrs.field(default=0, init=False)
    """The number of event streams of HTTP+SSE lost since the server's last message."""
    _stream_wait: float = attrs.field(default=0.0, init=False)
    """The ``Retry-After`` of the last refusal of the event stream, in seconds."""

    @property
    def client_state(self) -> ClientState:
        """The state of the client, for the application."""
        return _CLIENT_STATES.get(self.state, ClientState.CONNECTING)

    @property
    def is_closed(self) -> bool:
        """True if the client is closing or closed."""
        return self.state in _OVER

    @property
    def is_ready(self) -> bool:
        """True if calls can be sent."""
        return self.state is _READY

    @property
    def deadline(self) -> float:
        """When :meth:`due` is to be called, in seconds on the machine's clock."""
        return self._time.deadline

    # Beginning

    def start(self, transports: Sequence[str], now: float) -> OpeningOutcome:
        """Start the opening with the first of the transports."""
        self.transport, *self._untried = transports
        return self._connect(now)

    def pause(self, now: float) -> bool:
        """Stop the clock: the request of the opening waits for authorization.

        Returns False if it is stopped already, or the session is open.
        """
        return not self.is_ready and self._time.pause(now)

    def resume(self, now: float) -> bool:
        """Move the deadlines by the time of the pause. Returns False if there was none."""
        return self._time.resume(now)

    def forget_pause(self) -> None:
        """End a pause with its request: the next one has deadlines of its own."""
        self._time.forget_pause()

    def sent(self, request_id: int) -> None:
        """Record the id of the request that was sent for a Probe or Initialize."""
        self._request_id = request_id

    def endpoint_received(self, now: float) -> OpeningOutcome:
        """Continue after the endpoint event of HTTP+SSE."""
        return self._begin(now)

    def due(self, now: float, printed: tuple[str, ...]) -> OpeningOutcome:
        """Return the next step when the deadline has passed.

        ``printed``: lines of the server process that are not messages, for the text of an error.
        """
        match self.state:
            case OpeningState.BACKING_OFF:
                return self._await_endpoint(now) if self._is_http_sse else self._begin(now)
            case OpeningState.PROBING | OpeningState.PROBING_AGAIN if (
                self._options.handshake_versions
            ):
                # Old servers may not respond to unknown methods at all. They get the rest of the
                # time for the handshake, and are not probed again in this opening.
                self._probing = _Probing.UNANSWERED
                limit = f"{self._options.capped_probe_timeout:g} s"
                return self._require_handshake(
                    f"{DISCOVER} got no response within {limit} (probe_timeout)", now
                )
            case OpeningState.AWAITING_ENDPOINT:
                seconds = self._options.connect_timeout
                text = f"{self._stream} brought no endpoint event within {seconds:g} s"
                text += " (connect_timeout)"
                error = RequestTimeout(text, seconds=seconds, method=_STREAM, request_id=None)
                return self._stream_failed(error, now)
            case _:
                return self._timed_out(now, printed)

    # Responses to server/discover

    def discovery_answered(self, answer: OwnAnswer, now: float) -> OpeningOutcome:
        """Return the next step after the end of ``server/discover``.

        An invalid response is one of an old server, and so is an HTTP response that is complete
        without the JSON-RPC response. If it is not complete, the server could not be reached, which
        shows nothing about its revision.
        """
        match answer:
            case Response(result=result):
                return self._discovered(result, now)
            case ErrorResponse():
                found = classify_discover_response(answer, self._options.versions)
                return self._discovery_denied(answer, found, None, now)
            case RemoteProtocolError(message=message):
                reason = f"the response to {DISCOVER} breaks the protocol: {message}"
                return self._require_handshake(reason, now)
            case Lost(was_complete=True):
                return self._require_handshake(f"{DISCOVER} got no response", now)
            case Lost():
                return self._lost(DISCOVER, answer, now)
            case Refusal():
                return self._discovery_refused(answer, now)
            case AuthorizationFailed():
                return Failed(answer)
            case _ as impossible:
                assert_never(impossible)

    def _discovered(self, response: Any, now: float) -> OpeningOutcome:
        found = classify_discover_response(response, self._options.versions)
        if found.discovered is not Discovered.MODERN:
            versions = _listed((json.as_object(response) or {}).get("supportedVersions"))
            reason = (
                f"it speaks {versions}"
                if versions
                else f"the response to {DISCOVER} lists no versions"
            )
            return self._after_discovery(found, reason, now)
        version, result = str(found.version), json.as_object(response) or {}
        meta = json.as_object(result.get("_meta")) or {}
        info = json.as_object(meta.get(SERVER_INFO)) or json.as_object(result.get("serverInfo"))
        return self._ready(Agreed(REVISIONS[version]), info or {}, result)

    def _discovery_refused(self, refusal: Refusal, now: float) -> OpeningOutcome:
        """Return the next step after a refusal of ``server/discover``.

        An error of 2026-07-28 shows that the server needs no handshake. After any other refusal the
        client tries a handshake. If any server can send the refusal, it shows nothing about this
        one: a handshake that works is not recorded in ``known_servers``, and if the client supports
        no handshake, it reports the refusal.
        """
        may_repeat = refusal.status in OUT_OF_REACH or refusal.was_not_run
        wait = refusal.retry_after if may_repeat else None
        decides_nothing = refusal.status in UNDECIDED or refusal.status >= 500
        if refusal.error is not None and refusal.error.code in MODERN_ERRORS:
            found = classify_discover_response(refusal.error, self._options.versions)
            return self._discovery_denied(refusal.error, found, refusal.status, now)
        if wait or (decides_nothing and not self._options.handshake_versions):
            return self._unreachable(refusal.as_error(DISCOVER, self._request_id), now, wait=wait)
        self._is_era_certain = not decides_nothing
        return self._require_handshake(refusal.message, now)

    # Responses to initialize and notifications/initialized

    def initialize_answered(
        self, answer: OwnAnswer, response_headers: Headers, now: float
    ) -> OpeningOutcome:
        """Return the next step after the end of ``initialize``.

        Args:
            answer: its response, or why there is none.
            response_headers: those of the HTTP response that has the result; else empty.
            now: the current time in seconds, on the machine's clock.
        """
        match answer:
            case Response(result=result):
                return self._initialized(result, response_headers, now)
            case ErrorResponse():
                return self._initialize_denied(answer, None, now)
            case RemoteProtocolError(message=message):
                text = f"The response to {INITIALIZE} from {self.server} breaks the protocol: "
                failure = self._error(InvalidResponse, INITIALIZE, text + message)
                failure.__cause__ = answer
                return self._unreachable(failure, now)
            case Lost():
                return self._lost(INITIALIZE, answer, now)
            case Refusal():
                return self._initialize_refused(answer, now)
            case AuthorizationFailed():
                return Failed(answer)
            case _ as impossible:
                assert_never(impossible)

    def _initialized(self, response: Any, headers: Headers, now: float) -> OpeningOutcome:
        from .legacy.handshake import agreement  # only here, so that the folder can be deleted

        result = json.as_object(response) or {}
        agreed = agreement(result, headers, self._options, self.transport, self._request_id)
        if isinstance(agreed, CallError):
            return self._unreachable(agreed, now)
        self._handshake.result, self._handshake.agreed = result, agreed
        self._advance(OpeningEvent.CONFIRM)
        return Confirm(agreed)

    def _initialize_refused(self, refusal: Refusal, now: float) -> OpeningOutcome:
        has_lost_one = self._streams_lost > 0 or self._losses > 0
        if refusal.ends_session and (has_lost_one or refusal.reason == SESSION_NOT_FOUND):
            # Of HTTP+SSE: its event stream has ended, and the server was the first to see it. On a
            # first stream, without that reason, the endpoint itself is wrong, as behind a proxy
            # that adds a path.
            return self.stream_lost(refusal.message, now)
        error = refusal.error
        failure = refusal.as_error(INITIALIZE, self._request_id)
        if refusal.was_not_run:
            again = self._try_again(failure, refusal.retry_after, now, self._time.ends - now)
            if again is not None:
                return again
        if error is not None and (error.id == self._request_id or error.code in MODERN_ERRORS):
            return self._initialize_denied(error, refusal.status, now)
        if refusal.status == _BAD_REQUEST:
            text = refusal.body[:_MAX_TEXT].decode("utf-8", "replace")
            older = self._older_version(None if error is None else error.data, text)
            if older is not None:
                return self._offer_again(older, failure)
        return self._unreachable(
            failure,
            now,
            try_next=is_other_transport(refusal.status),
            wait=refusal.retry_after if refusal.status in OUT_OF_REACH else None,
        )

    def confirmed(self) -> OpeningOutcome:
        """Open the session: the server has accepted ``notifications/initialized``."""
        result, agreed = self._handshake.result, self._handshake.agreed
        info = json.as_object(result.get("serverInfo")) or {}
        return self._ready(agreed, info, result)

    def confirm_delayed(self, reason: str) -> None:
        """Record why the server has not accepted ``notifications/initialized`` so far."""
        self._handshake.why_unconfirmed = reason

    def unconfirmed(self, reason: str, now: float) -> OpeningOutcome:
        """Return the next step if the server does not accept ``notifications/initialized``."""
        text = f"{self.server} did not accept {INITIALIZED.method}: {reason}"
        return self._unreachable(self._error(Disconnected, INITIALIZE, text), now)

    # The event stream of HTTP+SSE

    def endpoint_on_post(self, now: float) -> OpeningOutcome:
        """Return the next step after an endpoint event in the response to a POST.

        Only servers of HTTP+SSE send that event. Some open their event stream for a POST, too, and
        respond to nothing else at that URL.
        """
        text = f"{self.server} opens an event stream of HTTP+SSE"
        if HTTP_SSE not in self._untried:
            text += f", the transport {HTTP_SSE!r}, which this client does not use with it"
        error = self._error(InvalidResponse, INITIALIZE, text)
        return self._unreachable(error, now, try_next=True)

    def stream_not_opened(
        self, outcome: NoEndpoint | Ended | Refused, now: float
    ) -> OpeningOutcome:
        """Return the next step after a stream that has not named the URL for messages."""
        match outcome:
            case NoEndpoint(what, was_read):
                self._streams_lost += not was_read
                return self._stream_failed(self._stream_error(InvalidResponse, what), now)
            case Ended(reason, unsent):
                self._streams_lost += 1
                what = f"failed: {reason or 'the server closed it'}"
                is_unreachable, is_permanent = reason is not None, unsent is Unsent.PERMANENT
                return self._stream_failed(
                    self._stream_error(Disconnected, what),
                    now,
                    try_next=not is_unreachable,
                    is_retryable=not is_permanent,
                    is_unreachable=is_unreachable and not is_permanent,
                    unsent=unsent,
                )
            case Refused(refusal):
                self._streams_lost += 1
                self._stream_wait = refusal.retry_after
                return self._stream_failed(
                    refusal.as_error(_STREAM, None),
                    now,
                    try_next=refusal.status not in UNDECIDED and refusal.status < 500,
                    is_retryable=refusal.is_retryable,
                    is_unreachable=refusal.status in OUT_OF_REACH,
                )
            case _ as impossible:
                assert_never(impossible)

    def stream_lost(self, reason: str, now: float) -> OpeningOutcome:
        """Return the next step after the end of the stream, which ends the session.

        It is Failed if too many streams have ended in a row.
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

    # The end of a session, and of the client

    def reset_session_losses(self) -> None:
        """Reset the count of lost sessions: the server has responded in this one."""
        self._losses = 0

    def session_lost(self, refusal: Refusal, now: float) -> OpeningOutcome:
        """Open a new session: the server has discarded the current one (404).

        Failed if it has discarded too many in a row. Source: 2025-11-25, basic/transports, Session
        Management: the client MUST do so.
        """
        losses, policy = self._losses, self._options.reconnect
        self._losses += 1
        if losses > policy.max_attempts:
            text = f"The server has discarded {self._losses} sessions in a row: {refusal.message}"
            return Failed(SessionLost(text))
        if losses == 0:
            return self._connect(now)
        self._failures.clear()
        delay = policy.delay(losses, refusal.retry_after, self._jitter())
        return self._back_off(delay, losses, refusal.message, now)

    def version_refused(self, now: float) -> OpeningOutcome:
        """Negotiate again: the server no longer supports the version."""
        self._failures.clear()
        return self._begin(now)

    def restarts_process(self) -> bool:
        """Return whether to restart the server process, because it exited on ``server/discover``.

        Some servers of a handshake revision exit when their first message is not ``initialize``.
        That is no failure: the process is started once more, and gets ``initialize``. A process
        that starts slowly reads that message when ``initialize`` has been written as well.
        """
        was_asked = self.state in (OpeningState.PROBING, OpeningState.PROBING_AGAIN) or (
            self.state is OpeningState.INITIALIZING
            and self._probing in (_Probing.DUE, _Probing.UNANSWERED)
            and self._options.modern_versions
        )
        may_restart = self._probing is not _Probing.NEVER and self._options.handshake_versions
        if self.transport != STDIO or not was_asked or not may_restart:
            return False
        self._probing = _Probing.NEVER
        return True

    def process_restarted(self, now: float) -> OpeningOutcome:
        """Continue with the new process."""
        return self._begin(now)

    def close(self) -> None:
        """Record that the client ends the session."""
        self._advance(OpeningEvent.CLOSE)
        self._time.deadline = math.inf

    def closed(self) -> None:
        """Record that the session has ended, or that there was none."""
        self._advance(OpeningEvent.DONE)

    # Steps

    @property
    def _is_http_sse(self) -> bool:
        return self.transport == HTTP_SSE

    @property
    def _stream(self) -> str:
        return f"{_STREAM} (GET {self.server})"

    def _connect(self, now: float) -> OpeningOutcome:
        """Start an opening and its timeout."""
        self._failures.clear()
        self._probing = _Probing.DUE
        self._time.ends = now + self._options.connect_timeout
        if not self._is_http_sse:
            return self._begin(now)
        if not self._streams_lost:
            return self._await_endpoint(now)
        policy, wait = self._options.reconnect, self._stream_wait
        self._stream_wait = 0.0
        delay = policy.delay(self._streams_lost, wait, self._jitter())
        return self._back_off(delay, self._streams_lost, "the event stream is lost", now)

    def _begin(self, now: float) -> OpeningOutcome:
        """Send the first request, ``server/discover`` or ``initialize``."""
        if not self._failures:
            self._time.ends = now + self._options.connect_timeout
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
        self._time.deadline = now + self._options.capped_probe_timeout
        if not self._options.handshake_versions:
            # Nothing is tried next, so a process that starts slowly has all of the time. If others
            # have failed before, the last attempt may end later, but with a cause of its own.
            self._time.deadline = max(self._time.deadline, self._time.ends)
        return Probe(version)

    def _initialize(self, version: str | None) -> Initialize:
        """Send ``initialize`` with ``version``, or with our newest."""
        self._advance(OpeningEvent.INITIALIZE)
        self._time.deadline = self._time.ends
        self._handshake = _Handshake(version or self._options.handshake_versions[-1])
        return Initialize(self._handshake.offered)

    def _await_endpoint(self, now: float) -> OpenEventStream:
        self._advance(OpeningEvent.LOCATE)
        self._time.deadline = now + self._options.connect_timeout
        return OpenEventStream()

    def _back_off(self, delay: float, attempt: int, reason: str, now: float) -> Retry:
        self._advance(OpeningEvent.BACK_OFF)
        self._time.deadline = now + delay
        return Retry(delay, attempt, reason)

    def _ready(self, agreed: Agreed, info: dict[str, Any], result: dict[str, Any]) -> Ready:
        self._advance(OpeningEvent.OPEN)
        self._time.deadline = math.inf
        self._has_probed_again = False
        self._untried.clear()
        self._attempts.clear()
        self._failures.clear()
        if self._is_era_certain or agreed.is_modern:
            era = agreed.revision.era
            self._options.known_servers.remember(self._target, self.transport, era)
        instructions = result.get("instructions")
        event = Connected(
            transport=self.transport,
            version=agreed.revision.name,
            server_info=info,
            capabilities=json.as_object(result.get("capabilities")) or {},
            instructions=instructions if isinstance(instructions, str) else None,
        )
        return Ready(agreed, event)

    def _require_handshake(self, reason: str, now: float) -> OpeningOutcome:
        return self._after_discovery(DiscoveryResult(Discovered.HANDSHAKE), reason, now)

    def _after_discovery(self, found: DiscoveryResult, reason: str, now: float) -> OpeningOutcome:
        """Return the step after ``found``; ``reason``: text for an error if there is none."""
        if found.discovered is Discovered.RETRY:
            return self._probe_again(str(found.version), now)
        if self._options.handshake_versions:
            return self._initialize(found.version)
        ours = ", ".join(self._options.versions)
        text = f"The server needs a handshake, and {ours} has none: {reason}"
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
        if found.discovered not in (Discovered.FAIL, Discovered.DISJOINT):
            return self._after_discovery(found, f"{error.message} (code {error.code})", now)
        if found.discovered is Discovered.DISJOINT:
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
        if found.discovered is Discovered.RETRY and may_probe:
            # The server was too slow to respond to server/discover, or was not sent it.
            return self._probe_again(str(found.version), now)
        failure: CallError = jsonrpc_error_from(error, INITIALIZE, self._request_id, http_status)
        older = self._older_version(error.data, error.message)
        if older is not None:
            return self._offer_again(older, failure)
        if found.discovered is Discovered.DISJOINT:
            failure = no_common_version(error, self._options.versions, INITIALIZE)
        return self._unreachable(failure, now)

    def _older_version(self, data: Any, text: str) -> str | None:
        """Return a version for another ``initialize``, after a refusal of the one with a version.

        Servers should respond with a version of theirs instead. Those that refuse a newer one name
        theirs in the ``supported`` of the error, or in its text alone.

        Source: 2025-11-25, basic/lifecycle, Version Negotiation and Error Handling.

        Returns:
            The newest version of ours that they name and that is older than the one that was
            offered, so that this comes to an end; None if there is none.
        """
        ours = self._options.handshake_versions
        listed: Any = (json.as_object(data) or {}).get("supported")
        named = listed if json.is_array(listed) else _VERSION.findall(text[:_MAX_TEXT])
        if json.is_array(listed) and self._handshake.offered in listed:
            return None  # the version is not what the server refuses
        older = [each for each in ours[: ours.index(self._handshake.offered)] if each in named]
        return older[-1] if older else None

    def _offer_again(self, version: str, failure: CallError) -> Initialize:
        """Send ``initialize`` with another version; if that fails, its error tells of this one."""
        self._failures.append(failure)
        return self._initialize(version)

    def _timed_out(self, now: float, printed: tuple[str, ...]) -> OpeningOutcome:
        """Return the next step after ``connect_timeout``.

        Source: basic/utilities/cancellation: ``initialize`` is never cancelled.
        """
        seconds = self._options.connect_timeout
        limit = f"within {seconds:g} s (connect_timeout)"
        method = INITIALIZE if self._options.handshake_versions else DISCOVER
        text = f"{method} got no response from {self.server} {limit}"
        if self.state is OpeningState.CONFIRMING:
            text = f"{self.server} did not accept {INITIALIZED.method} {limit}"
            text += f": {self._handshake.why_unconfirmed}"
        error = RequestTimeout(
            text + (":" if printed else ""),
            seconds=seconds,
            method=method,
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
        unsent: Unsent | None = None,
    ) -> OpeningOutcome:
        """Return the next step after an event stream that could not be opened.

        Args:
            error: the error to report.
            now: the current time in seconds, on the machine's clock.
            try_next: True if the server may support another transport.
            is_retryable: True if the failure is temporary, so that a lost stream is retried.
            is_unreachable: True if the server could not be reached, so that the first stream is
                retried, too.
            unsent: why no byte of the request was sent; None if some may have been.
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
        return self._unreachable(error, now, try_next=try_next, wait=wait_at_least, unsent=unsent)

    def _lost(self, method: str, lost: Lost, now: float) -> OpeningOutcome:
        """Return the next step after a request of the opening that got no response."""
        text = f"{method} got no response from {self.server}: {lost.reason}"
        if lost.unsent is not None:
            text = f"{self.server} cannot be reached: {lost.reason}"
        may_repeat = not lost.was_complete and lost.unsent is not Unsent.PERMANENT
        return self._unreachable(
            self._error(Disconnected, method, text),
            now,
            wait=0.0 if may_repeat else None,
            unsent=lost.unsent,
        )

    def _unreachable(
        self,
        error: CallError,
        now: float,
        *,
        try_next: bool = False,
        wait: float | None = None,
        unsent: Unsent | None = None,
    ) -> OpeningOutcome:
        """Return the next step after a failure of the transport in use.

        Args:
            error: the error to report.
            now: the current time in seconds, on the machine's clock.
            try_next: True if the server may support another transport.
            wait: the seconds to wait at least before this transport is tried again; None if it
                must not be tried again.
            unsent: why no byte of the request was sent; None if some may have been.
        """
        if wait is not None:
            left = self._time.ends - now
            if unsent is Unsent.REFUSED and self._is_local:
                left += min(LOCAL_PATIENCE - self._options.connect_timeout, 0.0)
            again = self._try_again(error, wait, now, left)
            if again is not None:
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
        text = f"No MCP transport works at {self.server}:"
        attempts = tuple(attempt for _, attempt in self._attempts)
        return Failed(NegotiationFailed(text, attempts=attempts, lines=lines))

    def _try_again(self, error: CallError, wait: float, now: float, left: float) -> Retry | None:
        """Repeat the opening after a delay; None if no time or attempt is left.

        The attempt gets at least half of the time that is ``left``.
        """
        policy = self._options.reconnect
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
