"""The methods of a connected client, the same in every adapter.

Only the way of waiting differs between adapters. So the methods are written once, without waiting:
each returns what the adapter's own method returns, an awaitable in an asynchronous adapter, the
value in a blocking one. ``Result`` is the type in which an adapter returns a JSON result, ``Done``
the type in which it returns nothing. :mod:`.base_call` does the same for calls in a handler.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar

import attrs

from .codecs import json
from .errors import LocalProtocolError, check_type
from .events import Connected, ProgressReceived
from .messages import Params, RequestId
from .revisions import REVISIONS
from .tasks import CANCEL, RESULT_TYPE
from .types import Era, Unpack, Value, elide, redact

Result = TypeVar("Result")
Done = TypeVar("Done")

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


class TaskHandle(Generic[Result, Done]):
    """A call that the server runs as a task, or its result if the server had that at once.

    The task belongs to the server. It goes on if a method of this object is cancelled or times out,
    and after the client has closed.

    Attributes:
        id: the id of the task, with which :meth:`BaseClient.task` of any client of the same server
            and user gives this object again. None if the result is here already. Keep it out of
            logs: without authentication it is all that is needed to read the result.
        value: the result; None if there is an id.
    """

    def __init__(self, client: BaseClient[Result, Done], id: str | None, value: Any = None) -> None:
        self._client = client
        self.id = id
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={redact(self.id)})"

    def result(
        self,
        *,
        on_progress: OnProgress[Done] | None = None,
        timeout: float | None = None,
        total_timeout: float | None = None,
    ) -> Result:
        """Wait for the end of the call, and return its result.

        Args:
            on_progress, timeout, total_timeout: as in :meth:`BaseClient.call`.

        Raises:
            JsonRpcError: the call ended with an error.
            TaskCancelled: the task was cancelled.
            TaskLost: the server no longer knows the task.
            CallError: the wait ended in another way, and the task may go on.
        """
        return self._client.wait_for_task(
            self, on_progress=on_progress, timeout=timeout, total_timeout=total_timeout
        )

    def cancel(self) -> Result:
        """Ask the server to cancel the task; send nothing if the result is here already.

        The task may still end with a result. Raises the exceptions of :meth:`BaseClient.call`.
        """
        if self.id is None:
            return self.result()
        return self._client.call(CANCEL, {"taskId": self.id})


class BaseClient(abc.ABC, Generic[Result, Done]):
    """The methods of a connected client.

    Results are plain JSON values. Every method that sends a request raises the exceptions of
    :meth:`call`.
    """

    connected: Connected
    """The negotiated version, and the server's info, capabilities and instructions."""

    @property
    def has_tools(self) -> bool:
        """True if the server has declared the capability for tools."""
        return "tools" in self.connected.capabilities

    @abc.abstractmethod
    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[Done] | None = None,
        **settings: Unpack[CallSettings],
    ) -> Result:
        """Send a request and return its result.

        Args:
            method, params: the JSON-RPC request.
            on_progress: a function that is called with each progress report, in order; in an
                asynchronous adapter it can be async. An exception that it raises ends the call.
            settings: ``timeout`` (seconds without a response and without progress),
                ``total_timeout`` (seconds in all), ``reset_on_progress``, ``idempotent`` (the
                client may repeat the request if its outcome is unknown), and ``meta`` (further
                members of ``_meta``); see :meth:`sansmcp.Client.call`.

        Returns:
            The result, a plain JSON value.

        Raises:
            JsonRpcError: the server sent an error response.
            CallError: the call ended in another way, such as RequestTimeout, Disconnected,
                SessionLost or RequestRefused.
            LocalProtocolError: the request cannot be sent; see :meth:`sansmcp.Client.call`.
        """

    @abc.abstractmethod
    def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> Done:
        """Send a notification. The event MessageUndelivered reports that it did not arrive.

        Args:
            method, params: the JSON-RPC notification.
            meta: further members of ``_meta``.

        Raises:
            LocalProtocolError: the notification cannot be sent; see :meth:`sansmcp.Client.notify`.
        """

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[Done] | None = None,
        **settings: Unpack[CallSettings],
    ) -> Result:
        """Call a tool and return its result; see :meth:`call` for the other arguments.

        If the tool ran and failed, the result has ``isError`` true; nothing is raised.

        Args:
            name: the name of the tool.
            arguments: its arguments by name; None for none.
        """
        params = tool_params(name, arguments)
        return self.call("tools/call", params, on_progress=on_progress, **settings)

    def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[Done] | None = None,
        **settings: Unpack[CallSettings],
    ) -> Any:
        """Call a tool, and return a :class:`TaskHandle` as soon as the server has made it a task.

        The server alone decides whether it does; otherwise the handle holds the result. The call
        outlives this client if the handle has an id: store that, and get the handle again with
        :meth:`task`. :meth:`call_tool` follows tasks as well, but cancels them with its caller.

        Args and exceptions are those of :meth:`call_tool`. An adapter need not offer this.
        """
        raise NotImplementedError

    def task(self, task_id: str) -> TaskHandle[Result, Done]:
        """Return the handle of a task that was started before, by this client or another one.

        Nothing is sent. An id is valid at the server that made it, for the same user.

        Raises:
            LocalProtocolError: ``task_id`` is not a string, such as the None of a handle that holds
                its result.
        """
        check_type(str, task_id=task_id)
        return TaskHandle(self, task_id)

    def list_tools(self, cursor: str | None = None) -> Result:
        """Return a page of tools.

        Pass ``nextCursor`` of the result, if it has one, as ``cursor`` to get the next page.
        """
        return self.call("tools/list", _page(cursor))

    def list_resources(self, cursor: str | None = None) -> Result:
        """Return a page of resources; ``cursor`` is as in :meth:`list_tools`."""
        return self.call("resources/list", _page(cursor))

    def list_resource_templates(self, cursor: str | None = None) -> Result:
        """Return a page of resource templates; ``cursor`` is as in :meth:`list_tools`."""
        return self.call("resources/templates/list", _page(cursor))

    def read_resource(self, uri: str) -> Result:
        """Return the contents of a resource."""
        return self.call("resources/read", {"uri": uri})

    def list_prompts(self, cursor: str | None = None) -> Result:
        """Return a page of prompts; ``cursor`` is as in :meth:`list_tools`."""
        return self.call("prompts/list", _page(cursor))

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Result:
        """Return the messages of a prompt for these arguments."""
        return self.call("prompts/get", {"name": name, "arguments": _object(arguments)})

    def ping(self, **settings: Unpack[CallSettings]) -> Result:
        """Check that the server responds; the content of the result does not matter.

        2026-07-28 has no ``ping``, so this sends ``server/discover`` there.
        """
        is_modern = REVISIONS[self.connected.version].era is Era.MODERN
        return self.call("server/discover" if is_modern else "ping", **settings)

    # For TaskHandle and adapters

    def wait_for_task(
        self,
        task: TaskHandle[Result, Done],
        *,
        on_progress: OnProgress[Done] | None,
        timeout: float | None,
        total_timeout: float | None,
    ) -> Result:
        """Wait for the result of a handle; see :meth:`TaskHandle.result`."""
        raise NotImplementedError

    def handle_of(self, result: Any) -> TaskHandle[Result, Done]:
        """Return the handle for the result of a detached call; see :meth:`sansmcp.Client.call`."""
        members = json.as_object(result) or {}
        if members.get("resultType") == RESULT_TYPE:
            return TaskHandle(self, members["taskId"])
        return TaskHandle(self, None, result)


def tool_params(name: str, arguments: Mapping[str, Any] | None) -> Params:
    """Return the parameters of ``tools/call``.

    Raises LocalProtocolError if the arguments are not a mapping.
    """
    return {"name": name, "arguments": _object(arguments)}


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


def _page(cursor: str | None) -> Params | None:
    return None if cursor is None else {"cursor": cursor}
