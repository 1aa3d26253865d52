"""The open server requests of a client: those without a response.

At the handshake revisions a server sends a request, and the client's response is a message of its
own. At 2026-07-28 the result of a call contains input requests. The client collects the input
responses and repeats the request of the call with a new id, the responses, and the server's
``requestState`` unchanged. The state of a task contains input requests, too; each input response is
sent for itself. The application gets the same events in all cases.

A task lists an input request until it has the response. The client reports it once, and closes it
if the task no longer lists it. Input responses cannot carry errors. So if the client or application
cannot respond, elicitation is answered as cancelled by the user. Any other request ends the call.
If the client has attached to a task of another client, it leaves requests that only the other one
supports to that one.

While a server request is open, the timeouts of the call to which it belongs are paused, if the
client has declared the capability for it. This holds for the first
``Limits.max_server_requests_per_call`` requests of a call; one more ends the call. If one stream
carries all messages, a server request does not show to which call it belongs. There it pauses the
timeouts of all calls, except those that have used up that number.

Source: 2025-03-26 to 2025-11-25, basic/lifecycle, basic/utilities: cancellation, ping; SEP-2260.
2026-07-28 basic/utilities: multi round-trip requests; SEP-2322. Tasks: SEP-2663.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs

from ..codecs import json
from ..codecs.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from ..errors import InvalidResponse, JsonRpcError
from ..limits import Limits
from ..messages import ErrorResponse, Request, RequestId, Response
from ..meta_keys import CLIENT_CAPABILITIES
from .outcomes import (
    Flooded,
    InputRequested,
    LimitExceeded,
    Reply,
    ResponseBuffered,
    RoundDone,
    RoundFailed,
    RoundStarted,
    TaskInput,
    TaskInputDone,
)

_ELICITATION = "elicitation/create"
_CANCELLED: Mapping[str, Any] = {"action": "cancel"}
"""The input response to an elicitation that is not declared, or whose handler has failed."""


@attrs.define(eq=False)
class _Round:
    """The input requests of one result, and the input responses so far."""

    number: int
    """The number of the call."""
    method: str
    params: dict[str, Any]
    """Parameters to send beside the input responses: ``requestState``, if there is one."""
    keys: dict[RequestId, str] = attrs.field(factory=lambda: {})
    responses: dict[str, Any] = attrs.field(factory=lambda: {})


@attrs.frozen(eq=False)
class _TaskRequest:
    """An input request of a task."""

    number: int
    """The number of the call."""
    method: str
    """The method of the call."""
    key: str
    request_method: str
    """The method of the server request."""


@attrs.frozen(eq=False)
class OpenRequest:
    """A server request without a response.

    Attributes:
        owners: the numbers of the calls to which it may belong.
        stopped: the numbers of those calls whose timeouts it pauses.
        round: the round or the task to which the response belongs; None if the response is sent as
            a message.
    """

    owners: tuple[int, ...]
    stopped: tuple[int, ...]
    round: _Round | _TaskRequest | None = None


@attrs.define(eq=False, repr=False)
class ServerRequests:
    """The server requests that are open, by id."""

    _limits: Limits
    _capabilities: Mapping[str, Any]
    _open: dict[RequestId, OpenRequest] = attrs.field(
        factory=dict[RequestId, OpenRequest], init=False
    )
    _is_over_limit: bool = attrs.field(default=False, init=False)
    """True if the last request was dropped because too many were open or unsent."""

    def on_request(
        self,
        request: Request,
        owner: int | None,
        calls: Mapping[int, int],
        *,
        is_shared: bool,
        has_room: bool,
    ) -> InputRequested | Reply | LimitExceeded | Flooded | None:
        """Return what to do about a server request; None to ignore it.

        Args:
            request: the request.
            owner: the call on whose stream it arrived; None if it is not known.
            calls: the calls to which it may belong, each with the number of server requests that
                may still pause its timeouts.
            is_shared: True if one stream carries all messages of the server.
            has_room: False if too many messages to the server are pending.
        """
        was_flooded = self._is_over_limit
        self._is_over_limit = not (has_room and self._has_room(1))
        if self._is_over_limit:
            most = self._limits.max_pending_calls
            what = f"more than {most} requests without accepting the responses (max_pending_calls)"
            return None if was_flooded else Flooded(what)
        capability = CLIENT_CAPABILITIES.get(request.method)
        if request.method == "ping":
            return Reply(Response(request.id, {}))
        if capability is not None and capability not in self._capabilities:
            text = f"This client has not declared the capability {capability!r}"
            return Reply(ErrorResponse(request.id, METHOD_NOT_FOUND, text))
        if capability is not None and not calls and not is_shared:
            text = f"{request.method} must belong to a request of the client, and none is running"
            return Reply(ErrorResponse(request.id, INVALID_PARAMS, text))
        if request.id in self._open:
            return None
        if owner is not None:
            owners: tuple[int, ...] = (owner,)
        else:
            owners = tuple(calls) if is_shared else ()
        stopped = owners if capability is not None else ()
        stopped = tuple(number for number in stopped if calls[number])
        if owner is not None and capability is not None and not stopped:
            most = self._limits.max_server_requests_per_call
            return LimitExceeded(f"more than {most} server requests (max_server_requests_per_call)")
        self._open[request.id] = OpenRequest(owners, stopped)
        return InputRequested(request, stopped)

    def start_round(
        self,
        number: int,
        method: str,
        request_id: RequestId | None,
        members: dict[str, Any],
        requests_left: int,
    ) -> RoundStarted | RoundDone | RoundFailed:
        """Open the input requests of a result.

        Args:
            number: the number of the call.
            method: the method of the call.
            request_id: the id of its JSON-RPC request.
            members: the result.
            requests_left: how many server requests may still pause the timeouts of the call.
        """

        def failed(what: str) -> RoundFailed:
            text = f"The response to {method} is invalid: {what}"
            return RoundFailed(number, InvalidResponse(text, method=method))

        state = members.get("requestState")
        input_requests = json.as_object(members.get("inputRequests", {}))
        if input_requests is None or not isinstance(state, str | None):
            return failed(
                "requestState or inputRequests of its input_required result has the wrong type"
            )
        if state is None and not input_requests:
            return failed("its input_required result has neither inputRequests nor requestState")
        count = len(input_requests)
        if count > requests_left or not self._has_room(count):
            text = f"it has {count} input requests, which are too many"
            return failed(f"{text} (max_server_requests_per_call, max_pending_calls)")
        round = _Round(number, method, {} if state is None else {"requestState": state})
        requests: list[Request] = []
        for key, value in input_requests.items():
            request = _read_request(f"{request_id}/{key}", value)
            if request is None or not self._is_declared(request.method):
                return failed(_unsupported(value))
            round.keys[request.id] = key
            requests.append(request)
        if not requests:
            return RoundDone(number, round.params)
        for request in requests:
            self._open[request.id] = OpenRequest((number,), (number,), round)
        return RoundStarted(tuple(requests))

    def on_task_input(
        self,
        number: int,
        method: str,
        input_requests: Mapping[str, Any],
        answered: Collection[str],
        requests_left: int,
        *,
        is_owned: bool,
    ) -> TaskInput | RoundFailed:
        """Open the new input requests of a task, and close those that it has withdrawn.

        Args:
            number, method: the number and method of the call that follows the task.
            input_requests: those that the task lists, by key.
            answered: the keys that have a response.
            requests_left: how many server requests may still pause the timeouts of the call.
            is_owned: False if the task belongs to another client.
        """
        open_keys = {
            id: each.round.key
            for id, each in self._open.items()
            if isinstance(each.round, _TaskRequest) and each.round.number == number
        }

        def failed(what: str) -> RoundFailed:
            text = f"The state of the task of {method} is invalid: {what}"
            return RoundFailed(number, InvalidResponse(text, method=method))

        withdrawn = tuple(id for id, key in open_keys.items() if key not in input_requests)
        new = input_requests.keys() - open_keys.values() - set(answered)
        opened: list[tuple[str, Request]] = []
        declined: dict[str, Any] = {}
        unanswered: list[str] = []
        for key in (key for key in input_requests if key in new):
            request = _read_request(f"task/{number}/{key}", input_requests[key])
            if request is not None and self._is_declared(request.method):
                opened.append((key, request))
            elif request is not None and not is_owned:
                unanswered.append(request.method)
            elif request is not None and request.method == _ELICITATION:
                declined[key] = _CANCELLED
            else:
                return failed(_unsupported(input_requests[key]))
        count = len(opened) + len(declined)
        if count > requests_left or not self._has_room(len(opened)):
            text = f"it has {count} further input requests, which are too many"
            return failed(f"{text} (max_server_requests_per_call, max_pending_calls)")
        for key, request in opened:
            task_request = _TaskRequest(number, method, key, request.method)
            self._open[request.id] = OpenRequest((number,), (number,), task_request)
        requests = tuple(request for _, request in opened)
        return TaskInput(withdrawn, requests, declined, tuple(unanswered))

    def take(self, id: RequestId | None) -> OpenRequest | None:
        """Remove and return a server request; None if it is not open."""
        return self._open.pop(id, None) if id is not None else None

    def on_response(
        self, open_request: OpenRequest, message: Response | ErrorResponse
    ) -> RoundDone | RoundFailed | TaskInputDone | ResponseBuffered | Reply:
        """Return what to do with the application's response to a request that was removed.

        An error response ends the call of a round, because input responses cannot carry errors.
        """
        round = open_request.round
        if round is None:
            return Reply(message)
        if isinstance(round, _TaskRequest):
            return _task_response(round, message)
        if isinstance(message, ErrorResponse):
            error = JsonRpcError(message.code, message.message, message.data, method=round.method)
            return RoundFailed(round.number, error)
        round.responses[round.keys[message.id]] = message.result
        if len(round.responses) < len(round.keys):
            return ResponseBuffered()
        return RoundDone(round.number, {"inputResponses": round.responses, **round.params})

    def end_call(self, number: int) -> tuple[RequestId, ...]:
        """Close the server requests that belong to this call alone, and return their ids."""
        withdrawn: list[RequestId] = []
        for id, open_request in tuple(self._open.items()):
            if number in open_request.owners:
                owners = tuple(owner for owner in open_request.owners if owner != number)
                stopped = tuple(owner for owner in open_request.stopped if owner != number)
                if owners:
                    self._open[id] = attrs.evolve(open_request, owners=owners, stopped=stopped)
                else:
                    del self._open[id]
                    withdrawn.append(id)
        return tuple(withdrawn)

    def clear(self) -> tuple[RequestId, ...]:
        """Close all server requests, and return their ids."""
        ids = tuple(self._open)
        self._open.clear()
        return ids

    def _has_room(self, count: int) -> bool:
        return len(self._open) + count <= self._limits.max_pending_calls

    def _is_declared(self, method: str) -> bool:
        return CLIENT_CAPABILITIES.get(method) in self._capabilities


def _read_request(id: str, value: Any) -> Request | None:
    """Return an input request as a server request; None if it is invalid."""
    fields = json.as_object(value) or {}
    method, params = fields.get("method"), json.as_object(fields.get("params", {}))
    if not isinstance(method, str) or params is None:
        return None
    return Request(id, method, params)


def _unsupported(value: Any) -> str:
    """Return the fault of an input request as text for an error."""
    method = (json.as_object(value) or {}).get("method")
    return f"it has an input request that this client does not support: {repr(method)[:50]}"


def _task_response(
    asked: _TaskRequest, message: Response | ErrorResponse
) -> TaskInputDone | RoundFailed:
    """Return what to do with the response to an input request of a task."""
    if isinstance(message, Response):
        return TaskInputDone(asked.number, asked.key, message.result)
    if asked.request_method == _ELICITATION:
        return TaskInputDone(asked.number, asked.key, _CANCELLED)
    error = JsonRpcError(message.code, message.message, message.data, method=asked.method)
    return RoundFailed(asked.number, error)
