"""The common parts of blocking clients. The thread that waits runs the machine meanwhile."""

from __future__ import annotations

import abc
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

import sansmcp
from sansmcp import PendingResult, typed_results
from sansmcp.auth.options import Login
from sansmcp.base_client import OnProgress
from sansmcp.codecs.conversion import check_convertible
from sansmcp.drivers.client import RequestHandler
from sansmcp.events import ClientEvent, Reconnecting
from sansmcp.messages import Params
from sansmcp.types import Self, Unpack, escape_controls, shown_call

from .._interrupts import ki_protected, ki_unprotected
from .._log import log_first_failure, log_unexpected

_logger = logging.getLogger("sansmcp")

Converted = TypeVar("Converted")

TaskHandle: TypeAlias = sansmcp.TaskHandle[Any, None]


class ThreadClient(sansmcp.ClientDriver[Any, None]):
    """A blocking client. While a method waits, it runs everything else the client has to do."""

    def __init__(
        self, core: sansmcp.Client, request_handlers: Mapping[str, RequestHandler] | None
    ) -> None:
        self._is_open, self._is_closed = PendingResult(), PendingResult()
        for method, answer in (request_handlers or {}).items():
            check_plain(f"request_handlers[{method!r}]", answer)
        super().__init__(core, request_handlers, self._is_open, self._is_closed)
        self._request_handlers = {
            method: _interruptible(answer) for method, answer in self._request_handlers.items()
        }
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any: ...

    @overload
    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Converted],
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Converted: ...

    def call(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Any] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any:
        """Send a request, and wait for its result. Interrupting the wait cancels the request.

        Args:
            method: any method of MCP, such as ``"tools/call"``.
            params: its parameters.
            on_progress: a plain function, called with each ProgressReceived. If it raises, the call
                is cancelled, and this method raises the same.
            result_type: the type to which the result is converted: a msgspec struct, a dataclass, a
                TypedDict, or a class with ``model_validate``, such as a pydantic model.
            settings: ``timeout``, ``total_timeout``, ``reset_on_progress``, ``idempotent`` and
                ``meta``, which :meth:`sansmcp.Client.call` explains.

        Returns:
            The result of the response.

        Raises:
            CallError: the call failed; the subclass says how. InvalidResponse: the result does not
                fit ``result_type``.
            LocalProtocolError: an argument is wrong, or another thread uses the client.
        """
        check_plain("on_progress", on_progress)
        if result_type is not None:
            check_convertible(result_type)
        with self.using():
            pending = PendingResult()
            handle = self.begin_call(pending, method, params, on_progress, settings)
            result = self._result_of(handle, pending)
        if result_type is None:
            return result
        return typed_results.typed_result(result, result_type, method)

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any: ...

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Converted],
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Converted: ...

    def call_tool(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Any] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any:
        """Call a tool, and wait for its result.

        Without ``result_type``, the result of a tool that ran and failed has ``isError`` true, and
        nothing is raised.

        Args:
            name: the name of the tool.
            arguments: its arguments by name; None for none.
            on_progress: as in :meth:`call`.
            result_type: the type to which the structured content of the result is converted; see
                :meth:`call`.
            settings: as in :meth:`call`.

        Returns:
            The result, a JSON object; with ``result_type`` a value of that type.

        Raises:
            ToolFailed: ``result_type`` is given, and the tool failed.
            CallError: as in :meth:`call`. InvalidResponse: there is no structured content, or it
                does not fit ``result_type``.
            LocalProtocolError: an argument is wrong, or another thread uses the client.
        """
        if result_type is not None:
            check_convertible(result_type)
        result = super().call_tool(name, arguments, on_progress=on_progress, **settings)
        if result_type is None:
            return result
        return typed_results.typed_tool_result(result, result_type)

    if TYPE_CHECKING:  # the methods of BaseClient, with the types of their results

        def list_tools(self, cursor: str | None = None) -> sansmcp.schema.ListToolsResult: ...

        def list_resources(
            self, cursor: str | None = None
        ) -> sansmcp.schema.ListResourcesResult: ...

        def list_resource_templates(
            self, cursor: str | None = None
        ) -> sansmcp.schema.ListResourceTemplatesResult: ...

        def list_prompts(self, cursor: str | None = None) -> sansmcp.schema.ListPromptsResult: ...

        def read_resource(self, uri: str) -> sansmcp.schema.ReadResourceResult: ...

        def get_prompt(
            self, name: str, arguments: Mapping[str, str] | None = None
        ) -> sansmcp.schema.GetPromptResult: ...

    def tools(self) -> Iterator[sansmcp.schema.Tool]:
        """Iterate over all tools; each page is requested when it is needed.

        The iterator raises the exceptions of :meth:`call`, and InvalidResponse if a page has the
        cursor of its own, or if there are more than 1,000 pages.
        """
        return self._items(typed_results.TOOLS)

    def prompts(self) -> Iterator[sansmcp.schema.Prompt]:
        """Iterate over all prompts, as :meth:`tools` does."""
        return self._items(typed_results.PROMPTS)

    def resources(self) -> Iterator[sansmcp.schema.Resource]:
        """Iterate over all resources, as :meth:`tools` does."""
        return self._items(typed_results.RESOURCES)

    def resource_templates(self) -> Iterator[sansmcp.schema.ResourceTemplate]:
        """Iterate over all resource templates, as :meth:`tools` does."""
        return self._items(typed_results.RESOURCE_TEMPLATES)

    def skills(self) -> Iterator[sansmcp.Skill]:
        """Iterate over the skills that the server lists; it may have others, too.

        No file is read. The iterator raises LocalProtocolError if the server declares no skills,
        and the exceptions of :meth:`tools`.
        """
        sansmcp.skills.check_declared(self.connected.capabilities)
        for entry in self._items(sansmcp.skills.SKILLS):
            yield sansmcp.skills.skill_of(entry, self.core.target)

    def get_skill(self, uri: str) -> sansmcp.Skill:
        """Return the skill of a URI, which need not be listed, as it is now.

        Raises:
            LocalProtocolError: the server declares no skills.
            CallError, JsonRpcError: as in :meth:`call`.
        """
        sansmcp.skills.check_declared(self.connected.capabilities)
        result = self.call(*sansmcp.skills.get_request(uri))
        return sansmcp.skills.skill_in(result, self.core.target)

    def read_skill(self, skill: sansmcp.Skill, path: str | None = None) -> str | bytes:
        """Read a file of a skill, and verify that it is what the entry says.

        Digest and size are verified, and of ``SKILL.md`` the frontmatter, which needs the extra
        ``skills``. Nothing is kept: what is read again is verified again. Ask a person before a
        model gets it, say which server it is from, and do nothing that its frontmatter asks for
        without asking, too.

        Args:
            skill: the entry, of :meth:`skills` or :meth:`get_skill` of a client of this server.
            path: the path of the file in the folder of the skill, as its URI has it; None for its
                ``SKILL.md``.

        Returns:
            The text, or the bytes of what is no text.

        Raises:
            SkillMismatch: the file is not what the entry says, or is not listed in it.
            LocalProtocolError: the skill is of another server.
            ModuleNotFoundError: the extra is not installed.
            CallError, JsonRpcError: as in :meth:`call`.
        """
        from .._frontmatter import parse_frontmatter

        uri = sansmcp.skills.file_uri(skill, path, self.core.target)
        return sansmcp.skills.verified(skill, uri, self.read_resource(uri), parse_frontmatter)

    def _items(self, listing: typed_results.Listing) -> Iterator[Any]:
        pages = typed_results.Pages(listing)
        while not pages.is_done:
            yield from pages.items(self.call(pages.method, pages.params))

    def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> TaskHandle:
        """Call a tool, and return a handle as soon as the server has made a task of the call.

        The server alone decides whether it does; otherwise the handle holds the result. If the
        handle has an id, the call outlives this client. The arguments and exceptions are those of
        :meth:`call_tool`.
        """
        check_plain("on_progress", on_progress)
        with self.using():
            pending = PendingResult()
            handle = self.begin_task(pending, name, arguments, on_progress, settings)
            return self.handle_of(self._result_of(handle, pending))

    def wait_for_task(
        self,
        task: TaskHandle,
        *,
        on_progress: OnProgress[None] | None = None,
        timeout: float | None = None,
        total_timeout: float | None = None,
    ) -> Any:
        """Wait for the result of a handle; ``task.result()`` calls this."""
        check_plain("on_progress", on_progress)
        if task.id is None:
            return task.value
        with self.using():
            pending = PendingResult()
            handle = self.begin_attach(pending, task.id, on_progress, timeout, total_timeout)
            return self._result_of(handle, pending)

    def _result_of(self, handle: int, pending: PendingResult) -> Any:
        """Wait for the result of a call."""
        try:
            self.wait(lambda: pending.is_done)
        finally:
            self.abandon_call(handle)
            self.flush()
        return pending.result()

    def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification. Raises LocalProtocolError if it cannot be sent."""
        with self.using():
            self.core.notify(method, params, meta=meta, now=time.monotonic())
            self.flush()

    @abc.abstractmethod
    def close(self) -> None:
        """End the session. Calls in flight fail with RequestCancelled. May be called twice.

        Returns after ``close_timeout`` seconds at the latest, whatever the server does.
        """

    # For adapters

    def using(self) -> AbstractContextManager[None]:
        """Lock the machine. KeyboardInterrupt is delayed to the end of the block, or to a wait.

        Raises:
            LocalProtocolError: another thread is using the client.
        """
        return ki_protected(self._lock)

    def open(self) -> Self:
        """Do the handshake. ``connect()`` calls this.

        Raises:
            CallError: the handshake failed, and the client is closed.
        """
        try:
            with self.using():
                self.begin_session()
                self.wait(lambda: self._is_open.is_done)
                self._is_open.result()
                self.flush()
        except BaseException:
            self.close()
            raise
        return self

    def log_out(self) -> None:
        """Revoke and delete the stored tokens, instead of :meth:`open`, and close the client.

        Raises:
            AuthorizationFailed: see :func:`sansmcp_blocking.log_out`, which calls this.
        """
        try:
            with self.using():
                self.begin_log_out()
                self.wait(lambda: self._is_open.is_done)
                self._is_open.result()
        finally:
            self.close()

    @abc.abstractmethod
    def wait(self, is_done: Callable[[], bool]) -> object:
        """Run the client until ``is_done()`` is true.

        An exception of a request handler is sent to the server as an error.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Wait until everything is sent."""

    def now(self) -> float:
        return time.monotonic()

    def run_login(self, login: Login, url: str) -> None:
        """Call the function, which can be interrupted while it waits for a person."""
        with ki_unprotected():
            result = login(url)
        self.login_ended(url, result)

    def unexpected(self, error: Exception) -> None:
        log_unexpected(error)

    def on_first_failure(self, event: Reconnecting) -> None:
        log_first_failure(event)

    def on_handler_error(self, request: sansmcp.ServerRequest, error: Exception) -> None:
        _logger.error("the handler of %s failed", escape_controls(request.method), exc_info=error)


class PendingCall(PendingResult):
    """A call in flight; :meth:`ConcurrentClient.start_call` returns it."""

    handle: int

    def __init__(self, client: ConcurrentClient, method: str, params: Params | None) -> None:
        super().__init__()
        self._client = client
        self._what = method, params

    def __repr__(self) -> str:
        return f"<PendingCall {shown_call(*self._what)}{' ended' if self.is_done else ''}>"

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end of the call, and return its result.

        Args:
            timeout: seconds to wait; None to wait without a limit.

        Raises:
            CallError: the call failed.
            TimeoutError: the call has not ended after ``timeout`` seconds. It goes on.
        """
        if not self._client.wait(lambda: self.is_done, timeout):
            raise TimeoutError(f"The call has not ended in {timeout} seconds")
        self._client.flush()  # after a timeout this sends the cancellation
        return super().result()

    def cancel(self) -> None:
        """Cancel the call: it fails with RequestCancelled, and the server is notified."""
        self._client.cancel(self)


