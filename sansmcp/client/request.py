"""One JSON-RPC request of a client, and what its response means.

A call of the application may need several JSON-RPC requests, each with a new id. The client repeats
a request that was lost and is safe to repeat. At 2026-07-28 it also repeats a request if the server
requires input, other headers or another version. The client makes requests of its own, too: to open
the session, and to look up the headers of a tool.

The timeout runs from the start of the call, and progress restarts it, within the total timeout.
While a server request that the client supports is open, both are paused, because a user may have to
respond. Afterwards the total timeout continues, and the timeout restarts if the application has
responded. The number of such requests is bounded, so a server cannot keep a call alive for ever.

Source: 2025-03-26 to 2025-11-25, basic/lifecycle: Timeouts; basic/utilities: progress,
cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from ..codecs import json, jsonrpc
from ..errors import (
    AuthorizationFailed,
    CallError,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    RemoteProtocolError,
    RequestTimeout,
    SessionLost,
)
from ..events import ProgressReceived
from ..messages import ErrorResponse, Params, Request, Response
from ..reclaim import EXTENSION, RECEIVED
from ..tasks import GET as GET_TASK
from ..tasks import PROGRESS_UNSHOWN, RESULT_TYPE
from .attempts import Attempts
from .call_keys import CallKey, Cut, Next
from .http_heads import Refusal
from .options import ClientOptions
from .outcomes import (
    Agreed,
    BecameTask,
    Finished,
    Kind,
    Lost,
    NeedsInput,
    RequestOutcome,
    RoundDone,
    Step,
)
from .stream import Stream
from .task import TASK_METHOD, FollowedTask, task_id_of

_CALL: Final = Kind.CALL
_REST: Final = Next.REST

StepAnswer: TypeAlias = (
    Response
    | ErrorResponse
    | Lost
    | Refusal
    | RemoteProtocolError
    | CallError
    | Cut
    | RoundDone
    | None
)
"""What the procedure of a call is sent: how a request has ended, or the input responses.

RemoteProtocolError: the response to the call is invalid. CallError: so is that to a request of the
client's own, or there is no authorization. None: a time has passed, or a new session is open.
"""

_Ending = TypeVar("_Ending")
Steps: TypeAlias = Generator[Step, StepAnswer, _Ending]

_NO_PARAMS: Params = MappingProxyType({})


def encode_without_meta(params: Params) -> bytes:
    """Return parameters as JSON, without ``_meta``.

    Raises LocalProtocolError if they cannot be encoded.
    """
    if "_meta" in params:
        params = {name: value for name, value in params.items() if name != "_meta"}
    return json.encode(params or {})


@attrs.define(eq=False, repr=False)
class CallTimeouts:
    """The two timeouts of a request, in seconds on the machine's clock."""

    timeout: float
    """Seconds without a response and without progress."""
    total: float
    """Seconds without a response, in all."""
    resets: bool
    """True if progress restarts the timeout."""
    started: float
    open_requests: int = attrs.field(default=0, init=False)
    """The number of open server requests that pause the timeouts."""
    server_requests: int = attrs.field(default=0, init=False)
    """The number of server requests of the call so far, which is bounded."""
    _stopped: float = attrs.field(default=0.0, init=False)
    _timeout_ends: float = attrs.field(init=False)
    _total_ends: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._timeout_ends = self.started + self.timeout
        self._total_ends = self.started + self.total

    @property
    def deadline(self) -> float:
        """Time when the call times out; infinite while the timeouts are paused."""
        return math.inf if self.open_requests else min(self._timeout_ends, self._total_ends)

    def part(self, share: float, limit: float) -> float:
        """Return a time for a part of the call: a share of its timeouts, at most ``limit``.

        What may wait for ever, such as a dead connection, is found out while there is time left to
        try again.
        """
        return min(share * self.timeout, share * self.total, limit)

    def progressed(self, now: float) -> None:
        """Restart the timeout, if progress does that."""
        if self.resets and not self.open_requests:
            self._timeout_ends = now + self.timeout

    def pause(self, now: float) -> None:
        """Pause for one more server request."""
        if not self.open_requests:
            self._stopped = now
        self.open_requests += 1

    def resume(self, now: float, *, responded: bool) -> None:
        """End the pause, unless another server request is open.

        The timeout restarts if the application has ``responded``. It does not if the request was
        cancelled, or is not supported.
        """
        # The pause ends below by moving both ends by its length. So the ends are those as of
        # _stopped until then, and the restarted timeout, too, counts from there.
        self.open_requests -= 1
        if responded:
            self._timeout_ends = self._stopped + self.timeout
        if not self.open_requests:
            self._end_pause(now)

    def discard_server_requests(self, now: float) -> None:
        """End the pause: the session has ended, and with it all its server requests."""
        if self.open_requests:
            self.open_requests = 0
            self._end_pause(now)

    def restart_at(self, later: float) -> None:
        """Restart the timeout at a later time: until then the server has nothing to say."""
        if not self.open_requests:
            self._timeout_ends = later + self.timeout

    def total_left(self, now: float) -> float:
        """Return the seconds until the total timeout expires; infinite while it is paused."""
        return math.inf if self.open_requests else self._total_ends - now

    def limit(self, now: float) -> str:
        """Return the timeout that has expired, as text for an error."""
        if now >= self._total_ends:
            return f"{self.total:g} s in all (total_timeout)"
        return f"{self.timeout:g} s without progress (timeout)"

    def _end_pause(self, now: float) -> None:
        stood = now - self._stopped
        self._total_ends += stood
        self._timeout_ends += stood


