"""What hosts of a server have in common: they run its handlers, and bring them the answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeGuard

from ..app import Handler, is_async
from ..authentication import Authenticator, ConnectionInfo
from ..base_call import BaseCall
from ..base_client import PendingResult
from ..effects import Authenticate, ServerEffect, Wake
from ..errors import JsonRpcError, LocalProtocolError
from ..events import CallCancelled, CallReceived, ClientResponseReceived, ServerEvent
from ..messages import Params
from ..server.server import Server
from ..server_call import ServerCall
from ..store import Store
from .machine import MachineDriver
from .store_checks import check_synchronous


class ServerDriver(MachineDriver):
    """Drives a server machine for as long as it runs, except for its exchanges.

    The ``host`` of an exchange has a method ``wake()``: let its driver pull. Where there is an
    ``authenticate``, it has an attribute ``connection``, which is given to that function. The
    ``host`` of a call has a method ``cancel()``: let its handler stop; :meth:`start_task` sets it.

    An exception that a bug raises in the machine, or in a driver, costs the connection or the call
    it belongs to: :meth:`unexpected` logs it, and no method of this class raises it. Let drivers do
    the same.

    Raises LocalProtocolError for a store that is none, or is not synchronous, and for a machine
    that does not ask for authentication where there is an ``authenticate``, or asks where there is
    none.
    """

    def __init__(
        self, core: Server, store: Store, authenticate: Authenticator | None = None
    ) -> None:
        if core.authentication is not (authenticate is not None):
            raise LocalProtocolError("authenticate and authentication=True belong together")
        self._authenticate = authenticate
        check_synchronous(store)
        super().__init__(core)
        self.core = core
        self._store = store
        self.questions: dict[tuple[ServerCall, int], PendingResult] = {}
        """Who waits for the client's answer to which question; it is given the
        ClientResponseReceived.
        """

    def publish(self, method: str, params: Params | None = None) -> None:
        """Tell the clients that something has changed; see :meth:`sansmcp.Server.publish`."""
        self.core.publish(method, params, now=self.now())
        self.run_pending()

    def disconnect_streams(self, *, retry: float | None = None) -> int:
        """Close the standalone streams of all clients that can come back to them.

        See :meth:`sansmcp.Server.disconnect_streams`.
        """
        count = self.core.disconnect_streams(retry=retry, now=self.now())
        self.run_pending()
        return count

    def drive(self) -> None:
        """Perform what the machine wants, and take what it tells, until it has nothing more."""
        self._drive_machine(self._perform, self.handle_event)

    def run_pending(self) -> None:
        """:meth:`drive`, and whatever the host does after that.

        To be called after everything that changes the machine.
        """
        self.drive()

    def handle_timeout(self) -> None:
        """Let the machine do what is due: its next deadline may have come."""
        self._use_machine(lambda: self.core.handle_timeout(now=self.now()))
        self.run_pending()

    async def finish(self, call: ServerCall, result: Awaitable[Any]) -> None:
        """Await what a handler has given, and answer the call with what comes of it."""
        try:
            self._respond(call, await result)
        except Exception as error:
            self._fail(call, error)
        except BaseException:  # cancelled, and not always by the client: nobody may wait for ever
            self._answer_with(call, RuntimeError())
            raise
        finally:
            self.run_pending()

    def conclude(self, call: ServerCall, work: Callable[[], Any]) -> None:
        """Answer a call with what ``work`` returns, or with the error for what it raises."""
        try:
            self._respond(call, work())
        except Exception as error:
            self._fail(call, error)

    @abstractmethod
    def handle_for(self, call: ServerCall) -> BaseCall[Any, Any]:
        """What the handler of a call gets."""

    @abstractmethod
    def start_task(self, call: ServerCall, result: Awaitable[Any]) -> None:
        """A handler has to be awaited: let :meth:`finish` do it, beside everything else."""

    def start_plain(self, call: ServerCall, handler: Handler) -> None:
        """Call a handler that is a plain function, and may block.

        This calls it in place. An event loop lets it run in a thread of its own instead.
        """
        self._call_handler(call, handler)

    def run_plain(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        """Call a function of the application that may block, then ``done``.

        ``done`` is given what ``work`` has returned, and what it has raised. This calls both in
        place. An event loop calls ``work`` in a thread, and then, in the loop, ``done`` and
        :meth:`run_pending`.
        """
        try:
            outcome = work()
        except Exception as error:
            done(None, error)
        else:
            done(outcome, None)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run an async function beside everything else, until it or the server ends.

        It is needed for an async ``authenticate`` only, which this refuses.
        """
        raise LocalProtocolError("Here authenticate has to be a plain function")

    @abstractmethod
    def authentication_failed(self, error: Exception) -> None:
        """Log that ``authenticate`` has raised, or has returned neither a principal nor a Refusal.

        The client gets status 500 and is told nothing else.
        """

    @abstractmethod
    def on_handler_error(self, call: ServerCall, error: Exception) -> None:
        """A handler has raised what the client is not told: let somebody know."""

    @abstractmethod
    def on_other_event(self, event: ServerEvent) -> None:
        """Something has happened that needs nothing to be done."""

    def _perform(self, effect: ServerEffect) -> None:
        try:
            match effect:
                case Wake():
                    effect.exchange.driver.wake()
                case Authenticate():
                    self._start_authentication(effect)
                case _:
                    self.core.perform_store_effect(effect, self._store, now=self.now())
        except Exception as error:
            self.unexpected(error)
            if isinstance(effect, Authenticate):
                self.core.authentication_failed(effect, now=self.now())
            elif not isinstance(effect, Wake):
                self.core.store_failed(effect, f"internal error: {error!r}", now=self.now())

    def handle_event(self, event: ServerEvent) -> None:
        """Start, stop or continue the handler that an event of the machine is about."""
        try:
            self._take(event)
        except Exception as error:
            self.unexpected(error)
            if isinstance(event, CallReceived):
                self._answer_with(event.call, RuntimeError())

    def _take(self, event: ServerEvent) -> None:
        match event:
            case CallReceived() if event.call.is_running:
                self._start(event.call)
            case CallCancelled(call) if call.driver is not None:
                call.driver.cancel()
            case ClientResponseReceived(call, request_id):
                if (call, request_id) in self.questions:
                    self.questions[call, request_id].set_result(event)
            case _:
                self.on_other_event(event)

    def _start(self, call: ServerCall) -> None:
        """Let the handler work: in place, in a task, or wherever plain functions run."""
        app = self.core.app
        handler = app.handler_of(call.request.method)
        assert handler is not None, "the machine refuses what has no handler"
        if app.options_of(call.request.method).inline:
            self._call_handler(call, handler)
        else:
            self.start_plain(call, handler)

    def _call_handler(self, call: ServerCall, handler: Handler) -> None:
        try:
            result = handler(self.handle_for(call))
            if _is_awaitable(result):
                self.start_task(call, result)
            else:
                self._respond(call, result)
        except Exception as error:
            self._fail(call, error)

    def _start_authentication(self, effect: Authenticate) -> None:
        authenticate = self._authenticate
        assert authenticate is not None, "the machine was not told to ask"
        connection: ConnectionInfo = effect.exchange.driver.connection
        if is_async(authenticate):
            self.spawn(self._authenticate_async, effect, authenticate, connection)
        else:
            self.run_plain(
                partial(authenticate, effect.head, connection), partial(self._found_out, effect)
            )

    async def _authenticate_async(
        self, effect: Authenticate, authenticate: Callable[..., Any], connection: ConnectionInfo
    ) -> None:
        try:
            outcome = await authenticate(effect.head, connection)
        except Exception as error:
            self._found_out(effect, None, error)
        else:
            self._found_out(effect, outcome, None)
        self.run_pending()

    def _found_out(self, effect: Authenticate, outcome: Any, error: Exception | None) -> None:
        try:
            if error is not None:
                raise error
            self.core.authenticated(effect, outcome, now=self.now())
        except Exception as problem:
            self.authentication_failed(problem)
            self.core.authentication_failed(effect, now=self.now())

    def _respond(self, call: ServerCall, result: Any) -> None:
        call.respond(result, now=self.now())

    def _fail(self, call: ServerCall, error: Exception) -> None:
        if not isinstance(error, JsonRpcError):
            self.on_handler_error(call, error)
        self._answer_with(call, error, RuntimeError())  # what the first carries may not be JSON

    def _answer_with(self, call: ServerCall, *errors: Exception) -> None:
        """Answer a call with the first of these errors that can be sent."""
        for error in errors:
            try:
                call.respond_exception(error, now=self.now())
            except Exception as failure:
                self.on_handler_error(call, failure)
            else:
                return


def _is_awaitable(result: object) -> TypeGuard[Awaitable[Any]]:
    return isinstance(result, Awaitable)
