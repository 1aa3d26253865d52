"""Answers that are kept back until the server wants them, all at once (SEP-1858).

When a server has sent ``buffer_input`` on the stream of a call, the answers to what it asks there
are not sent one by one. ``input_required`` ends the turn, and the stream: as soon as all answers
are there they go out as one array, by a POST with the id of that event, and the call goes on in the
response to it. An error, because the user has declined, is an answer like others.

Source: SEP-1858.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from ...codecs import jsonrpc
from ...limits import Limits
from ...messages import ErrorResponse, Message, RequestId, Response

BUFFER_INPUT = "buffer_input"
INPUT_REQUIRED = "input_required"


@attrs.define(eq=False, repr=False)
class Turns:
    """The turns of all calls, by the ids of what is asked in them."""

    by_id: dict[RequestId, KeptTurn] = attrs.field(factory=dict[RequestId, "KeptTurn"], init=False)

    def keeps(self, message: Message) -> bool:
        """Whether an answer is kept back; then its turn has it."""
        if not isinstance(message, Response | ErrorResponse) or message.id is None:
            return False
        turn = self.by_id.pop(message.id, None)
        if turn is not None:
            turn.take(message)
        return turn is not None


@attrs.define(eq=False, repr=False)
class KeptTurn:
    """What is asked in one turn, and the answers so far."""

    _turns: Turns
    _limits: Limits
    _done: Callable[[bytes], None]
    """Is called once with the array of answers, when the turn is closed and all are there."""
    _too_much: Callable[[str], None]
    """Is called with what is too much, instead."""
    _asked: set[RequestId] = attrs.field(factory=set[RequestId], init=False)
    _answers: list[bytes] = attrs.field(factory=list[bytes], init=False)
    _size: int = attrs.field(default=0, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)

    def ask(self, id: RequestId) -> bool:
        """Something is asked in this turn; False if that is not new, or too much."""
        if id in self._asked:
            return False
        if len(self._asked) == self._limits.max_batch:
            self._too_much(f"more than {self._limits.max_batch} questions at once")
            return False
        self._asked.add(id)
        self._turns.by_id[id] = self
        return True

    def take(self, answer: Response | ErrorResponse) -> None:
        """An answer to one of them."""
        data = jsonrpc.encode(answer)
        self._answers.append(data)
        self._size += len(data) + 1
        if self._size >= self._limits.max_message_bytes:
            self._too_much(f"questions with answers of {self._size} bytes")
        else:
            self._check()

    def close(self) -> None:
        """Nothing more is asked."""
        self._is_closed = True
        self._check()

    def drop(self) -> None:
        """Nobody wants the answers any more."""
        for id in self._asked:
            self._turns.by_id.pop(id, None)

    def _check(self) -> None:
        if self._is_closed and len(self._answers) == len(self._asked):
            self._done(jsonrpc.encode_batch(self._answers))