class ConcurrentClient(ThreadClient):
    """A blocking client that can have several requests in flight at once."""

    def start_call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> PendingCall:
        """Send a request, and return without waiting for its result.

        Several calls can be in flight at once. All of them go on while any method waits. The
        arguments are those of :meth:`call`.
        """
        check_plain("on_progress", on_progress)
        with self.using():
            pending = PendingCall(self, method, params)
            pending.handle = self.begin_call(pending, method, params, on_progress, settings)
            try:
                self.flush()
            except BaseException:
                pending.cancel()
                raise
            return pending

    def cancel(self, pending: PendingCall) -> None:
        """Cancel a call, as :meth:`PendingCall.cancel` does."""
        with self.using():
            if pending.handle in self._pending_calls:
                self._pending_calls[pending.handle].on_progress = None  # its reports are not wanted
                self.core.cancel(pending.handle, now=time.monotonic())
                self.flush()

    def events(self, timeout: float | None = None) -> Iterator[ClientEvent]:
        """Iterate over events that belong to no call: notifications, reconnections, a lost session.

        Events are queued from the first call of this method on. If ``limits.max_queued_events`` of
        them are queued, the client stops reading from the server until some are consumed, and calls
        may time out meanwhile.

        Args:
            timeout: seconds to wait for each event before the iterator ends; 0 to get only the
                events that are queued already; None to wait until the client is closed.
        """
        self.keeps_events = True
        return iter(partial(self._next_event, timeout), None)

    def close(self) -> None:
        with self.using():
            try:
                self.begin_close()
                self.wait(lambda: self._is_closed.is_done)
            finally:
                self._is_closed.set_result()  # also where the wait was interrupted
                self.free()

    # For adapters

    @abc.abstractmethod
    def free(self) -> None:
        """Abort what runs, and release all resources. May be called twice."""

    def _next_event(self, timeout: float | None) -> ClientEvent | None:
        with self.using():
            if not self._events:
                self.wait(lambda: bool(self._events) or self._is_closed.is_done, timeout)
            return self.next_unclaimed_event()

    @abc.abstractmethod
    def wait(self, is_done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Run the client until ``is_done()`` is true, or ``timeout`` seconds have passed.

        Returns:
            The last result of ``is_done()``.
        """


def _interruptible(answer: RequestHandler) -> RequestHandler:
    """Wrap a function of the application so that KeyboardInterrupt may stop it."""

    def give(request: sansmcp.ServerRequest) -> Mapping[str, Any]:
        with ki_unprotected():
            return answer(request)

    return give


def check_plain(name: str, function: object) -> None:
    """Raise LocalProtocolError for an async function: no event loop is there to await it."""
    if inspect.iscoroutinefunction(function):
        raise sansmcp.LocalProtocolError(
            f"{name} is an async function, and this client blocks; use def, or connect() of "
            "sansmcp_asyncio or sansmcp_trio"
        )
