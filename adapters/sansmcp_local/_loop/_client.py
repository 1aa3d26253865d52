"""The common parts of clients in event loops: calls, events, and async request handlers."""

from __future__ import annotations

import abc
import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

import sansmcp
from sansmcp import typed_results
from sansmcp.auth.options import Login
from sansmcp.base_client import OnProgress
from sansmcp.codecs.conversion import check_convertible
from sansmcp.effects import (
    AbortExchange,
    AuthEffect,
    LoadCredentials,
    MakeKey,
    OpenExchange,
    ProcessEffect,
    SignJwt,
    TransportEffect,
    UnlockCredentials,
)
from sansmcp.events import ClientEvent, Reconnecting, ServerRequestCancelled
from sansmcp.messages import Params, RequestId
from sansmcp.types import Self, Unpack, escape_controls

from .._log import log_first_failure, log_unexpected
from .._threads._thread_pool import ThreadPool
from ._loops import Event, Loop, Task
from ._machine import PendingResult, TimeoutScheduler

_logger = logging.getLogger("sansmcp")

Converted = TypeVar("Converted")

_SAVE_TIMEOUT = 5.0
"""Seconds for which a client that closes waits for the storage of its credentials."""

RequestHandler: TypeAlias = Callable[
    [sansmcp.ServerRequest], Awaitable[Mapping[str, Any]] | Mapping[str, Any]
]
"""Return the result of a server request, a JSON object, or raise JsonRpcError.

It may be an async function. A plain one runs in the event loop and must not block.
"""


TaskHandle: TypeAlias = sansmcp.TaskHandle[Awaitable[Any], Awaitable[None]]


class Pool(Protocol):
    """Performs HTTP exchanges."""

    def send_request(self, effect: OpenExchange) -> None:
        """Begin an exchange: send its request, and feed its response to the machine."""

    def abort(self, exchange: int) -> None:
        """Abort an exchange; without effect if it has ended."""


class Process(Protocol):
    """Runs the server process of a client."""

    def perform(self, effect: ProcessEffect) -> None:
        """Perform an effect on the process."""


def perform(effect: TransportEffect, pool: Pool, process: Process) -> None:
    """Perform an effect of a client machine, by the pool or by the process."""
    match effect:
        case OpenExchange():
            pool.send_request(effect)
        case AbortExchange(exchange=exchange):
            pool.abort(exchange)
        case _:
            process.perform(effect)


