"""The exceptions of the protocol core.

There are two families, and which one is raised tells who has to act:

* :class:`ProtocolError`: a *rule* was broken. :class:`LocalProtocolError` means that our own side
  (the code that calls this library) asked for something the protocol does not allow; nothing was
  changed and the object stays usable. :class:`RemoteProtocolError` means that the peer sent
  something unacceptable; it carries the answer that the peer should get.
* :class:`CallError`: a *request* ended without a result. The client machine hands one of its
  subclasses to the application for every request that does not succeed; adapters raise it
  unchanged.

Machines never raise for what a peer sent: they answer, and report an event. Codecs do raise
:class:`RemoteProtocolError`, because a codec has nobody to report to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from .messages import ErrorResponse, RequestId
from .types import escape_controls


class ProtocolError(Exception):
    """A rule of the protocol was broken. Abstract: always one of the two subclasses."""

    def __init__(self, message: str) -> None:
        if type(self) is ProtocolError:
            raise TypeError(
                "ProtocolError is abstract: raise LocalProtocolError or RemoteProtocolError"
            )
        super().__init__(message)

    @property
    def message(self) -> str:
        """What is wrong, and what to do instead, in one sentence."""
        return str(self.args[0])


class LocalProtocolError(ProtocolError):
    """Our side asked for something that the protocol or the current state forbids.

    Raised before anything is changed: the machine is in the state it was in, and stays usable.
    """


def check_type(kind: type[Any] | tuple[type[Any], ...], **given: object) -> None:
    """Raises LocalProtocolError, which names the argument, for one that is of another kind.

    True and False are no numbers. For constructors and commands, where mistakes are made; what
    comes often is looked at only when it could not be used.
    """
    for name, value in given.items():
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and int in kinds):
            wanted = " or ".join(each.__name__ for each in kinds)
            raise LocalProtocolError(f"{name} must be {wanted}, and is {type(value).__name__}")


def instance_of_type(kind: type[Any] | tuple[type[Any], ...]) -> Callable[[Any, Any, Any], None]:
    """The same as a validator of ``attrs``."""
    return lambda instance, attribute, value: check_type(kind, **{attribute.name: value})


def check_positive_seconds(*durations: float) -> None:
    """Raises LocalProtocolError for a duration that is not above zero; infinity is one."""
    for seconds in durations:
        try:
            is_duration = seconds > 0
        except TypeError:  # None, say
            is_duration = False
        if not is_duration:
            raise LocalProtocolError(
                f"Not a number of seconds above zero: {seconds!r} (infinity: no limit)"
            )


def check_delay(**delays: float | None) -> None:
    """Raises LocalProtocolError for a delay below zero, or of another kind; None is taken."""
    for name, seconds in delays.items():
        if seconds is None:
            continue
        check_type((int, float), **{name: seconds})
        if not seconds >= 0:  # NaN is not, either
            raise LocalProtocolError(f"{name} must not be below zero, and is {seconds}")


def check_settings(given: Iterable[str], function: str, known: Collection[str], whose: str) -> None:
    """Raise TypeError for the first setting that is not known, and name those that are.

    Args:
        given: the names of the settings.
        function: the name of the function or class that was called with them.
        known: those that it takes.
        whose: what they are settings of.
    """
    for name in given:
        if name not in known:
            raise TypeError(_unknown_setting(name, function, known, whose))


def _unknown_setting(name: str, function: str, known: Collection[str], whose: str) -> str:
    import difflib  # only who makes this mistake pays for it

    text = f"{function}() got an unexpected keyword argument {name!r}"
    near = difflib.get_close_matches(name, known, n=1)
    text += f"; did you mean {near[0]!r}?" if near else "."
    return f"{text} The settings of {whose} are {', '.join(sorted(known))}"


class RemoteProtocolError(ProtocolError):
    """The peer sent something that cannot be accepted.

    Attributes:
        reason: a short stable word that programs can match, e.g. ``"duplicate_name"``.
        http_status: the HTTP status that fits, where there is an HTTP answer to give.
        jsonrpc_code: the JSON-RPC error code that fits.
        request_id: the id of the offending message when it could be read, else None.
        is_request: the offending message was meant as a request, so its id is one of the peer's.
        data: further members for ``error.data`` beside ``reason``.
        headers: further HTTP headers that the answer must have, such as ``Allow``.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        http_status: int = 400,
        jsonrpc_code: int = -32600,
        request_id: RequestId | None = None,
        is_request: bool = False,
        data: dict[str, Any] | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.http_status = http_status
        self.jsonrpc_code = jsonrpc_code
        self.request_id = request_id
        self.is_request = is_request
        self.data = data or {}
        self.headers = headers

    @property
    def reply(self) -> ErrorResponse:
        """The JSON-RPC error to answer with; its ``data.reason`` is :attr:`reason`."""
        return ErrorResponse(
            self.request_id, self.jsonrpc_code, self.message, {"reason": self.reason, **self.data}
        )


