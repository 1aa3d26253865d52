"""Others who have seen all that went over the wire of a call, and try to use it.

A stranger is another principal, or the same one in another session. What is refused is said: the
status and the reason of each attempt. Answers and cancellations from another session are the
exception: they name nothing there, and what names nothing is ignored, for it may just be late.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from sansmcp import BodyData
from sansmcp.effects import ClientEffect, OpenExchange
from sansmcp.http import RequestPart, ResponsePart
from sansmcp.reclaim import EXTENSION
from sansmcp.trace import Tracer

STREAM = "text/event-stream"
BOTH = f"application/json, {STREAM}"
ANSWER = {"action": "accept", "content": {"value": 10**6}}
"""What a stranger answers: the result would tell."""

_CURSOR = re.compile(rb"^id: (\S+)$", re.MULTILINE)
_QUESTION = re.compile(rb'"id":([^,{}]+),"method":')
_STATE = re.compile(rb'"requestState":"([^"]+)"')


class Spy(Tracer):
    """Remembers what a client sends and receives, as far as others could make use of it."""

    def __init__(self) -> None:
        super().__init__("spy", lambda line: None)
        self.session = self.cursor = self.state = ""
        self.question = b'""'
        """The id of the last one, as JSON."""
        self.call: dict[str, Any] = {}
        """The last request for a tool, and its headers."""
        self.headers: dict[str, str] = {}
        self._seen: defaultdict[int, bytes] = defaultdict(bytes)

    def effect_pulled(self, effect: ClientEffect) -> None:
        if not isinstance(effect, OpenExchange):
            return
        headers = {name.decode(): value.decode() for name, value in effect.head.headers}
        self.session = headers.get("mcp-session-id", "")
        if b'"method":"tools/call"' in effect.body:
            self.call, self.headers = json.loads(effect.body), headers

    def part_received(self, exchange: int, part: RequestPart | ResponsePart) -> None:
        if isinstance(part, BodyData):
            seen = self._seen[exchange] = self._seen[exchange] + part.data
            self.cursor = _last(_CURSOR, seen, self.cursor.encode()).decode()
            self.question = _last(_QUESTION, seen, self.question)
            self.state = _last(_STATE, seen, self.state.encode()).decode()


def _last(form: re.Pattern[bytes], seen: bytes, before: bytes) -> bytes:
    found: list[bytes] = form.findall(seen)
    return found[-1] if found else before


@attrs.frozen
class Attempt:
    """A request, as the stranger makes it."""

    method: str
    headers: dict[str, str]
    body: Any = None
    refused: tuple[int, str] | None = None
    """The status and the reason with which it is refused; None: it is ignored."""
    principal: str = ""


def initialize(version: str) -> Attempt:
    """How strangers get a session of their own."""
    experimental = {"sansmcp/multi-turn-sse": {"sep": 1858}}
    params = {
        "protocolVersion": version,
        "capabilities": {"elicitation": {}, "experimental": experimental},
        "clientInfo": {"name": "stranger", "version": "1"},
    }
    headers = {"accept": BOTH, "content-type": "application/json"}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return Attempt("POST", headers, body)


def attempts(spy: Spy, own: Mapping[str, str], *, multi_turn: bool) -> Iterator[Attempt]:
    """What strangers try while a call waits for answers.

    ``own``: their sessions, by their principals; the first of these is that of the call.
    """
    principal, *others = own
    if not spy.session:
        for other in others:
            yield _with_state(spy, other, spy.call["params"]["arguments"])
        yield _with_state(spy, principal, {"number": -1})
        return
    for other in others:
        for attempt in _in_session(spy, spy.session, multi_turn=multi_turn):
            yield attrs.evolve(attempt, principal=other, refused=(404, "session_not_found"))
        ends = Attempt("DELETE", {"mcp-session-id": spy.session})
        yield attrs.evolve(ends, principal=other, refused=(404, "session_not_found"))
    for principal, session in own.items():
        for attempt in _in_session(spy, session, multi_turn=multi_turn):
            yield attrs.evolve(attempt, principal=principal)


def _in_session(spy: Spy, session: str, *, multi_turn: bool) -> Iterator[Attempt]:
    """The cursor, the id of a question, and the id of the request, in some session."""
    headers = {"accept": BOTH, "mcp-session-id": session}
    posted = {**headers, "content-type": "application/json"}
    answer = {"jsonrpc": "2.0", "id": json.loads(spy.question), "result": ANSWER}
    cancelled = {"requestId": spy.call["id"]}
    unknown = (400, "unknown_event_id")
    is_of_a_turn = isinstance(answer["id"], str)  # other ids are taken for late ones
    refused = (400, "unknown_turn") if is_of_a_turn else None
    yield Attempt("GET", {**headers, "last-event-id": spy.cursor}, refused=unknown)
    yield Attempt("POST", posted, answer, refused)
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}
    yield Attempt("POST", posted, notification)
    if multi_turn:
        yield Attempt("POST", {**posted, "last-event-id": spy.cursor}, [answer], unknown)


def _with_state(spy: Spy, principal: str, arguments: dict[str, Any]) -> Attempt:
    """The request with answers, and with the state that was given for it.

    It has no key (docs/reclaim.md): with that of the call it would be refused as a copy, or because
    it is for another process, before the state is read.
    """
    asked = spy.call["params"]
    params = {
        **asked,
        "_meta": {name: value for name, value in asked["_meta"].items() if name != EXTENSION},
        "arguments": arguments,
        "requestState": spy.state,
        "inputResponses": dict.fromkeys("abc", ANSWER),
    }
    kept = {name: value for name, value in spy.headers.items() if name not in NOT_KEPT}
    refused = (400, "bad_request_state")
    return Attempt("POST", kept, {**spy.call, "params": params}, refused, principal)


NOT_KEPT = ("content-length", "host")