class _CallResult(PendingResult):
    """The result of a call, with the awaitables of ``on_progress`` that come before it."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop.event())
        self._loop = loop
        self.reports: deque[Awaitable[None]] = deque()
        """What ``on_progress`` returned and is not awaited yet, in order."""

    def add(self, report: Awaitable[None]) -> None:
        """Add an awaitable of ``on_progress`` for the waiting task."""
        self.reports.append(report)
        self._delivered.set()

    async def next_report(self) -> Awaitable[None] | None:
        """Wait for the next report. Return None if the call has ended and no report is left."""
        while True:
            await self._delivered.wait()
            if self.reports or self.is_done:
                return self.reports.popleft() if self.reports else None
            self._delivered = self._loop.event()

    def drop(self) -> int:
        """Discard the reports that are left, and return their number."""
        for report in self.reports:
            if isinstance(report, Coroutine):
                report.close()
        return len(self.reports)


class Client(sansmcp.ClientDriver[Awaitable[Any], Awaitable[None]]):
    """A client in an event loop; ``connect()`` makes it. Call its methods from any task."""

    def __init__(
        self,
        core: sansmcp.Client,
        loop: Loop,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        self._is_open, self._is_closed = PendingResult(loop.event()), PendingResult(loop.event())
        super().__init__(core, request_handlers, self._is_open, self._is_closed)
        self._loop = loop
        self._scheduler = TimeoutScheduler(loop, self.next_deadline, self.handle_timeout)
        self._answering: dict[RequestId, tuple[sansmcp.ServerRequest, Task]] = {}
        self._storing: ThreadPool | None = None
        """One thread at most, which calls a storage that may block."""
        self._saved: Event | None = None
        """Set when the storage has performed the last effect that changes it."""
        self._reports = 0
        """Number of progress reports whose awaitables are not finished."""
        self._is_over = False

    # For applications

    @overload
    async def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        result_type: None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any: ...

    @overload
    async def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        result_type: type[Converted],
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Converted: ...

    async def call(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        result_type: type[Any] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any:
        """Send a request, and wait for its result. Cancelling the caller cancels the request.

        Args:
            method: any method of MCP, such as ``"tools/call"``.
            params: its parameters.
            on_progress: called with each ProgressReceived. If it is async, this method awaits it
                for each report in turn, and returns after the last one. If it raises, the call is
                cancelled, and this method raises the same.
            result_type: the type to which the result is converted: a msgspec struct, a dataclass, a
                TypedDict, or a class with ``model_validate``, such as a pydantic model.
            settings: ``timeout``, ``total_timeout``, ``reset_on_progress``, ``idempotent`` and
                ``meta``, which :meth:`sansmcp.Client.call` explains.

        Returns:
            The result of the response.

        Raises:
            CallError: the call failed; the subclass says how. InvalidResponse: the result does not
                fit ``result_type``.
            LocalProtocolError: an argument is wrong, or the client belongs to another event loop.
        """
        self._check_loop()
        if result_type is not None:
            check_convertible(result_type)
        pending = _CallResult(self._loop)
        handle = self.begin_call(pending, method, params, on_progress, settings)
        result = await self._result_of(handle, pending)
        if result_type is None:
            return result
        return typed_results.typed_result(result, result_type, method)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        result_type: None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        result_type: type[Converted],
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Converted: ...

    async def call_tool(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
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
            LocalProtocolError: an argument is wrong, or the client belongs to another event loop.
        """
        if result_type is not None:
            check_convertible(result_type)
        result = await super().call_tool(name, arguments, on_progress=on_progress, **settings)
        if result_type is None:
            return result
        return typed_results.typed_tool_result(result, result_type)

    if TYPE_CHECKING:  # the methods of BaseClient, with the types of their results

        async def list_tools(self, cursor: str | None = None) -> sansmcp.schema.ListToolsResult: ...

        async def list_resources(
            self, cursor: str | None = None
        ) -> sansmcp.schema.ListResourcesResult: ...

        async def list_resource_templates(
            self, cursor: str | None = None
        ) -> sansmcp.schema.ListResourceTemplatesResult: ...

        async def list_prompts(
            self, cursor: str | None = None
        ) -> sansmcp.schema.ListPromptsResult: ...

        async def read_resource(self, uri: str) -> sansmcp.schema.ReadResourceResult: ...

        async def get_prompt(
            self, name: str, arguments: Mapping[str, str] | None = None
        ) -> sansmcp.schema.GetPromptResult: ...

    def tools(self) -> AsyncGenerator[sansmcp.schema.Tool, None]:
        """Iterate over all tools; each page is requested when it is needed.

        The iterator raises the exceptions of :meth:`call`, and InvalidResponse if a page has the
        cursor of its own, or if there are more than 1,000 pages.
        """
        return self._items(typed_results.TOOLS)

    def prompts(self) -> AsyncGenerator[sansmcp.schema.Prompt, None]:
        """Iterate over all prompts, as :meth:`tools` does."""
        return self._items(typed_results.PROMPTS)

    def resources(self) -> AsyncGenerator[sansmcp.schema.Resource, None]:
        """Iterate over all resources, as :meth:`tools` does."""
        return self._items(typed_results.RESOURCES)

    def resource_templates(self) -> AsyncGenerator[sansmcp.schema.ResourceTemplate, None]:
        """Iterate over all resource templates, as :meth:`tools` does."""
        return self._items(typed_results.RESOURCE_TEMPLATES)

    async def skills(self) -> AsyncGenerator[sansmcp.Skill, None]:
        """Iterate over the skills that the server lists; it may have others, too.

        No file is read. The iterator raises LocalProtocolError if the server declares no skills,
        and the exceptions of :meth:`tools`.
        """
        sansmcp.skills.check_declared(self.connected.capabilities)
        async for entry in self._items(sansmcp.skills.SKILLS):
            yield sansmcp.skills.skill_of(entry, self.core.target)

    async def get_skill(self, uri: str) -> sansmcp.Skill:
        """Return the skill of a URI, which need not be listed, as it is now.

        Raises:
            LocalProtocolError: the server declares no skills.
            CallError, JsonRpcError: as in :meth:`call`.
        """
        sansmcp.skills.check_declared(self.connected.capabilities)
        result = await self.call(*sansmcp.skills.get_request(uri))
        return sansmcp.skills.skill_in(result, self.core.target)

    async def read_skill(self, skill: sansmcp.Skill, path: str | None = None) -> str | bytes:
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
        return sansmcp.skills.verified(skill, uri, await self.read_resource(uri), parse_frontmatter)

    async def _items(self, listing: typed_results.Listing) -> AsyncGenerator[Any, None]:
        pages = typed_results.Pages(listing)
        while not pages.is_done:
            for item in pages.items(await self.call(pages.method, pages.params)):
                yield item

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> TaskHandle:
        """Call a tool, and return a handle as soon as the server has made a task of the call.

        The server alone decides whether it does; otherwise the handle holds the result. If the
        handle has an id, the call outlives this client. The arguments and exceptions are those of
        :meth:`call_tool`.
        """
        self._check_loop()
        pending = _CallResult(self._loop)
        handle = self.begin_task(pending, name, arguments, on_progress, settings)
        return self.handle_of(await self._result_of(handle, pending))

    async def wait_for_task(
        self,
        task: TaskHandle,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        timeout: float | None = None,
        total_timeout: float | None = None,
    ) -> Any:
        """Wait for the result of a handle; ``task.result()`` calls this."""
        self._check_loop()
        if task.id is None:
            return task.value
        pending = _CallResult(self._loop)
        handle = self.begin_attach(pending, task.id, on_progress, timeout, total_timeout)
        return await self._result_of(handle, pending)

    async def _result_of(self, handle: int, pending: _CallResult) -> Any:
        """Wait for the result of a call, and await its progress reports meanwhile."""
        try:
            while (report := await pending.next_report()) is not None:
                try:
                    await report
                finally:
                    self._reports_done(1)
            return pending.result()
        finally:
            self._reports_done(pending.drop())
            self.abandon_call(handle)

    async def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification. Raises LocalProtocolError if it cannot be sent."""
        self._check_loop()
        self.core.notify(method, params, meta=meta, now=self._loop.now())
        self.run_pending()
        await self._loop.checkpoint()

    def events(self) -> AsyncGenerator[ClientEvent, None]:
        """Iterate over events that belong to no call: notifications, reconnections, a lost session.

        Events are queued from the call of this method on. If ``limits.max_queued_events`` of them
        are queued, the client stops reading from the server until some are consumed. So keep
        iterating until the client is closed, which ends the iterator, or close the generator.
        """
        self.keeps_events = True
        return self._next_events()

    async def _next_events(self) -> AsyncGenerator[ClientEvent, None]:
        try:
            while self._events or not self._is_closed.is_done:
                event = self.next_unclaimed_event()
                if event is not None:
                    yield event
                else:
                    await self._scheduler.state_changed.wait()
        finally:
            self.keeps_events = False
            self._events.clear()
            self.run_pending()

    async def aclose(self) -> None:
        """End the session. Calls in flight fail with RequestCancelled. May be called twice."""
        self._check_loop()
        self.begin_close()
        await self._is_closed.wait()
        await self._all_saved()

    def _check_loop(self) -> None:
        if not self._loop.is_here():
            raise sansmcp.LocalProtocolError("The client belongs to another event loop, or thread")

    # For adapters

    @property
    def is_paused(self) -> bool:
        """True while reading from the server is paused until the application catches up."""
        return super().is_paused or self._reports >= self.core.limits.max_queued_events

    def on_progress_returned(self, pending: sansmcp.PendingResult, result: Any) -> None:
        """Pass an awaitable of ``on_progress`` to the task that made the call."""
        if inspect.isawaitable(result):
            assert isinstance(pending, _CallResult)
            self._reports += 1
            pending.add(result)

    def _reports_done(self, count: int) -> None:
        was_paused = self.is_paused
        self._reports -= count
        if was_paused and not self.is_paused:
            self.run_pending()  # more can be read

    async def _open(self) -> None:
        """Do the handshake. Raises CallError if it fails."""
        self.begin_session()
        try:
            await self._is_open.wait()
        except Exception:
            await self._all_saved()
            raise

    async def _revoke(self) -> None:
        """Revoke and delete the stored tokens, instead of a handshake."""
        self.begin_log_out()
        await self._is_closed.wait()
        await self._all_saved()
        self._is_open.result()

    def run_pending(self) -> None:
        if self._is_over:
            return
        super().run_pending()
        self._scheduler.reschedule()

    def _let_go(self) -> None:
        """Close the machine, fail the calls that still wait, and stop the timer."""
        self.begin_close()
        self._is_over = True
        self._is_closed.set_result()
        self._scheduler.stop()

    @abc.abstractmethod
    def _run(self, work: Coroutine[Any, Any, None]) -> Task:
        """Run a coroutine in a task, which ends with the client."""

    def now(self) -> float:
        return self._loop.now()

    def handle_event(self, event: ClientEvent) -> None:
        match event:
            case ServerRequestCancelled(request_id) if request_id in self._answering:
                super().handle_event(event)
                _, task = self._answering.pop(request_id)
                task.cancel()
            case _:
                super().handle_event(event)

    def respond_result(self, request: sansmcp.ServerRequest, result: Any) -> None:
        """Respond at once, or in a task if the request handler is async."""
        if inspect.isawaitable(result):
            task = self._run(self._respond_later(request, result))
            self._answering[request.id] = request, task
        else:
            super().respond_result(request, result)

    async def _respond_later(self, request: sansmcp.ServerRequest, result: Awaitable[Any]) -> None:
        try:
            super().respond_result(request, await result)
        except Exception as error:
            self.respond_exception(request, error)
        except BaseException:
            # Cancelled by the server, which needs no response then, or by the function itself.
            self.respond_internal_error(request)
            raise
        finally:
            answering, _ = self._answering.get(request.id, (None, None))
            if answering is request:
                del self._answering[request.id]
            self.run_pending()

    def run_login(self, login: Login, url: str) -> None:
        """Await an async login in a task; call a plain one in a thread."""
        if inspect.iscoroutinefunction(login):
            self._run(self._log_in(url, login(url)))
        else:
            # A daemon thread: a person who does not log in must not keep the program from ending.
            arguments = (login, url)
            threading.Thread(target=self._log_in_thread, args=arguments, daemon=True).start()

    async def _log_in(self, url: str, result: Awaitable[str]) -> None:
        try:
            self.login_ended(url, await result)
        except Exception as error:
            self.login_ended(url, error)
        self.run_pending()

    def _log_in_thread(self, login: Login, url: str) -> None:
        result: Any
        try:
            result = login(url)
        except Exception as error:
            result = error
        with suppress(RuntimeError):  # the loop has ended
            self._loop.run_soon(self._log_in_returned, url, result)

    def _log_in_returned(self, url: str, result: Any) -> None:
        if inspect.isawaitable(result):
            self._run(self._log_in(url, result))
        else:
            self.login_ended(url, result)
            self.run_pending()

    def perform_auth(self, effect: AuthEffect) -> None:
        """Call a storage that may block in a thread: after all that it was called for before."""
        authorization = self.core.authorization
        assert authorization is not None
        is_signing = isinstance(effect, MakeKey | SignJwt)
        if is_signing or not getattr(authorization.credentials, "may_block", False):
            super().perform_auth(effect)
            return
        if self._storing is None:
            self._storing = ThreadPool(1)
        ended = self._loop.event()
        try:
            self._storing.submit(partial(self._store_in_thread, effect, ended))
        except RuntimeError as error:  # the system has no more threads
            if isinstance(effect, UnlockCredentials):
                super().perform_auth(effect)  # others wait for the lock, and no thread is left
            else:
                self.auth_ended(effect, error)
            return
        if not isinstance(effect, LoadCredentials):
            self._saved = ended

    def _store_in_thread(self, effect: AuthEffect, ended: Event) -> None:
        try:
            result = self.auth_result(effect)
        except BaseException as error:  # such as SystemExit: the login would wait for ever
            result = RuntimeError(f"the storage of credentials has raised {error!r}")
        with suppress(RuntimeError):  # the loop has ended
            self._loop.run_soon(self._stored, effect, result, ended)

    def _stored(self, effect: AuthEffect, result: Any, ended: Event) -> None:
        self.auth_ended(effect, result)
        self.run_pending()
        ended.set()

    async def _all_saved(self) -> None:
        """Wait for the storage: its thread is a daemon, and ends with the program."""
        if not await self._loop.within(_SAVE_TIMEOUT, self._wait_until_saved):
            _logger.warning(
                "the storage of credentials did not return within %g s, and the client closes "
                "without waiting for it. If the program ends before it returns, a new token is "
                "lost, and the next program has to log in again",
                _SAVE_TIMEOUT,
            )

    async def _wait_until_saved(self) -> None:
        while (saved := self._saved) is not None and not saved.is_set():
            await saved.wait()

    def unexpected(self, error: Exception) -> None:
        log_unexpected(error)

    def on_first_failure(self, event: Reconnecting) -> None:
        log_first_failure(event)

    def on_handler_error(self, request: sansmcp.ServerRequest, error: Exception) -> None:
        _logger.error("the handler of %s failed", escape_controls(request.method), exc_info=error)


class AwaitableClient(Client):
    """A client that may be opened and closed in different tasks.

    ``await client`` and ``async with client`` do the handshake and return the client.
    """

    _has_begun = False

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if not self._has_begun:
            self._has_begun = True
            try:
                await self._open()
            except BaseException:
                await self._leave()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def log_out(self) -> None:
        """Revoke and delete the stored tokens, instead of the handshake, and close the client.

        The functions of this name call it.

        Raises:
            AuthorizationFailed: see :func:`sansmcp_asyncio.log_out`.
        """
        try:
            await self._revoke()
        finally:
            await self._leave()

    async def aclose(self) -> None:
        """End the session. Calls in flight fail with RequestCancelled. May be called twice.

        The server gets ``close_timeout`` seconds to end the session, unless the caller is
        cancelled.
        """
        self._check_loop()
        try:
            await super().aclose()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Fail the calls that still wait, and end all tasks."""
        self._let_go()
        await self._end()

    @abc.abstractmethod
    async def _end(self) -> None:
        """End all tasks, even if cancelled, and release all resources. May be called twice."""
