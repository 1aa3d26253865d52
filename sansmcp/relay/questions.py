"""The server requests of the upstream server: which client gets each, and its response.

At 2026-07-28 a client gets them as input requests, in a response that ends its call. The upstream
call goes on meanwhile: it is *parked* until the client comes back with its input, in a new call
with the state that it was given. What the upstream server reports of it meanwhile is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import count, islice
from typing import Any, TypeAlias

import attrs

from ..codecs import jsonrpc
from ..errors import CallError, JsonRpcError, LocalProtocolError
from ..events import CallCompleted, CallFailed, ClientResponseReceived, ProgressReceived
from ..input_required import InputRequest, InputRequired
from ..limits import Limits
from ..messages import Notification, Params, Request, RequestId
from ..meta_keys import meta_of
from ..server.input_checks import check_asking, missing_capabilities
from ..server_call import Peer, ServerCall
from .ends import Upstream
from .pairings import Pairing, Pairings
from .translation import PARKED, PROGRESS_TOKEN, RELAY, SERVER

Report: TypeAlias = ProgressReceived | Notification
"""What comes of a call before its end."""

_REPORT_BYTES = 512
"""Memory of a report beside its text, rounded up."""


@attrs.define(eq=False)
class Parked:
    """A pairing whose client has its input requests, and has not come back yet."""

    pairing: Pairing
    until: float
    """When the client is given up."""
    ended: CallCompleted | CallFailed | None = attrs.field(default=None, init=False)
    """The end of the upstream call, if it has ended meanwhile."""
    reports: list[Report] = attrs.field(factory=lambda: [], init=False)
    """What the upstream server has reported of the call meanwhile."""
    size: int = attrs.field(default=0, init=False)
    """Bytes of the reports, about."""


@attrs.define(eq=False)
class Questions:
    """The open server requests of the upstream server."""

    _upstream: Upstream
    _pairings: Pairings
    _limits: Limits
    _name: str | None
    """The name of the upstream server."""
    _token: str
    """The name of this relay."""
    _by_id: dict[RequestId, Pairing] = attrs.field(factory=dict[RequestId, Pairing], init=False)
    _asking: dict[Pairing, float] = attrs.field(factory=dict[Pairing, float], init=False)
    """When each client gets its input requests: all of them at once, so a little later."""
    _parked: dict[int, Parked] = attrs.field(factory=dict[int, Parked], init=False)
    """By number of the pairing."""
    _names: count[int] = attrs.field(factory=lambda: count(1), init=False)

    # The upstream server

    def received(self, handle: int | None, request: Request, now: float) -> str | None:
        """Pass a server request on. Returns why it reaches no client, a text for a log."""
        pairing = None if handle is None else self._pairings.of_handle(handle)
        known = () if pairing is None else (pairing,)
        why = "which client has caused it is not clear"
        for each in self._pairings.of_only_client(now) if handle is None else known:
            try:
                self._ask(each, request, now)
            except LocalProtocolError as error:
                why = str(error)
            else:
                return None
        self._upstream.client.refuse_unsupported(request.id, now=now)
        return f"{request.method[:100]!r} of the upstream server reached no client: {why}"

    def _ask(self, pairing: Pairing, request: Request, now: float) -> None:
        call = pairing.call
        if call.peer.revision.server_requests:
            params = self._with_own_token(request)
            asked = call.ask(request.method, params, timeout=self._limits.input_timeout, now=now)
            pairing.questions[asked] = request
            self._by_id[request.id] = pairing
            return
        name = str(next(self._names))
        wanted = InputRequired({name: InputRequest(request.method, request.params or {})})
        check_asking(call.request, wanted)
        missing = missing_capabilities(wanted, call.peer.client_capabilities)
        if missing:
            raise LocalProtocolError(f"the client has not declared {' and '.join(missing)}")
        pairing.questions[name] = request
        self._by_id[request.id] = pairing
        if not self.is_parked(pairing):
            self._asking.setdefault(pairing, now)

    def withdrawn(self, id: RequestId, reason: str, now: float) -> None:
        """Take back a server request that the upstream server has cancelled."""
        pairing = self._by_id.pop(id, None)
        if pairing is None:
            return
        name = next(name for name, each in pairing.questions.items() if each.id == id)
        del pairing.questions[name]
        if isinstance(name, int):
            pairing.call.withdraw(name, reason, now=now)
        elif not pairing.questions:
            self._asking.pop(pairing, None)

    def ended(self, pairing: Pairing, event: CallCompleted | CallFailed) -> bool:
        """Keep the end of an upstream call for a client that has yet to come back.

        Returns False, with nothing changed, if the client is there.
        """
        parked = self._parked.get(pairing.number)
        if parked is not None:
            parked.ended = event
        return parked is not None

    def keep(self, pairing: Pairing, report: Report) -> bool:
        """Keep a report for a client that has yet to come back, if it has room.

        ``Limits.max_unsent_bytes`` are kept at most; what comes later is lost.

        Returns:
            False, with nothing changed, if the client is there.

        Raises:
            LocalProtocolError: the report is not JSON.
        """
        parked = self._parked.get(pairing.number)
        if parked is None:
            return False
        size = _size_of(report)
        if parked.size + size <= self._limits.max_unsent_bytes:
            parked.reports.append(report)
            parked.size += size
        return True

    # The clients

    def is_parked(self, pairing: Pairing) -> bool:
        """Return whether the client has its input requests, and has yet to come back."""
        return pairing.number in self._parked

    def _with_own_token(self, request: Request) -> Params | None:
        """Return the parameters of a server request as its client gets them.

        Its progress token is that of no question of another server that the client is asked, too.
        """
        meta = meta_of(request)
        if PROGRESS_TOKEN not in meta:
            return request.params
        own = {**meta, PROGRESS_TOKEN: self._own_token(request)}
        return {**(request.params or {}), "_meta": own}

    def _own_token(self, request: Request) -> str:
        return f"{self._token}:{request.id!r}"

    def reported(self, peer: Peer, params: Params) -> Params | None:
        """Return the parameters of a report of progress as the upstream server gets them.

        Returns:
            Them; None if it is about no question that this client was asked. At 2026-07-28 an input
            request has no progress.
        """
        for pairing in {*self._by_id.values()}:
            for asked, request in pairing.questions.items():
                meta = meta_of(request)
                is_asked = isinstance(asked, int) and pairing.call.peer is peer
                if not is_asked or PROGRESS_TOKEN not in meta:
                    continue
                if params.get(PROGRESS_TOKEN) == self._own_token(request):
                    return {**params, PROGRESS_TOKEN: meta[PROGRESS_TOKEN]}
        return None

    def responded(self, event: ClientResponseReceived, now: float) -> None:
        """Pass on the response of a client, or that there is none."""
        pairing = self._pairings.of_call(event.call)
        request = None if pairing is None else pairing.questions.pop(event.request_id, None)
        if request is None:
            return
        del self._by_id[request.id]
        client = self._upstream.client
        try:
            client.respond(request.id, event.result(), now=now)
        except JsonRpcError as error:
            client.respond_exception(request.id, error, now=now)
        except CallError as error:
            text = f"The client did not respond: {error}"
            refusal = JsonRpcError(jsonrpc.INTERNAL_ERROR, text)
            client.respond_exception(request.id, refusal, now=now)

    def came_back(self, call: ServerCall, state: Mapping[str, Any], now: float) -> Parked | None:
        """Take the input of a client of 2026-07-28, and continue its pairing with this call.

        Args:
            call: the call with which the client came back.
            state: the state that it was given.
            now: the current time in seconds, on the clock of both machines.

        Returns:
            The pairing as it was parked; None if the state is of none of this relay.
        """
        is_ours = (state.get(SERVER), state.get(RELAY)) == (self._name, self._token)
        parked = self._parked.pop(state.get(PARKED, 0), None) if is_ours else None
        if parked is None:
            return None
        pairing = parked.pairing
        self._pairings.resume(pairing, call)
        for name, response in call.handler_input.input_responses.items():
            request = pairing.questions.pop(name, None)
            if request is not None:
                del self._by_id[request.id]
                self._upstream.client.respond(request.id, response, now=now)
        if parked.ended is None and pairing.questions:  # it came without, or there is more by now
            self._asking.setdefault(pairing, now)
        return parked

    def refuse(self, pairing: Pairing, now: float) -> None:
        """Give up the server requests that the client of a call has not answered.

        Those that name no call may be of another call, which would wait for the answer.
        """
        self._asking.pop(pairing, None)
        gone = JsonRpcError(jsonrpc.INTERNAL_ERROR, "The client that was asked has left its call")
        for request in pairing.questions.values():
            self._by_id.pop(request.id, None)
            self._upstream.client.respond_exception(request.id, gone, now=now)

    # The time

    def next_deadline(self) -> float:
        """Return when to send input requests, or to give up a client; math.inf for never."""
        waiting = (*self._asking.values(), *(each.until for each in self._parked.values()))
        return min(waiting, default=math.inf)

    def ask_now(self, now: float) -> None:
        """Send the input requests of all clients that wait for them, which ends their calls."""
        for pairing in tuple(self._asking):
            del self._asking[pairing]
            self._park(pairing, now)

    def _park(self, pairing: Pairing, now: float) -> None:
        wanted = islice(pairing.questions.items(), self._limits.max_batch_messages)
        asked = {str(name): InputRequest(each.method, each.params or {}) for name, each in wanted}
        call = pairing.call
        state = {SERVER: self._name, RELAY: self._token, PARKED: pairing.number}
        call.respond(InputRequired(asked, state), now=now)
        self._pairings.leave(call)
        self._parked[pairing.number] = Parked(pairing, now + self._limits.input_timeout)

    def next_late(self, now: float) -> Parked | None:
        """Remove and return a pairing whose client did not come back in time; None without one."""
        late = next((each for each in self._parked.values() if each.until <= now), None)
        return None if late is None else self._parked.pop(late.pairing.number)


def _size_of(report: Report) -> int:
    if isinstance(report, ProgressReceived):
        return _REPORT_BYTES + len(report.message or "")
    return _REPORT_BYTES + len(jsonrpc.encode(report))
