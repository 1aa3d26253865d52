"""What a server asks of its client, until it is answered or not wanted any more.

At the revisions with a handshake a question is a request of the server, and its answer a message
of its own. At the stateless ones it comes in the result of a call (:mod:`.modern.rounds`). The
application sees no difference. While a question is open, the clocks of the call it belongs to stand
still, if it is one that the client has declared to answer, and one of the first
``Limits.max_questions_per_call``. One more ends the call. Where one stream carries all messages,
nothing tells which call a question belongs to: there it stops the clocks of all, and those of a
call that has used up its number run on.

Source: 2025-03-26 to 2025-11-25, basic/lifecycle, basic/utilities: cancellation, ping; SEP-2260.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from ..codecs.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from ..events import ServerAsked, ServerWithdrew
from ..messages import ErrorResponse, Request, RequestId, Response
from ..meta import CLIENT_CAPABILITIES
from .core import ClientCore

if TYPE_CHECKING:
    from .calls import ClientCall
    from .conversation import Conversation
    from .modern.rounds import Round


@attrs.frozen(eq=False)
class _Question:
    calls: tuple[ClientCall, ...]
    """Those that it may belong to."""
    stopped: tuple[ClientCall, ...]
    """Those of them whose clocks stand still meanwhile."""
    round: Round | None
    """Who wants the answer; None: the server, as a message."""


@attrs.define(eq=False, repr=False)
class Questions:
    """The questions that are open, by id."""

    _core: ClientCore
    _conversation: Conversation
    _open: dict[RequestId, _Question] = attrs.field(factory=dict[RequestId, _Question], init=False)
    _flooded: bool = attrs.field(default=False, init=False)

    def asked(self, request: Request, call: ClientCall | None) -> None:
        """The server has made a request. ``call``: on whose stream it came."""
        if self._core.is_modern:
            what = f"the request {request.method[:50]!r}"
            self._conversation.inbox.violated(what, "unexpected_request")
            return
        if self._is_flooded():
            return
        capability = CLIENT_CAPABILITIES.get(request.method)
        is_one_stream = self._conversation.transport.is_one_stream
        everybody = tuple(self._conversation.calls.values())
        if request.method == "ping":
            self._conversation.post(Response(request.id, {}))
        elif not self.may_be(request.method, otherwise=True):
            text = f"This client has not declared the capability {capability!r}"
            self._conversation.post(ErrorResponse(request.id, METHOD_NOT_FOUND, text))
        elif capability is not None and not everybody and not is_one_stream:
            text = f"{request.method} must belong to a request of the client, and none is running"
            self._conversation.post(ErrorResponse(request.id, INVALID_PARAMS, text))
        elif request.id not in self._open:
            calls = (everybody if is_one_stream else ()) if call is None else (call,)
            stopped = calls if capability is not None else ()
            stopped = tuple(each for each in stopped if each.questions_left)
            if call is not None and capability is not None and not stopped:
                call.asked_too_much()
            else:
                self._put(request, _Question(calls, stopped, None), call)

    def ask(self, requests: Sequence[Request], call: ClientCall, round: Round) -> None:
        """Put the questions of a result to the application."""
        for request in requests:
            self._put(request, _Question((call,), (call,), round), call)

    def may_be(self, method: str, *, otherwise: bool) -> bool:
        """Whether we have declared to answer this; ``otherwise``: about what need not be."""
        if method not in CLIENT_CAPABILITIES:
            return otherwise
        return CLIENT_CAPABILITIES[method] in self._core.capabilities

    def has_room(self, count: int) -> bool:
        """Whether that many more can be open at once."""
        return len(self._open) + count <= self._core.limits.max_pending_calls

    def answer(self, message: Response | ErrorResponse, *, declined: bool = False) -> bool:
        """The application has answered one; False if nobody wants the answer any more."""
        question = self._open.pop(message.id, None) if message.id is not None else None
        if question is None:
            return False
        if question.round is not None:
            question.round.take(message)
        else:
            self._conversation.post(message)
        for call in question.stopped:
            call.told(answered=not declined)
        return True

    def withdrawn(self, id: RequestId, reason: str) -> None:
        """The server does not want an answer any more."""
        if id in self._open:
            stopped = self._open[id].stopped
            self._withdraw(id, reason)
            for call in stopped:
                call.told(answered=False)

    def forget(self, call: ClientCall) -> None:
        """A call has ended, and with it the server's interest in answers to its questions."""
        for id, question in tuple(self._open.items()):
            if call in question.calls:
                others = tuple(one for one in question.calls if one is not call)
                stopped = tuple(one for one in question.stopped if one is not call)
                self._open[id] = attrs.evolve(question, calls=others, stopped=stopped)
                if not others:
                    self._withdraw(id, "the call it belongs to has ended")

    def drop(self) -> None:
        """The session has ended."""
        for id in tuple(self._open):
            self._withdraw(id, "the session has ended")

    def _put(self, request: Request, question: _Question, call: ClientCall | None) -> None:
        self._open[request.id] = question
        for each in question.stopped:
            each.asked()
        self._core.events.append(ServerAsked(call.handle if call else None, request))

    def _withdraw(self, id: RequestId, reason: str) -> None:
        del self._open[id]
        self._core.events.append(ServerWithdrew(id, reason))

    def _is_flooded(self) -> bool:
        """Whether the server asks more than it takes answers to; what it asks then is not heard."""
        most = self._core.limits.max_pending_calls
        was_flooded = self._flooded
        self._flooded = self._core.posts.is_full or not self.has_room(1)
        if self._flooded and not was_flooded:
            what = f"more than {most} requests without taking our answers"
            self._conversation.inbox.violated(what, "too_many")
        return self._flooded
