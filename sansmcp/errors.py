"""The exceptions of the protocol core.

There are two families:

* :class:`ProtocolError`: a *rule* was broken. :class:`LocalProtocolError` means that the code that
  calls this library requested something the protocol does not allow; nothing has changed and the
  object stays usable. :class:`RemoteProtocolError` means that the peer sent something invalid; it
  carries the response for the peer.
* :class:`CallError`: a *request* ended without a result. The client machine reports one of its
  subclasses for every request that does not succeed; adapters raise it unchanged.

Machines never raise for input of a peer: they respond, and report an event. Codecs do raise
:class:`RemoteProtocolError`, because they have no events.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from .messages import ErrorResponse, RequestId
from .types import escape_controls

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Portable(Exception):
    """An exception that can be pickled and copied, with any constructor."""

    def __reduce__(self) -> tuple[Any, ...]:
        # That of Exception calls the constructor with the text alone.
        return _remake, (type(self), self.args), self.__dict__


def _remake(kind: type[Exception], arguments: tuple[Any, ...]) -> Exception:
    """Return an exception whose constructor has not been called."""
    return kind.__new__(kind, *arguments)


class ProtocolError(_Portable):
    """A rule of the protocol was broken. Abstract: always one of the two subclasses."""

    def __init__(self, message: str) -> None:
        if type(self) is ProtocolError:
            raise TypeError(
                "ProtocolError is abstract: raise LocalProtocolError or RemoteProtocolError"
            )
        super().__init__(message)

    @property
    def message(self) -> str:
        """The text: what is wrong, and what to do instead."""
        return str(self.args[0])


class LocalProtocolError(ProtocolError):
    """The caller requested something that the protocol or the current state forbids.

    It is raised before anything changes: the machine stays in its state, and usable.
    """


def check_type(kind: type[Any] | tuple[type[Any], ...], **given: object) -> None:
    """Raise LocalProtocolError for the first argument of another type, with its name.

    True and False are not numbers here. This is for constructors and commands; values that arrive
    often are checked only when their use fails.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for name, value in given.items():
        if type(value) in kinds:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and int in kinds):
            wanted = " or ".join(each.__name__ for each in kinds)
            raise LocalProtocolError(f"{name} must be {wanted}, and is {type(value).__name__}")


def instance_of_type(kind: type[Any] | tuple[type[Any], ...]) -> Callable[[Any, Any, Any], None]:
    """Return a validator of ``attrs`` that calls :func:`check_type`."""
    return lambda instance, attribute, value: check_type(kind, **{attribute.name: value})


def check_parameters(what: str, handler: Callable[..., object], *names: str) -> None:
    """Raise LocalProtocolError if a handler cannot be called with arguments of these names.

    Args:
        what: what it handles, for the text.
        handler: the function; one whose signature cannot be read is taken to be right.
        names: what the function gets, in this order.
    """
    try:
        parameters = inspect.signature(handler)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        parameters.bind(*names)
    except TypeError as error:
        name = getattr(handler, "__name__", None) or type(handler).__name__
        gets = f"{('one argument', 'two arguments')[len(names) - 1]}, the {' and the '.join(names)}"
        raise LocalProtocolError(
            f"The handler of {what} gets {gets}, and {name}{parameters} does not take that: "
            f"{error}. Write: def {name}({', '.join(names)})"
        ) from None


def check_positive_seconds(*durations: float) -> None:
    """Raise LocalProtocolError for a duration that is not above zero; infinity is allowed."""
    for seconds in durations:
        try:
            is_duration = seconds > 0
        except TypeError:  # for None, for example
            is_duration = False
        if not is_duration:
            raise LocalProtocolError(
                f"A duration must be a number of seconds above zero, got {seconds!r}; use math.inf "
                "for no limit"
            )


def check_delay(**delays: float | None) -> None:
    """Raise LocalProtocolError for a delay below zero or of another type; None is allowed."""
    for name, seconds in delays.items():
        if seconds is None:
            continue
        check_type((int, float), **{name: seconds})
        if not seconds >= 0:  # also false for NaN
            raise LocalProtocolError(f"{name} must not be below zero, and is {seconds}")


