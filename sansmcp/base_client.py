"""What the connected clients of all adapters share, without waiting.

An adapter writes the methods of its client in its own style, asynchronous or blocking; the
parameters that they send, and what their functions get, are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypedDict, TypeVar

import attrs

from .codecs import json
from .errors import LocalProtocolError
from .events import ProgressReceived
from .messages import Params, RequestId
from .revisions import REVISIONS
from .tasks import CANCEL, RESULT_TYPE
from .types import Era, Value, elide

Done = TypeVar("Done")
"""What a method returns that has no result: None, or an awaitable of it."""

OnProgress: TypeAlias = Callable[[ProgressReceived], Done | None]
"""Called with each progress report of a call, in order.

In an asynchronous adapter it can be an async function: the method that made the call awaits it, and
returns after the last report was handled. A plain function runs in the event loop and must not
block. An exception that it raises ends the call, and the method that made the call raises it.
"""


class CallSettings(TypedDict, total=False):
    """Keyword arguments of :meth:`sansmcp.Client.call`, for ``Unpack`` in adapters.

    The methods of a connected client fill in the others themselves.
    """

    timeout: float | None
    total_timeout: float | None
    reset_on_progress: bool
    idempotent: bool | None
    meta: Mapping[str, Any] | None


@attrs.frozen(eq=False, repr=False)
class OriginatingCall(Value):
    """The call of this client to which a server request belongs."""

    handle: int
    """What :meth:`sansmcp.Client.call` returned."""
    method: str
    params: Params
    """The parameters that the application gave; empty if there were none."""


@attrs.frozen(eq=False, repr=False)
class ServerRequest(Value):
    """A server request, such as ``elicitation/create``: the argument of a request handler.

    The handler returns the result, a JSON object, or raises JsonRpcError.
    """

    id: RequestId = attrs.field(repr=False)
    method: str
    params: Params = attrs.field(repr=elide)
    """The parameters; empty if there are none."""
    call: OriginatingCall | None
    """The call to which the request belongs. None if the transport does not show it: on stdio and
    HTTP+SSE before 2026-07-28, and on the standalone stream.
    """

    @property
    def meta(self) -> Mapping[str, Any]:
        """``_meta`` of the parameters; empty if there is none."""
        return json.as_object(self.params.get("_meta")) or {}


class PendingResult:
    """The result or exception of an operation that has not ended yet.

    The first ``set_result()`` or ``set_exception()`` counts; later ones have no effect. An adapter
    adds the way of waiting.

    Attributes:
        is_done: True after the result or exception was set.
    """

    def __init__(self) -> None:
        self.is_done = False
        self._value: Any = None
        self._error: Exception | None = None

    def set_result(self, value: Any = None) -> None:
        """Set the result."""
        self._complete(value, None)

    def set_exception(self, error: Exception) -> None:
        """Set the exception to raise instead of a result."""
        self._complete(None, error)

    def _complete(self, value: Any, error: Exception | None) -> None:
        if not self.is_done:
            self.is_done, self._value, self._error = True, value, error

    def result(self) -> Any:
        """Return the result, or raise the exception. Call this only if :attr:`is_done` is true."""
        if self._error is not None:
            raise self._error
        return self._value


Call: TypeAlias = tuple[str, Params]
"""The method and the parameters of a request."""


def tool_call(name: str, arguments: Mapping[str, Any] | None) -> Call:
    """Return the call of a tool. Raises LocalProtocolError if the arguments are not a mapping."""
    return "tools/call", {"name": name, "arguments": _object(arguments)}


def prompt_call(name: str, arguments: Mapping[str, str] | None) -> Call:
    """Return the call for the messages of a prompt.

    Raises LocalProtocolError if the arguments are not a mapping.
    """
    return "prompts/get", {"name": name, "arguments": _object(arguments)}


def resource_call(uri: str) -> Call:
    """Return the call for the contents of a resource."""
    return "resources/read", {"uri": uri}


def task_cancellation(task_id: str) -> Call:
    """Return the call that cancels a task."""
    return CANCEL, {"taskId": task_id}


def ping_method(version: str) -> str:
    """Return the method that any server of a version responds to: 2026-07-28 has no ``ping``."""
    return "server/discover" if REVISIONS[version].era is Era.MODERN else "ping"


def task_id_of(result: Any) -> str | None:
    """Return the id of the task that a detached call has become; None if this is its result.

    See :meth:`sansmcp.Client.call` for detached calls.
    """
    members = json.as_object(result) or {}
    return members["taskId"] if members.get("resultType") == RESULT_TYPE else None


def _object(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of a tool or prompt as a dict.

    Raises LocalProtocolError if they are not a mapping.
    """
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(arguments).__name__
        raise LocalProtocolError(
            f"arguments must be a mapping from names to values, such as {{'text': 'hello'}}, got "
            f"{kind}"
        )
    return dict(arguments)
