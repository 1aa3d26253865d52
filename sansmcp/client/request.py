"""One JSON-RPC request of a client, and what its response means.

A call of the application is made once; it may need several JSON-RPC requests, each with a new id:
when one is lost that may be repeated, and at 2026-07-28 when the server asks for input, or for
other headers or another version. The client makes requests of its own, too: to open the
conversation, and to look up the headers of a tool.

The timeout runs from the moment of the call. Progress starts it again, within the limit of the
total. While a server request that the client has declared to answer is open, both clocks stand
still, for a human may have to answer. Then the total goes on where it stood, and the timeout starts
again if the request was answered. The number of such requests is bounded, so a server cannot keep a
call alive for ever.

Source: 2025-03-26 to 2025-11-25, basic/lifecycle: Timeouts; basic/utilities: progress,
cancellation.
"""

from __future__ import annotations

import enum
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from ..codecs import json, jsonrpc
from ..codecs.jsonrpc import HEADER_MISMATCH, UNSUPPORTED_VERSION
from ..errors import (
    CallError,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    RequestTimeout,
    SessionLost,
)
from ..messages import ErrorResponse, Params, Request, Response
from .outcomes import (
    Agreed,
    Finished,
    NeedsInput,
    NeedsTools,
    NeedsVersion,
    RequestOutcome,
)
from .stream import Stream

if TYPE_CHECKING:
    from .legacy.turn import Turn


_NO_PARAMS: Params = MappingProxyType({})


def encode_without_meta(params: Params) -> bytes:
    """Return parameters as JSON, all but ``_meta``. Raises LocalProtocolError if they are none."""
    if "_meta" in params:
        params = {name: value for name, value in params.items() if name != "_meta"}
    return json.encode(params or {})


class Kind(enum.Enum):
    """What a request is for."""

    CALL = enum.auto()
    """The application has made it."""
    DISCOVER = enum.auto()
    INITIALIZE = enum.auto()
    TOOLS = enum.auto()
    """The headers of a tool are looked up, for a call."""


@attrs.define(eq=False, repr=False)
class CallTimeouts:
    """The two timeouts of a request, in seconds on the machine's clock."""

    timeout: float
    """Seconds without an answer and without progress."""
    total: float
    """Seconds without an answer, in all."""
    _resets: bool
    """True if progress starts the timeout again."""
    started: float
    open_requests: int = attrs.field(default=0, init=False)
    """Server requests that are open and stop the clock."""
    _stopped: float = attrs.field(default=0.0, init=False)
    _timeout_ends: float = attrs.field(init=False)
    _total_ends: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._timeout_ends = self.started + self.timeout
        self._total_ends = self.started + self.total

    @property
    def deadline(self) -> float:
        """When there has to be an answer; infinite while the clock stands still."""
        return math.inf if self.open_requests else min(self._timeout_ends, self._total_ends)

    def progressed(self, now: float) -> None:
        """Start the timeout again."""
        if self._resets and not self.open_requests:
            self._timeout_ends = now + self.timeout

    def pause(self, now: float) -> None:
        """Stand still for one more server request."""
        if not self.open_requests:
            self._stopped = now
        self.open_requests += 1

    def resume(self, now: float, *, answered: bool) -> None:
        """Go on, unless another server request is open.

        The timeout starts again if the request was ``answered``, and not declined or withdrawn.
        """
        self.open_requests -= 1
        if answered:
            self._timeout_ends = self._stopped + self.timeout
        if not self.open_requests:
            self._end_pause(now)

    def discard_server_requests(self, now: float) -> None:
        """Go on: the session in which all server requests were made is gone."""
        if self.open_requests:
            self.open_requests = 0
            self._end_pause(now)

    def limit(self, now: float) -> str:
        """Return which time has run out, for a person."""
        if now >= self._total_ends:
            return f"{self.total:g} s in all"
        return f"{self.timeout:g} s without progress"

    def _end_pause(self, now: float) -> None:
        stood = now - self._stopped
        self._total_ends += stood
        self._timeout_ends += stood


