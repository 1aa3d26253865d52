"""The server requests of a client that have no response yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from ..base_client import ServerRequest
from ..client.client import Client
from ..codecs.jsonrpc import INTERNAL_ERROR
from ..errors import JsonRpcError, LocalProtocolError
from ..messages import RequestId
from ..types import elide


@attrs.define(eq=False)
class OpenRequests:
    """Server requests, until they are answered or cancelled. A restarted server uses ids again."""

    _core: Client
    unhandled: dict[RequestId, ServerRequest] = attrs.field(
        factory=dict[RequestId, ServerRequest], init=False
    )
    """Those whose handler has not been called, in order of arrival."""
    _open: dict[RequestId, ServerRequest] = attrs.field(
        factory=dict[RequestId, ServerRequest], init=False
    )

    def add(self, request: ServerRequest) -> None:
        """Add a request that has arrived."""
        self.unhandled[request.id] = self._open[request.id] = request

    def cancelled(self, id: RequestId) -> None:
        """Forget a request that the server has cancelled."""
        self.unhandled.pop(id, None)
        self._open.pop(id, None)

    def next_unhandled(self) -> ServerRequest:
        """Return the oldest request whose handler has not been called; there must be one."""
        return self.unhandled.pop(next(iter(self.unhandled)))

    def refuse_unsupported(self, request: ServerRequest, now: float) -> None:
        """Respond that there is no handler of the method."""
        del self._open[request.id]
        self._core.refuse_unsupported(request.id, now=now)

    def respond(self, request: ServerRequest, result: object, now: float) -> None:
        """Respond with what a handler returned, unless the server has cancelled the request.

        Raises LocalProtocolError if that is not a JSON object.
        """
        if self._is_open(request):
            if not isinstance(result, Mapping):
                name = f"request_handlers[{request.method!r}]"
                raise LocalProtocolError(
                    f"{name} must return a JSON object (dict), got {elide(result)}"
                )
            self._core.respond(request.id, result, now=now)
            del self._open[request.id]

    def respond_first_error(
        self,
        request: ServerRequest,
        errors: tuple[Exception, ...],
        log: Callable[[ServerRequest, Exception], None],
        now: float,
    ) -> None:
        """Respond with the first of these errors that can be sent; ``log`` the others' failures."""
        for error in errors if self._is_open(request) else ():
            try:
                self._core.respond_exception(request.id, error, now=now)
            except Exception as failure:
                log(request, failure)
            else:
                del self._open[request.id]
                return

    def _is_open(self, request: ServerRequest) -> bool:
        """True if the server waits for this request's response; a later one may have its id."""
        return self._open.get(request.id) is request


def handler_failed(request: ServerRequest) -> JsonRpcError:
    """Return the error for a handler that failed: its method, but no text that may be secret."""
    text = f"Internal error: the client's handler of {request.method} failed"
    return JsonRpcError(INTERNAL_ERROR, text)
