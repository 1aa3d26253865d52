"""Answers that a request needs before it can be answered: multi round-trip requests.

The server asks by a result; the client gathers all answers and makes the request again, with a new
id, the answers, and the state that the server gave along, unread. A question looks to the
application like any other request of a server.

Source: 2026-07-28 basic/utilities: multi round-trip requests; SEP-2322.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ...codecs import json
from ...errors import InvalidResponse, JsonRpcError
from ...messages import ErrorResponse, Request, RequestId, Response
from ..core import ClientCore

if TYPE_CHECKING:
    from ..calls import ClientCall
    from ..conversation import Conversation


@attrs.define(eq=False, repr=False)
class Round:
    """The questions of one result, until all are answered."""

    _core: ClientCore
    _conversation: Conversation
    _call: ClientCall
    _keys: dict[RequestId, str] = attrs.field(factory=dict[RequestId, str], init=False)
    _answers: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    _params: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)

    def begin(self, request_id: RequestId | None, result: dict[str, Any]) -> None:
        """Put the questions to the application; without any, go on at once."""
        state = result.get("requestState")
        questions = json.as_object(result.get("inputRequests", {}))
        if questions is None or not isinstance(state, str | None):
            self._refuse("an input_required result that cannot be read")
            return
        if state is None and not questions:
            self._refuse("an input_required result that requires nothing")
            return
        count = len(questions)
        if count > self._call.questions_left or not self._conversation.questions.has_room(count):
            self._refuse(f"{count} questions, which are too many")
            return
        self._params = {} if state is None else {"requestState": state}
        asked: list[Request] = []
        for key, value in questions.items():
            question = json.as_object(value) or {}
            method, params = question.get("method"), json.as_object(question.get("params", {}))
            if not isinstance(method, str) or params is None or not self._may_be_asked(method):
                what = repr(method)[:50]
                self._refuse(f"a question that this client has not declared to answer: {what}")
                return
            id = f"{request_id}/{key}"
            self._keys[id] = key
            asked.append(Request(id, method, params))
        self._conversation.questions.ask(asked, self._call, self)
        if not asked:
            self._call.next_round(self._params)

    def take(self, answer: Response | ErrorResponse) -> None:
        """The application has answered a question. An error ends the call: it cannot be carried."""
        if isinstance(answer, ErrorResponse):
            self._call.fail(
                JsonRpcError(answer.code, answer.message, answer.data, method=self._call.method)
            )
            return
        self._answers[self._keys[answer.id]] = answer.result
        if len(self._answers) == len(self._keys):
            self._call.next_round({"inputResponses": self._answers, **self._params})

    def _may_be_asked(self, method: str) -> bool:
        return self._conversation.questions.may_be(method, otherwise=False)

    def _refuse(self, what: str) -> None:
        method = self._call.method
        self._call.fail(InvalidResponse(f"The answer to {method} is {what}", method=method))