@attrs.define(eq=False, repr=False)
class PendingRequest:
    """One request that has not ended."""

    number: int
    """Positive: the handle of a call. Negative: a request of the client's own."""
    kind: Kind
    method: str
    params: Params | None
    idempotent: bool = False
    """True if it may be made again when its outcome is unknown."""
    timeouts: CallTimeouts | None = None
    """None: its time is limited by something else."""
    encoded_params: bytes | None = None
    """The parameters without ``_meta`` as JSON, until they are sent for the first time."""
    parent: int | None = None
    """The call for which the headers of a tool are looked up."""
    id: int | None = attrs.field(default=None, init=False)
    """The id of the JSON-RPC request under way; None while there is none."""
    exchange: int | None = attrs.field(default=None, init=False)
    """The HTTP exchange that carries it; None on stdio, and between two attempts."""
    stream: Stream | None = attrs.field(default=None, init=False)
    """None where nothing can be tried again: on stdio and HTTP+SSE."""
    turn: Turn | None = attrs.field(default=None, init=False)
    """The answers that are kept back (SEP-1858)."""
    child: int | None = attrs.field(default=None, init=False)
    """The request that looks up the headers of its tool."""
    server_requests: int = attrs.field(default=0, init=False)
    """Server requests that have stopped its clock so far."""
    round_params: Params | None = attrs.field(default=None, init=False)
    """Parameters that answer the server's requests for input."""
    rounds: int = attrs.field(default=0, init=False)
    cache_generation: int = attrs.field(default=0, init=False)
    """The state of the cache when the request was made."""
    pages: int = attrs.field(default=0, init=False)
    """Of a list of tools that have come."""
    _has_refetched_tools: bool = attrs.field(default=False, init=False)
    _has_renegotiated: bool = attrs.field(default=False, init=False)

    @property
    def sent_params(self) -> Params:
        """All parameters of the request that is made next, or was made last."""
        given = self.params or _NO_PARAMS
        return given if self.round_params is None else {**given, **self.round_params}

    def encode(self, meta: Params) -> bytes:
        """Return the JSON-RPC request; ``meta``: further members of its ``_meta``.

        A call has its id as progress token.
        """
        assert self.id is not None
        params = self.sent_params
        own: dict[str, Any] = {**params.get("_meta", _NO_PARAMS), **meta}
        if self.kind is Kind.CALL:
            own["progressToken"] = self.id
        if not own:
            return jsonrpc.encode(Request(self.id, self.method, self.params))
        encoded, self.encoded_params = self.encoded_params, None
        if encoded is None:
            encoded = encode_without_meta(params)
        return jsonrpc.encode_request(self.id, self.method, encoded, own)

    @property
    def can_requeue(self) -> bool:
        """True if it can be made in another session, as it is.

        Source: server/utilities/pagination: a cursor is of one session.
        """
        is_harmless = self.idempotent and "cursor" not in (self.params or {})
        return is_harmless or self.id is None

    def on_response(
        self,
        message: Response | ErrorResponse,
        http_status: int | None,
        agreed: Agreed,
        *,
        is_http: bool,
    ) -> RequestOutcome:
        """Conclude what the response to a call means.

        Args:
            message: the response.
            http_status: that of the refusal that carried it; None if it was no refusal.
            agreed: what is in force.
            is_http: False on stdio, where no headers repeat parts of the request.
        """
        if isinstance(message, Response):
            return self._result(message.result, has_type=agreed.revision.result_type)
        is_mirrored = agreed.revision.mirrored_headers and is_http
        is_mismatch = is_mirrored and message.code == HEADER_MISMATCH
        if is_mismatch and self.method == "tools/call" and not self._has_refetched_tools:
            self._has_refetched_tools = True
            return NeedsTools()
        if agreed.is_modern and self.may_renegotiate(message):
            self._has_renegotiated = True
            return NeedsVersion()
        return Finished(jsonrpc_error_from(message, self.method, self.id, http_status))

    def may_renegotiate(self, error: ErrorResponse) -> bool:
        """Return whether the server has not even looked at the request, because of its version."""
        return error.code == UNSUPPORTED_VERSION and not self._has_renegotiated

    def _result(self, result: Any, *, has_type: bool) -> RequestOutcome:
        members = json.as_object(result) or {}
        kind = members.get("resultType", "complete") if has_type else "complete"
        if kind == "input_required":
            return NeedsInput(members)
        if kind != "complete":
            what = repr(kind)[:50]
            text = f"The answer to {self.method} is of the unknown kind {what}"
            return Finished(self.error(InvalidResponse, text))
        return Finished(result)

    # The errors of a call

    def error(self, kind: type[CallError], text: str) -> CallError:
        """Return an exception that names the request."""
        return kind(text, method=self.method, request_id=self.id)

    def timed_out(self, now: float) -> RequestTimeout:
        """Return the exception for a clock that has run out."""
        assert self.timeouts is not None
        return RequestTimeout(
            f"{self.method} got no answer within {self.timeouts.limit(now)}",
            seconds=now - self.timeouts.started,
            method=self.method,
            request_id=self.id,
        )

    def lost(self, reason: str) -> CallError:
        """Return the exception for an answer that nothing can bring any more."""
        text = (
            f"{self.method} was sent, but its answer is lost and the outcome is unknown: {reason}"
        )
        return self.error(Disconnected, text)

    def session_lost(self) -> CallError:
        """Return the exception for a session that the server has forgotten."""
        text = (
            f"The server has ended the session (HTTP 404), so {self.method} was not completed; "
            "it can be made again in the new session"
        )
        return self.error(SessionLost, text)

    def abandoned(self, error: CallError) -> Disconnected:
        """Return the exception for a client that has failed."""
        text, *lines = f"{self.method} was not completed: {error}".split("\n")
        failure = Disconnected(text, method=self.method, request_id=self.id, lines=lines)
        failure.__cause__ = error
        return failure


def jsonrpc_error_from(
    error: ErrorResponse, method: str, request_id: int | None, http_status: int | None
) -> JsonRpcError:
    """Return the exception for an error that the server has answered with."""
    return JsonRpcError(
        error.code,
        error.message,
        error.data,
        method=method,
        request_id=request_id,
        http_status=http_status,
    )