@attrs.define(eq=False, repr=False)
class CallOptions:
    """What the application has asked of a call, beside its parameters and timeouts."""

    idempotent: bool = False
    """True if the client may repeat it when its outcome is unknown."""
    is_detached: bool = False
    """True if the handle of a task is the result."""
    takes_any_result: bool = False
    """True if the application takes results of all kinds, those that ask for input included."""
    wants_progress: bool = True
    """False if progress only restarts the timeout."""
    capabilities: Mapping[str, Any] | None = None
    """What it declares at 2026-07-28; None for the capabilities of the client."""


_DEFAULTS = CallOptions()


@attrs.define(eq=False, repr=False)
class PendingRequest:
    """One request that has not ended."""

    number: int
    """Positive: the handle of a call. Negative: a request of the client's own."""
    kind: Kind
    method: str
    params: Params | None
    """Its parameters, with those of the last round."""
    options: CallOptions = _DEFAULTS
    timeouts: CallTimeouts | None = None
    """None for the client's own requests, which have no timeouts of their own."""
    encoded_params: bytes | None = None
    """The parameters without ``_meta`` as JSON; None after the request was sent once."""
    parent: int | None = None
    """The call that has this request as its ``child`` or ``listener``; None if there is none."""
    id: int | None = attrs.field(default=None, init=False)
    """The id of the JSON-RPC request in flight; None while there is none."""
    exchange: int | None = attrs.field(default=None, init=False)
    """The HTTP exchange that carries it; None on stdio, and between two attempts."""
    stream: Stream | None = attrs.field(default=None, init=False)
    """None on stdio and HTTP+SSE, where no stream belongs to one request; there a call with a key
    has one.
    """
    key: CallKey | None = attrs.field(default=None, init=False)
    """The key of its JSON-RPC request, by which its response can be had after a cut; None if it has
    none.
    """
    task: FollowedTask | None = attrs.field(default=None, init=False)
    """The task that runs the call; None if there is none."""
    progress: ProgressReceived | None = attrs.field(default=None, init=False)
    """The last report of progress; None before the first."""
    procedure: Steps[Any] | None = attrs.field(default=None, init=False)
    """What decides what comes next for a call; None for requests of the client's own."""
    child: int | None = attrs.field(default=None, init=False)
    """The request for whose answer its procedure waits; None if there is none."""
    listener: int | None = attrs.field(default=None, init=False)
    """The subscription to the changes of its task, or the renewal of its own; None if there is
    none.
    """
    cache_generation: int = attrs.field(default=0, init=False)
    """``Cache.generation`` when the request was made."""
    attempts: Attempts = attrs.field(factory=Attempts, init=False)

    @property
    def followed(self) -> FollowedTask:
        """The task of a call that has one."""
        assert self.task is not None
        return self.task

    @property
    def can_have_key(self) -> bool:
        """True if its response may be had by a key after a cut."""
        return self.method == TASK_METHOD and self.kind is _CALL and self.attempts.takes_keys

    def encode(self, meta: Params) -> bytes:
        """Return the encoded JSON-RPC request, with ``meta`` as further members of its ``_meta``.

        The progress token of a call is the id of the request.
        """
        assert self.id is not None
        params = self.params or _NO_PARAMS
        own: dict[str, Any] = {**params.get("_meta", _NO_PARAMS), **meta}
        if self.kind is _CALL:
            own["progressToken"] = self.id
            if meta and not self.options.wants_progress:
                own[PROGRESS_UNSHOWN] = True
        if self.key is not None:
            own[EXTENSION] = self.key.text
            if self.key.next is _REST:
                received = json.encode({RECEIVED: self.key.received})
                return jsonrpc.encode_request(self.id, EXTENSION, received, own)
        if not own:
            return jsonrpc.encode(Request(self.id, self.method, self.params))
        encoded, self.encoded_params = self.encoded_params, None
        if encoded is None:
            encoded = encode_without_meta(params)
        return jsonrpc.encode_request(self.id, self.method, encoded, own)

    def can_requeue(self, *, keeps_keys: bool) -> bool:
        """Return True if it can be repeated unchanged in a new session, or was not sent yet.

        ``keeps_keys``: True if the server knows the keys of its calls in the new session, too.

        Source: server/utilities/pagination: a cursor is valid in one session.
        """
        is_harmless = self.options.idempotent and "cursor" not in (self.params or {})
        if self.key is not None:
            return is_harmless or keeps_keys
        return is_harmless or self.id is None

    def outcome_of(self, result: Any, agreed: Agreed, options: ClientOptions) -> RequestOutcome:
        """Return what a result means.

        Args:
            result: the result.
            agreed: what client and server have negotiated.
            options: the settings of the client.
        """
        members = json.as_object(result) or {}
        has_type = agreed.revision.result_type
        kind = members.get("resultType", "complete") if has_type else "complete"
        if kind == "complete" or (isinstance(kind, str) and kind in options.result_types):
            return Finished(result)
        if kind == RESULT_TYPE and options.tasks:
            if self.method == TASK_METHOD:
                return self._became_task(members)
            if self.method == GET_TASK:  # some servers repeat the kind there
                return Finished(result)
        if self.options.takes_any_result:
            return Finished(result)
        if kind == "input_required":
            return NeedsInput(members)
        what = repr(kind)[:50]
        text = f"The response to {self.method} has the unknown resultType {what}"
        return Finished(self.error(InvalidResponse, text))

    def _became_task(self, members: dict[str, Any]) -> RequestOutcome:
        if task_id_of(members) is None or not isinstance(members.get("status"), str):
            text = f"The response to {self.method} is a task without an id or a status"
            return Finished(self.error(InvalidResponse, text))
        return Finished(members) if self.options.is_detached else BecameTask(members)

    # The errors of a call

    def error(self, kind: type[CallError], text: str) -> CallError:
        """Return an exception that names the request."""
        return kind(text, method=self.method, request_id=self.id)

    def timed_out(self, now: float, came: tuple[str, ...]) -> RequestTimeout:
        """Return the exception for an expired timeout. ``came``: what came instead, as lines."""
        assert self.timeouts is not None
        limit = self.timeouts.limit(now)
        text = f"{self.method} got no response within {limit}"
        if came:
            text = f"{self.method} was not answered within {limit}, but this has come:"
        return RequestTimeout(
            text,
            seconds=now - self.timeouts.started,
            method=self.method,
            request_id=self.id,
            lines=came,
        )

    def lost(self, reason: str) -> CallError:
        """Return the exception for a response that can no longer arrive."""
        text = (
            f"{self.method} was sent, but its response is lost and the outcome is unknown: {reason}"
        )
        return self.error(Disconnected, text)

    def unsent(self, reason: str) -> CallError:
        """Return the exception for a request of which nothing was sent."""
        return Disconnected(
            f"{self.method} was not sent: {reason}",
            method=self.method,
            request_id=self.id,
            was_sent=False,
        )

    def session_lost(self, status: int, *, was_not_run: bool) -> CallError:
        """Return the exception for a session that the server has discarded.

        ``was_not_run``: True if it has refused this request, and run nothing of it.
        """
        if was_not_run:
            outcome = "was not run; repeat it in the new session, which the client opens by itself"
        else:
            outcome = (
                "was not completed, and may have run; the client opens a new session by itself"
            )
        text = f"The server has ended the session (HTTP {status}), so {self.method} {outcome}"
        return SessionLost(text, method=self.method, request_id=self.id, was_not_run=was_not_run)

    def unreadable(self, error: RemoteProtocolError) -> InvalidResponse:
        """Return the exception for an invalid response."""
        failure = InvalidResponse(
            f"The response to {self.method} breaks the protocol: {error.message}",
            method=self.method,
            request_id=self.id,
        )
        failure.__cause__ = error
        return failure

    def unauthorized(self, error: AuthorizationFailed) -> AuthorizationFailed:
        """Return the exception for a call for which there is no authorization."""
        failure = AuthorizationFailed(
            f"{self.method} was not completed: {error}",
            reason=error.reason,
            url=error.url,
            method=self.method,
            request_id=self.id,
        )
        failure.__cause__ = error
        return failure

    def abandoned(self, error: CallError) -> Disconnected:
        """Return the exception for a call that ends because the client has failed."""
        text, *lines = f"{self.method} was not completed: {error}".split("\n")
        failure = Disconnected(text, method=self.method, request_id=self.id, lines=lines)
        failure.__cause__ = error
        return failure


def jsonrpc_error_from(
    error: ErrorResponse, method: str, request_id: int | None, http_status: int | None
) -> JsonRpcError:
    """Return the exception for an error response of the server."""
    return JsonRpcError(
        error.code,
        error.message,
        error.data,
        method=method,
        request_id=request_id,
        http_status=http_status,
    )
