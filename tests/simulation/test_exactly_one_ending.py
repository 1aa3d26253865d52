"""Law: every request ends exactly once, for every truncation point of every response."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import BodyData, encode_event
from sansmcp.events import CallCompleted, CallFailed
from sansmcp.states import ClientState

from ..client.harness import Asked, ClientHarness, initialized, notification, response
from ..thorough import always

requirement = pytest.mark.requirement
ANSWER = json.dumps(response(1, {"a": "ä"})).encode()
PROGRESS = json.dumps(notification("notifications/progress", progressToken=1, progress=1)).encode()

JSON = ("application/json", ANSWER)
STREAMS = {
    "json": JSON,
    "plain stream": ("text/event-stream", encode_event(PROGRESS) + encode_event(ANSWER)),
    "stream with ids": (
        "text/event-stream",
        encode_event(b"", id="s-0", retry=100)
        + encode_event(PROGRESS, event="message", id="s-1")
        + b":\n\n"
        + encode_event(ANSWER, event="message", id="s-2"),
    ),
    "stream that is closed early": (
        "text/event-stream",
        encode_event(b"", id="s-0") + encode_event(PROGRESS, id="s-1", retry=0),
    ),
    "empty stream": ("text/event-stream", b""),
    "an error": ("application/json", b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}'),
}


def refuse(status: int) -> Callable[[Asked], None]:
    return lambda asked: asked.refuse(status, b"no")


def break_off(asked: Asked) -> None:
    asked.cut("connection refused")


def open_and_close(asked: Asked) -> None:
    asked.open_stream()
    asked.end()


def replay(asked: Asked) -> None:
    """The answer to whatever was asked last."""
    asked.open_stream()
    id = asked.id if asked.effect.body else 1
    asked.event(response(id), id="s-9")
    asked.end()


def hang(asked: Asked) -> None:
    """Nothing ever comes."""


BEHAVIOURS: dict[str, Callable[[Asked], None]] = {
    "refused": break_off,
    "hangs": hang,
    "opens and closes": open_and_close,
    "replays": replay,
    **{
        str(status): refuse(status) for status in (200, 202, 204, 400, 401, 404, 405, 406, 429, 500)
    },
}
AFTERWARDS = ("refused", "hangs", "opens and closes", "replays", "404", "405", "500")
"""What may follow where a response was cut."""


def serve(harness: ClientHarness, behaviour: Callable[[Asked], None]) -> None:
    """Answer everything that the client asks from now on, until it asks nothing more."""
    for _ in range(500):
        while harness.requests:
            asked = harness.requests.pop(0)
            if asked.effect.body and asked.json.get("method") == "initialize":
                asked.answer(initialized(asked.id), mcp_session_id="next-session-0001")
            elif asked.effect.body and "id" not in asked.json:
                asked.accept()
            else:
                behaviour(asked)
        deadline = harness.client.next_deadline()
        if deadline is None:
            return
        harness.wait(max(deadline - harness.now, 0.0))
    raise AssertionError("the client never comes to rest")


def check(
    kind: str, body: bytes, cut: int, behaviour: str, *, clean: bool, idempotent: bool
) -> None:
    harness = ClientHarness().connect()
    timeout = 2.0 if behaviour == "opens and closes" else 60.0  # it is polled until then
    handle, asked = harness.call(idempotent=idempotent, timeout=timeout)
    asked.head(content_type=kind)
    if cut:
        asked.feed(BodyData(body[:cut]))
    if clean:
        asked.end()
    else:
        asked.cut()
    serve(harness, BEHAVIOURS[behaviour])
    ends = [event for event in harness.events if isinstance(event, CallCompleted | CallFailed)]
    assert [event.call for event in ends] == [handle]
    assert harness.client.next_deadline() is None
    if harness.client.state is ClientState.READY:
        harness.run_command(harness.client.close)
        harness.take("DELETE").refuse(200)
    assert len([e for e in harness.events if isinstance(e, CallCompleted | CallFailed)]) == 1


@requirement("SHTTP-B-001", "RESUME-C-002")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("turn", always(range(len(AFTERWARDS)), lambda turn: turn == 0))
def test_every_truncation_point_of_every_response(turn: int, name: str, clean: bool) -> None:
    """At each point one of the behaviours follows; in so many turns all of them do."""
    kind, body = STREAMS[name]
    for cut in range(len(body) + 1):
        behaviour = AFTERWARDS[(cut + turn) % len(AFTERWARDS)]
        check(kind, body, cut, behaviour, clean=clean, idempotent=False)


@given(
    name=st.sampled_from(sorted(STREAMS)),
    cut=st.integers(0, 300),
    behaviour=st.sampled_from(sorted(BEHAVIOURS)),
    clean=st.booleans(),
    idempotent=st.booleans(),
)
def test_any_truncation_and_any_behaviour(
    name: str, cut: int, behaviour: str, clean: bool, idempotent: bool
) -> None:
    kind, body = STREAMS[name]
    check(kind, body, min(cut, len(body)), behaviour, clean=clean, idempotent=idempotent)


@given(
    parts=st.lists(
        st.binary(max_size=40)
        | st.sampled_from([ANSWER, PROGRESS, b"\n\n", b"data: ", b"id: 1\n"]),
        max_size=8,
    ),
    kind=st.sampled_from(["application/json", "text/event-stream", "text/html", ""]),
    status=st.sampled_from([200, 201, 202, 204, 301, 307, 400, 404, 500]),
    behaviour=st.sampled_from(sorted(BEHAVIOURS)),
)
def test_any_response_at_all(parts: list[bytes], kind: str, status: int, behaviour: str) -> None:
    harness = ClientHarness().connect()
    handle, asked = harness.call(timeout=2.0 if behaviour == "opens and closes" else 60.0)
    asked.head(status, content_type=kind)
    for part in parts:
        asked.feed(BodyData(part))
    asked.end()
    serve(harness, BEHAVIOURS[behaviour])
    ends = [event for event in harness.events if isinstance(event, CallCompleted | CallFailed)]
    assert [event.call for event in ends] == [handle]