class CallError(Exception):
    """A request ended without a result. Always one of the subclasses below.

    Its text is one that can be shown on a terminal: control characters of the peer are escaped.

    Attributes:
        method: the JSON-RPC method of the request.
        request_id: its JSON-RPC id.
        attempts: how the attempts before this one failed, in order; empty where there were none.

    Args:
        lines: further lines of the text; ``message`` is one line.
    """

    attempts: tuple[CallError, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        method: str = "",
        request_id: RequestId | None = None,
        lines: Iterable[str] = (),
    ) -> None:
        super().__init__("\n".join(map(escape_controls, (message, *lines))))
        self.method = method
        self.request_id = request_id

    def note_attempts(self, attempts: Sequence[CallError]) -> None:
        """Name the attempts that failed before this one: in :attr:`attempts`, and in the text."""
        self.attempts = tuple(attempts)
        text, counted = str(self), Counter(map(str, attempts))
        if list(counted) == [text]:
            self.args = (f"{text} (so did {len(attempts)} attempts before)",)
            return
        lines = [f"- {count} of them: {said}" for said, count in counted.items()]
        more = f"{len(attempts)} attempts before this one have failed, too:"
        self.args = ("\n".join((text, more, *lines)),)


class JsonRpcError(CallError):
    """The peer answered with a JSON-RPC error; also what a handler raises to answer with one.

    Attributes:
        code: the JSON-RPC error code, an integer.
        message: the peer's one-sentence description, as it came.
        data: whatever JSON value came with it, or None.
        http_status: the HTTP status that came with it where that was no success, else None.

    Raises LocalProtocolError for a code that is no integer, or a message that is no string.
    """

    def __init__(
        self,
        code: int,
        message: str,
        data: Any = None,
        *,
        method: str = "",
        request_id: RequestId | None = None,
        http_status: int | None = None,
    ) -> None:
        check_type(int, code=code)
        check_type(str, message=message)
        super().__init__(f"{message} (code {code})", method=method, request_id=request_id)
        self.code = code
        self.message = message
        self.data = data
        self.http_status = http_status


class RequestTimeout(CallError):
    """No answer arrived in time. The peer was told that the request is cancelled.

    Attributes:
        seconds: how long we waited since the request was made.
    """

    def __init__(
        self,
        message: str,
        *,
        seconds: float,
        method: str,
        request_id: RequestId | None,
        lines: Iterable[str] = (),
    ) -> None:
        super().__init__(message, method=method, request_id=request_id, lines=lines)
        self.seconds = seconds


class RequestCancelled(CallError):
    """The request was cancelled on our side before it was answered."""


class Disconnected(CallError):
    """The connection that would have carried the answer is gone for good: the outcome is unknown.

    The request may or may not have been executed. It is never repeated without the caller's consent
    (``idempotent=True``).
    """


class ProcessEnded(CallError):
    """The server process has ended, or could not be started.

    Attributes:
        status: its exit status, the negative number of the signal that ended it, or None.
        log: the last lines of its standard error.
        output: the last lines of its standard output that are no messages. A command that is no MCP
            server says there what it is.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None,
        log: tuple[str, ...],
        output: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, lines=(*describe_noise(output), *log))
        self.status = status
        self.log = log
        self.output = output


def describe_noise(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines of a process that are no messages, as the texts of exceptions show them."""
    return tuple(f"(stdout, not an MCP message) {line}" for line in lines)


class SessionLost(CallError):
    """The server no longer knows the session (HTTP 404).

    A request that was answered so was not executed. One that was running before, and whose stream
    the server does not know any more, may have been executed or not.

    The client opens a new session by itself; the request can be made again there. As the error of a
    client that is closed: the server has forgotten one session after the other.
    """


class RequestRefused(CallError):
    """The server refused the HTTP request that carried the JSON-RPC request.

    Attributes:
        status: the HTTP status.
        http_method: the HTTP method, e.g. ``"POST"``.
        url: the URL that was asked, whole; the text of the exception shows it without its query.
        reason: ``error.data.reason`` of the server's answer when it has one, else None.
        challenges: the values of its ``WWW-Authenticate`` headers, as they came: which credentials
            it wants with a status of 401, or with 403 which more of them.
        body: the first bytes of the answer, for diagnosis.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        http_method: str,
        url: str,
        reason: str | None,
        challenges: tuple[str, ...] = (),
        body: bytes,
        method: str,
        request_id: RequestId | None,
    ) -> None:
        super().__init__(message, method=method, request_id=request_id)
        self.status = status
        self.http_method = http_method
        self.url = url
        self.reason = reason
        self.challenges = challenges
        self.body = body


class InvalidResponse(CallError):
    """The server's answer breaks the protocol; ``__cause__`` tells how where a codec found out."""


class NegotiationFailed(CallError):
    """Client and server have no protocol revision, or no transport, in common.

    Attributes:
        attempts: what was tried, in order, and how it failed; empty where it was one thing only.
    """

    def __init__(
        self,
        message: str,
        *,
        method: str = "",
        request_id: RequestId | None = None,
        attempts: tuple[CallError, ...] = (),
        lines: Iterable[str] = (),
    ) -> None:
        super().__init__(message, method=method, request_id=request_id, lines=lines)
        self.attempts = attempts


def error_response(request_id: RequestId, error: Exception) -> ErrorResponse:
    """The answer to a request whose handler raised.

    A JsonRpcError is sent as it is. Anything else becomes "Internal error" and shows nothing of
    itself: what went wrong inside is not for the peer.
    """
    if isinstance(error, JsonRpcError):
        return ErrorResponse(request_id, error.code, error.message, error.data)
    return ErrorResponse(request_id, -32603, "Internal error")
