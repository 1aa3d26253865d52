"""Whatever a client sends while its calls wait for answers: nothing raises, nothing runs twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import InputRequired, ServerCall

from .harness import LATEST, RawExchange
from .instances import Instances
from .pipe_harness import result
from .test_multi_turn import BOTH, answers_to
from .test_rounds import ACCEPTED, ALL, NAME

WAYS = [("2025-03-26", False), ("2025-06-18", False), (LATEST, False), (LATEST, True)]

IDS = ["a", "b", "other call", "other session", "unknown"]
"""Of questions, by what they belong to: the call at hand has two."""
SHAPES = ["answer", "error", "request", "notification", "nonsense"]
OTHERS: st.SearchStrategy[Any] = st.sampled_from(
    [None, 1, 0, -1, 1.0, 2.5, True, "1", "", ".", "x-1.0", [], {}]
)
MESSAGES = st.tuples(st.sampled_from(SHAPES), st.sampled_from(IDS) | OTHERS)
CURSORS = ["turn", "before", "other call", "other session"]
"""Places that a continuation may name, rightly or wrongly."""
NEARLY_RIGHT = st.lists(
    st.tuples(st.sampled_from(["answer", "error"]), st.sampled_from(IDS)), min_size=1, max_size=4
)
BODIES = st.lists(MESSAGES, max_size=4) | NEARLY_RIGHT
PLACES = st.just("turn") | st.sampled_from([*CURSORS, "x-1", None])
POSTS = st.lists(st.tuples(st.integers(0, 1), PLACES, BODIES, st.booleans()), max_size=5)
"""Which instance gets what, with which cursor, and whether one message comes without an array."""


class Waiting:
    """A call that waits for answers, and others that do."""

    def __init__(self, version: str, *, multi_turn: bool) -> None:
        self.version = version
        self.multi_turn = multi_turn
        self.instances = Instances(multi_turn=True)
        capabilities: dict[str, Any] = BOTH if multi_turn else ALL
        self.session, other = (self.instances.open_session(version, capabilities) for _ in range(2))
        self.talk = self.ask(self.session, "call", "a", "b")
        talks = [self.ask(self.session, "other", "a"), self.ask(other, "call", "a")]
        a, b = self.talk.messages
        (of_call,), (of_session,) = (talk.messages for talk in talks)
        self.answers = answers_to([a, b])
        known = (a["id"], b["id"], of_call["id"], of_session["id"], f"{a['id']}0")
        self.ids = dict(zip(IDS, known, strict=True))
        cursors = (self.talk.last_id, self.talk.events[0].id, *(talk.last_id for talk in talks))
        self.cursors = dict(zip(CURSORS, cursors, strict=True))
        self.entered: list[ServerCall] = []

    def ask(self, session: str, id: str, *names: str) -> RawExchange:
        talk, call = self.instances[0].call(session, id, version=self.version)
        self.instances[0].run_action(call.respond, InputRequired(dict.fromkeys(names, NAME)))
        return talk

    def message(self, shape: str, id: Any) -> Any:
        id = self.ids.get(id, id) if isinstance(id, str) else id
        return {
            "answer": {"jsonrpc": "2.0", "id": id, "result": ACCEPTED},
            "error": {"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "no"}},
            "request": {"jsonrpc": "2.0", "id": id, "method": "ping"},
            "notification": {"jsonrpc": "2.0", "method": "x", "params": {"id": id}},
            "nonsense": {"jsonrpc": "2.0", "id": id},
        }[shape]

    def post(self, where: int, cursor: str | None, body: Any) -> RawExchange:
        """A POST that is answered, or that reads a stream."""
        cursor = self.cursors.get(cursor, cursor) if cursor is not None else None
        harness = self.instances[where]
        talk = harness.post(body, self.session, self.version, {"last-event-id": cursor})
        while talk.status is None:  # a response looks for who waits for it
            self.instances.wait(1)
        self.entered += [call for call in self.instances.entered if call.request.id == "call"]
        return talk

    def end(self) -> list[Any]:
        """Give the right answers, and the result; what the client gets."""
        if self.multi_turn:
            readers = [self.post(where, "turn", self.answers) for where in (1, 0)]
        else:
            readers = [self.talk]
            for where, answer in enumerate(self.answers):
                self.post(where, None, answer)
        (call,) = self.entered
        for harness in self.instances:
            harness.run_action(call.respond, {"done": True})
        self.instances.wait(0.5)
        return [talk.messages[-1] for talk in readers if talk.status == 200]


@pytest.mark.no_cover
@pytest.mark.parametrize(("version", "multi_turn"), WAYS)
@given(posts=POSTS)
def test_whatever_comes_before_the_answers(
    version: str,
    multi_turn: bool,
    posts: list[tuple[int, str | None, list[tuple[str, Any]], bool]],
) -> None:
    waiting = Waiting(version, multi_turn=multi_turn)
    for where, cursor, said, is_plain in posts:
        messages = [waiting.message(*each) for each in said]
        body = messages[0] if is_plain and len(messages) == 1 else messages
        waiting.post(where, cursor, body)
        assert len(waiting.entered) <= 1
    for answer in waiting.end():
        assert answer == result("call", {"done": True})
