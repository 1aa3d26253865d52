"""The base class of server drivers: runs the handlers and sends their responses."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, TypeGuard, cast

from ..app import Handler, is_async
from ..authentication import Authenticator, ConnectionInfo, KnowingAuthenticator
from ..base_call import BaseCall
from ..base_client import PendingResult
from ..effects import (
    Authenticate,
    ServerEffect,
    StoreEffect,
    StoreTake,
    StoreUnwatch,
    StoreWatch,
    Wake,
)
from ..errors import JsonRpcError, LocalProtocolError
from ..events import (
    CallCancelled,
    CallReceived,
    ClientNotified,
    ClientResponseReceived,
    ServerEvent,
)
from ..messages import Params
from ..rates import RateStore
from ..server.server import Server
from ..server.store_calls import call_store
from ..server_call import ServerCall
from ..store import AsyncStore, Store, StreamKey, WatchableStore
from ..types import elide
from .machine import MachineDriver
from .store_checks import is_async_store
from .store_queue import StoreQueue

_STORE_TASKS = 64
"""How many effects an asynchronous store performs at a time; further ones wait."""


def exited(error: SystemExit) -> RuntimeError:
    """Return the exception for a handler that wants to end the program: only its call ends.

    In a task SystemExit would end the event loop, and with it the calls of all other clients.
    """
    failure = RuntimeError(f"The handler has raised {error!r}; a server is stopped by its driver")
    failure.__cause__ = error
    return failure


class ServerDriver(MachineDriver[Server]):
    """Drives a server machine; a subclass performs its exchanges.

    A subclass sets two attributes of the machine's objects:

    * ``driver`` of an exchange, with a method ``wake()`` that pulls the exchange's effects, at once
      or soon. With ``authenticate`` it also needs an attribute ``connection``, a
      :class:`~sansmcp.ConnectionInfo`, which is passed to that function.
    * ``driver`` of a call, with a method ``cancel()`` that stops the handler. :meth:`start_task`
      sets it.

    An exception that a bug raises in the machine or in a driver ends the connection or call to
    which it belongs. :meth:`unexpected` logs it, and no method of this class raises it. Write
    subclasses in the same way.

    Args:
        core: the machine.
        store: performs the store effects: a synchronous one in this thread, an asynchronous one in
            tasks that :meth:`spawn` starts.
        authenticate: returns the principal of a request; None for no authentication.
            Pass it if, and only if, ``core`` was made with ``authentication=True``.

    Raises:
        TypeError: ``store`` is not a store.
        LocalProtocolError: only one of ``authenticate`` and ``authentication=True`` was given.
    """

    def __init__(
        self, core: Server, store: Store | AsyncStore, authenticate: Authenticator | None = None
    ) -> None:
        if core.authentication is not (authenticate is not None):
            raise LocalProtocolError("authenticate and authentication=True belong together")
        self._authenticate = authenticate
        self._find_known = (
            authenticate.find_known if isinstance(authenticate, KnowingAuthenticator) else None
        )
        super().__init__(core)
        self._store = store
        self._plain_store = None if is_async_store(store) else cast("Store", store)
        """The store, if it is synchronous."""
        self._woken: deque[Any] = deque()
        """The drivers of exchanges that have something to send."""
        self._store_queue = StoreQueue(_STORE_TASKS)
        """The effects for an asynchronous store."""
        self._is_store_gone = False
        """True when the event loop of an asynchronous store has ended."""
        self._watches: dict[StreamKey, Callable[[], None]] = {}
        """The functions that end the watches of the store."""
        self.pending_requests: dict[tuple[ServerCall, int], PendingResult] = {}
        """The waiting handlers, by call and server request id; each result is set to the
        ClientResponseReceived.
        """

    def __repr__(self) -> str:
        url = getattr(self, "url", "")  # of drivers that listen
        name = elide(self.core.app.name, 40)
        return f"<{' '.join(filter(None, (type(self).__name__, url, name)))}>"

    def publish(self, method: str, params: Params | None = None) -> None:
        """Notify all clients of a change; see :meth:`sansmcp.Server.publish`."""
        self.core.publish(method, params, now=self.now())
        self.pump()

    def disconnect_streams(self, *, retry: float | None = None) -> int:
        """Close the standalone streams of all clients that can resume them.

        Returns and raises as :meth:`sansmcp.Server.disconnect_streams` does.
        """
        count = self.core.disconnect_streams(retry=retry, now=self.now())
        self.pump()
        return count

    def pump(self, connection: Any = None) -> None:
        """Perform the machine's effects and handle its events until none is left.

        Call this after everything that changes the machine. Exchanges that have something to
        send are woken when all events are handled, so that one write has all that the handlers
        sent meanwhile.

        Args:
            connection: a driver of exchanges to wake in any case, because it was just fed, or can
                send again.
        """
        if connection is not None:
            self._woken.append(connection)
        while True:
            if self.core.has_pending:
                self._drive(self._perform, self._handle)
            if not self._woken:
                break
            while self._woken:
                try:
                    self._woken.popleft().wake()
                except Exception as error:
                    self.unexpected(error)
        self.on_idle()

    def handle_timeout(self) -> None:
        """Make the machine do what is due. Call this at :meth:`next_deadline`, or at any time."""
        self._use_machine(lambda: self.core.handle_timeout(now=self.now()))
        self.pump()

    async def finish(self, call: ServerCall, result: Awaitable[Any]) -> None:
        """Await the result of an async handler, and respond with it or with the error it raises."""
        try:
            self.respond_result(call, await result)
        except Exception as error:
            self.respond_exception(call, error)
        except SystemExit as error:
            self.respond_exception(call, exited(error))
        except BaseException:  # cancelled, perhaps not by the client, which then waits
            self._respond_first_error(call, RuntimeError())
            raise
        finally:
            self.pump()

    def conclude(self, call: ServerCall, work: Callable[[], Any]) -> None:
        """Respond to a call with what ``work`` returns, or with the error for what it raises."""
        try:
            self.respond_result(call, work())
        except Exception as error:
            self.respond_exception(call, error)

    @abstractmethod
    def handle_for(self, call: ServerCall) -> BaseCall[Any, Any]:
        """Return the object that the handler of a call gets as its argument."""

    @abstractmethod
    def start_task(self, call: ServerCall, result: Awaitable[Any]) -> None:
        """Start a task that runs :meth:`finish` for a call whose handler returned an awaitable."""

    def start_plain(self, call: ServerCall, handler: Handler) -> None:
        """Call a handler that is a plain function and might block.

        This calls it in place. A driver of an event loop calls it in a worker thread instead.
        """
        self._call_handler(call, handler)

    def run_plain(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        """Call ``work``, a function of the application that might block, then ``done``.

        This calls both in place. A driver of an event loop calls ``work`` in a worker thread, and
        then, in the loop, ``done`` and :meth:`pump`.

        Args:
            work: the function.
            done: is called with the result of ``work`` and None, or with None and its exception.
        """
        try:
            outcome = work()
        except Exception as error:
            done(None, error)
        else:
            done(outcome, None)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Start a task for an async function; it runs until it returns or the server ends.

        Only an async ``authenticate`` needs it, and an asynchronous store unless
        :meth:`spawn_store_task` is overridden. A driver without an event loop inherits this method,
        which raises.

        Raises:
            LocalProtocolError: this driver has no event loop.
        """
        raise LocalProtocolError(
            "This server has no event loop: authenticate must be a plain function, and the store "
            "synchronous"
        )

    def spawn_store_task(
        self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any
    ) -> None:
        """Start a task for an asynchronous store.

        This calls :meth:`spawn`. A driver of threads starts the task in a loop in another thread
        instead, and overrides :meth:`store_task_done`, which the task calls, to take its lock.
        """
        self.spawn(work, *arguments)

    def run_soon(self, work: Callable[[], None]) -> None:
        """Call a function in the thread of the driver, and then :meth:`pump`.

        May be called from any thread; has no effect when the driver has ended. Only a store that
        tells of changes needs it. A driver without an event loop inherits this method, which
        raises.

        Raises:
            LocalProtocolError: this driver has no event loop.
        """
        raise LocalProtocolError("This server has no event loop: its store must have no watch()")

    @abstractmethod
    def authentication_failed(self, error: Exception) -> None:
        """Log that ``authenticate`` raised, or returned neither a principal nor a Refusal.

        The client gets status 500, without the reason.
        """

    @abstractmethod
    def on_handler_error(self, call: ServerCall, error: Exception) -> None:
        """Log that a handler raised; the client gets only "Internal error"."""

    @abstractmethod
    def on_other_event(self, event: ServerEvent) -> None:
        """Log or discard an event that needs no action."""

    def _perform(self, effect: ServerEffect) -> None:
        try:
            match effect:
                case Wake():
                    self._woken.append(effect.exchange.driver)
                case Authenticate():
                    self._start_authentication(effect)
                case StoreWatch():
                    self._watch(effect)
                case StoreUnwatch(stream):
                    self._watches.pop(stream, _nothing)()
                case _:
                    self._use_store(effect)
        except Exception as error:
            self.unexpected(error)
            if isinstance(effect, Authenticate):
                self.core.authentication_failed(effect, now=self.now())
            elif not isinstance(effect, Wake | StoreWatch | StoreUnwatch):
                self.core.store_failed(effect, f"internal error: {error!r}", now=self.now())

    # The store

    def _use_store(self, effect: StoreEffect) -> None:
        if isinstance(effect, StoreTake) and not isinstance(self._store, RateStore):
            self.core.take_completed(effect, 0.0, now=self.now())
        elif self._plain_store is not None:
            self.core.perform_store_effect(effect, self._plain_store, now=self.now())
        else:
            self._store_queue.add(effect)
            self._start_store_tasks()

    def _start_store_tasks(self) -> None:
        while (effect := self._store_queue.start_next()) is not None:
            if self._is_store_gone:
                self._store_queue.finish(effect)
                self.core.store_failed(effect, _STORE_GONE, now=self.now())
            else:
                self.spawn_store_task(self._perform_in_task, effect)

    async def _perform_in_task(self, effect: StoreEffect) -> None:
        result, failure = None, None
        try:
            result = await call_store(effect, self._store, now=self.now())
        except Exception as error:
            failure = error
        except BaseException:  # cancelled, because the loop ends: whoever waits for it must end
            self._is_store_gone = True
            self.store_task_done(effect, None, RuntimeError(_STORE_GONE))
            raise
        self.store_task_done(effect, result, failure)

    def store_task_done(
        self, effect: StoreEffect, result: object, failure: Exception | None
    ) -> None:
        """Report what an asynchronous store has done. A driver of threads takes its lock for it."""
        self._store_queue.finish(effect)
        now = self.now()
        if failure is None:
            self.core.report_store_result(effect, self._store, result, now=now)
        else:
            reason = f"{type(failure).__name__}: {failure}"
            self.core.store_failed(effect, reason, now=now)
        self._start_store_tasks()
        self.pump()

    def _watch(self, effect: StoreWatch) -> None:
        stream = effect.stream
        if isinstance(self._store, WatchableStore):
            changed = partial(self.run_soon, partial(self.store_changed, stream))
            self._watches[stream] = self._store.watch(stream, changed)
            self.core.store_watched(effect, now=self.now())

    def store_changed(self, stream: StreamKey) -> None:
        """Report that a log may have new entries."""
        self.core.store_changed(stream, now=self.now())

    @property
    def is_storing(self) -> bool:
        """True if an asynchronous store has something to do."""
        return len(self._store_queue) > 0

    def end_watches(self) -> None:
        """End all watches of the store, because the server has ended."""
        watches, self._watches = self._watches, {}
        for end in watches.values():
            end()

    def _handle(self, event: ServerEvent) -> None:
        try:
            self.handle_event(event)
        except Exception as error:
            self.unexpected(error)
            if isinstance(event, CallReceived):
                self._respond_first_error(event.call, RuntimeError())

    def handle_event(self, event: ServerEvent) -> None:
        """Start, cancel or continue the handler that an event of the machine concerns."""
        match event:
            case CallReceived() if event.call.is_running:
                self.start_handler(event.call)
            case CallCancelled(call) if call.driver is not None:
                call.driver.cancel()
            case ClientResponseReceived(call, request_id):
                if (call, request_id) in self.pending_requests:
                    self.pending_requests[call, request_id].set_result(event)
            case ClientNotified(peer, notification):
                handler = self.core.app.notification_handler_of(notification.method)
                if handler is not None:
                    handler(peer, notification)
                self.on_other_event(event)
            case _:
                self.on_other_event(event)

    def start_handler(self, call: ServerCall) -> None:
        """Call the handler of a call that was received.

        This calls an inline handler in place, and gives any other to :meth:`start_plain`. If the
        handler returns an awaitable, :meth:`start_task` gets it.
        """
        app = self.core.app
        handler = app.handler_of(call.request.method)
        assert handler is not None, "the machine refuses what has no handler"
        if app.is_inline(call.request):
            self._call_handler(call, handler)
        else:
            self.start_plain(call, handler)

    def _call_handler(self, call: ServerCall, handler: Handler) -> None:
        try:
            result = handler(self.handle_for(call))
            if _is_awaitable(result):
                self.start_task(call, result)
            else:
                self.respond_result(call, result)
        except Exception as error:
            self.respond_exception(call, error)
        except SystemExit as error:
            self.respond_exception(call, exited(error))

    def _start_authentication(self, effect: Authenticate) -> None:
        authenticate = self._authenticate
        assert authenticate is not None, "this effect needs authentication=True"
        connection: ConnectionInfo = effect.exchange.driver.connection
        if self._find_known is not None:
            try:
                known, error = self._find_known(effect.head, connection), None
            except Exception as problem:
                known, error = None, problem
            if known is not None or error is not None:
                self._finish_authentication(effect, known, error)
                return
        if is_async(authenticate):
            self.spawn(self._authenticate_async, effect, authenticate, connection)
        else:
            self.run_plain(
                partial(authenticate, effect.head, connection),
                partial(self._finish_authentication, effect),
            )

    async def _authenticate_async(
        self, effect: Authenticate, authenticate: Callable[..., Any], connection: ConnectionInfo
    ) -> None:
        try:
            outcome = await authenticate(effect.head, connection)
        except Exception as error:
            self._finish_authentication(effect, None, error)
        else:
            self._finish_authentication(effect, outcome, None)
        self.pump()

    def _finish_authentication(
        self, effect: Authenticate, outcome: Any, error: Exception | None
    ) -> None:
        try:
            if error is not None:
                raise error
            self.core.authenticated(effect, outcome, now=self.now())
        except Exception as problem:
            self.authentication_failed(problem)
            self.core.authentication_failed(effect, now=self.now())

    def respond_result(self, call: ServerCall, result: Any) -> None:
        """Respond to a call with what its handler returned.

        A driver with threads overrides this, to lock the machine. Call :meth:`pump`
        afterwards.

        Raises:
            LocalProtocolError: ``result`` is not a valid result; see
                :meth:`sansmcp.ServerCall.respond`.
        """
        call.respond(result, now=self.now())

    def respond_exception(self, call: ServerCall, error: Exception) -> None:
        """Respond to a call with the error for what its handler raised.

        Logs the exception unless it is a JsonRpcError. A driver with threads overrides this, to
        lock the machine. Call :meth:`pump` afterwards.
        """
        if not isinstance(error, JsonRpcError):
            self.on_handler_error(call, error)
        # The data of a JsonRpcError may not be JSON: then the client gets "Internal error".
        self._respond_first_error(call, error, RuntimeError())

    def _respond_first_error(self, call: ServerCall, *errors: Exception) -> None:
        """Respond to a call with the first of these errors that can be sent."""
        for error in errors:
            try:
                call.respond_exception(error, now=self.now())
            except Exception as failure:
                self.on_handler_error(call, failure)
            else:
                return


_STORE_GONE = "the event loop has ended"


def _nothing() -> None:
    """Do nothing."""


def _is_awaitable(result: object) -> TypeGuard[Awaitable[Any]]:
    # The check of an abstract class takes longer, and most results are one of these two.
    return type(result) is not dict and (
        type(result) is CoroutineType or isinstance(result, Awaitable)
    )