def check_settings(given: Iterable[str], function: str, known: Collection[str], whose: str) -> None:
    """Raise TypeError for the first setting that is not known, and name those that are.

    Args:
        given: the names of the settings.
        function: the name of the function or class that was called with them.
        known: the names that it takes.
        whose: the thing that has these settings, as the text names it.
    """
    for name in given:
        if name not in known:
            raise TypeError(_unknown_setting(name, function, known, whose))


def with_known_settings(
    function: str, whose: str
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorate a method whose keyword arguments are settings: :func:`check_settings` of each call.

    Args:
        function: the name that a program calls it by.
        whose: the thing that has these settings, as the text names it.
    """

    def decorate(method: Callable[_P, _R]) -> Callable[_P, _R]:
        _, *parameters = inspect.signature(method).parameters.values()  # without self
        known = [each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY]

        @functools.wraps(method)
        def checked(*args: _P.args, **settings: _P.kwargs) -> _R:
            check_settings(settings, function, known, whose)
            return method(*args, **settings)

        return checked

    return decorate


def _unknown_setting(name: str, function: str, known: Collection[str], whose: str) -> str:
    import difflib  # imported here because it is slow to import and rarely needed

    text = f"{function}() got an unexpected keyword argument {name!r}"
    near = difflib.get_close_matches(name, known, n=1)
    text += f"; did you mean {near[0]!r}?" if near else "."
    return f"{text} The settings of {whose} are {', '.join(sorted(known))}"


class RemoteProtocolError(ProtocolError):
    """The peer sent something that cannot be accepted.

    Attributes:
        reason: a short stable word that programs can match, e.g. ``"duplicate_name"``.
        http_status: the status of the HTTP response, if there is one to send.
        jsonrpc_code: the code of the JSON-RPC error.
        request_id: the id of the invalid message; None if it could not be read.
        is_request: True if the invalid message was meant as a request, so its id is the peer's.
        data: further members for ``error.data`` beside ``reason``.
        headers: further headers that the HTTP response must have, such as ``Allow``.
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
        """The error response for the peer; its ``data.reason`` is :attr:`reason`."""
        return ErrorResponse(
            self.request_id, self.jsonrpc_code, self.message, {"reason": self.reason, **self.data}
        )


class CallError(_Portable):
    """A request ended without a result. Always one of the subclasses below.

    Its text can be shown on a terminal: control characters of the peer are escaped.

    Attributes:
        method: the JSON-RPC method of the request.
        request_id: its JSON-RPC id.
        attempts: the errors of the attempts before this one, in order; empty if there were none.
        task_id: the id of the task that runs the call at the server; None if there is none. A
            client can attach to the task again by its id. It is not in the text, because
            the id alone may suffice to read the result.

    Args:
        lines: further lines of the text; ``message`` is one line.
    """

    attempts: tuple[CallError, ...] = ()
    task_id: str | None = None

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
        """Add the errors of earlier attempts to :attr:`attempts` and to the text."""
        self.attempts = tuple(attempts)
        text, counted = str(self), Counter(map(str, attempts))
        if list(counted) == [text]:
            self.args = (f"{text} (so did {len(attempts)} attempts before)",)
            return
        lines = [f"- {count} of them: {failure}" for failure, count in counted.items()]
        more = f"{len(attempts)} attempts before this one have failed, too:"
        self.args = ("\n".join((text, more, *lines)),)


class JsonRpcError(CallError):
    """The peer sent an error response. A handler raises it to send one.

    Attributes:
        code: the JSON-RPC error code, an integer.
        message: the peer's one-sentence description, as received.
        data: the JSON value of ``error.data``, or None.
        http_status: the status of the HTTP response if it was not a success, else None.

    Raises:
        LocalProtocolError: ``code`` is not an integer, or ``message`` is not a string.
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
    """No response arrived in time. The peer was sent a cancellation.

    Attributes:
        seconds: the time since the request was made.
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
    """The request was cancelled on this side before its response arrived."""


class Disconnected(CallError):
    """The connection was lost before the response arrived, or could not be opened.

    If the request was sent, its outcome is unknown: the server may have run it or not. Find out
    whether it took effect before you repeat it. If repeating does no harm, pass ``idempotent=True``
    and the client repeats it for you.

    Attributes:
        was_sent: False if no byte of the request was sent, so that the server has not run it.
    """

    def __init__(
        self,
        message: str,
        *,
        method: str = "",
        request_id: RequestId | None = None,
        lines: Iterable[str] = (),
        was_sent: bool = True,
    ) -> None:
        super().__init__(message, method=method, request_id=request_id, lines=lines)
        self.was_sent = was_sent


class ProcessEnded(CallError):
    """The server process has ended, or could not be started.

    Attributes:
        status: its exit status, the negative number of the signal that ended it, or None.
        log: the last lines of its standard error.
        output: the last lines of its standard output that are not messages. They help if the
            command is not an MCP server.
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
    """Return lines of a process that are not messages, as the texts of exceptions show them."""
    return tuple(f"(stdout, not an MCP message) {line}" for line in lines)


def describe_unread(texts: Iterable[str]) -> tuple[str, ...]:
    """Return what a server sent that is no response, as the texts of exceptions show it."""
    return tuple(f"(received, not a response) {text}" for text in texts)


class SessionLost(CallError):
    """The server has discarded the session (HTTP 404).

    The server did not run the request that it refused in this way. If it accepted the request
    before, and refused to resume its stream, it may have run the request or not.

    The client opens a new session by itself, in which you can repeat the request. If this error
    closed the client, the server has discarded several sessions in a row.

    Attributes:
        was_not_run: True if the server refused the request itself; False if it may have run it.
    """

    def __init__(
        self,
        message: str,
        *,
        method: str = "",
        request_id: RequestId | None = None,
        was_not_run: bool = False,
    ) -> None:
        super().__init__(message, method=method, request_id=request_id)
        self.was_not_run = was_not_run


class TaskCancelled(CallError):
    """The task that ran the call was cancelled, by another client or by the server."""


class TaskLost(CallError):
    """The server ran the call as a task and no longer gives its state: the outcome is unknown.

    A server keeps a task for a limited time. ``__cause__`` is the JsonRpcError that it sent.
    """


class RequestRefused(CallError):
    """The server refused the HTTP request that carried the JSON-RPC request.

    Attributes:
        status: the HTTP status.
        http_method: the HTTP method, e.g. ``"POST"``.
        url: the complete URL; the text of the exception shows it without its query.
        reason: ``error.data.reason`` of the response body if it has one, else None.
        challenges: the values of the ``WWW-Authenticate`` headers, as received. They name the
            credentials that the server requires (401), or the further ones (403).
        body: the first bytes of the HTTP response's body, for diagnosis.
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


class AuthorizationFailed(CallError):
    """The server requires authorization, and the client could not obtain it.

    Attributes:
        reason: a short stable word that programs can match, e.g. ``"access_denied"``. An error of
            the authorization server that is no word of OAuth is ``"refused"``.
        url: the URL of the request of the flow that failed, or of the MCP server if the token lacks
            scopes; empty if there is none. The text of the exception shows it without its query.
        scopes: the scopes to request, if the token lacks some; else empty.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        url: str = "",
        scopes: tuple[str, ...] = (),
        method: str = "",
        request_id: RequestId | None = None,
    ) -> None:
        super().__init__(message, method=method, request_id=request_id)
        self.reason = reason
        self.url = url
        self.scopes = scopes


class InvalidResponse(CallError):
    """The server's response breaks the protocol.

    ``__cause__`` is the RemoteProtocolError of a codec, if one found the fault.
    """


class ToolFailed(CallError):
    """A tool ran and failed: its result has ``isError``.

    Only ``call_tool(..., result_type=...)`` raises this, because it returns nothing but the
    converted result.

    Attributes:
        result: the whole result of the tool, a JSON object.
    """

    def __init__(self, message: str, *, result: dict[str, Any], method: str) -> None:
        super().__init__(message, method=method)
        self.result = result


class NegotiationFailed(CallError):
    """Client and server have no protocol revision, or no transport, in common.

    Attributes:
        attempts: the error of each attempt, in order; empty if there was only one.
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
    """Return the error response for a request whose handler raised ``error``.

    A JsonRpcError is sent as it is. Any other exception becomes "Internal error", code -32603,
    without its text, which could contain secrets.
    """
    if isinstance(error, JsonRpcError):
        return ErrorResponse(request_id, error.code, error.message, error.data)
    return ErrorResponse(request_id, -32603, "Internal error")
