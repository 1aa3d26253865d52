"""What real servers send that is not exactly right: read where it can mean one thing only.

What cannot be read ends the call that it answers at once. What answers no call is quoted by the
calls that then end without a response.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from sansmcp import (
    BodyData,
    CallError,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    Limits,
    RequestTimeout,
)
from sansmcp.events import CallCompleted, CallFailed, ProtocolViolation, ServerRequestReceived

from .detection_harness import failure
from .harness import Asked, ClientHarness, only_failure, response
from .modern.harness import ModernClientHarness
from .process_harness import ProcessHarness
from .sse_harness import SseHarness

BOM = b"\xef\xbb\xbf"
Say: TypeAlias = Callable[[bytes], None]


def say_event(stream: Asked, data: bytes) -> None:
    stream.feed(BodyData(b"data: %b\n\n" % data))


class Way:
    """A transport: a call that was made, and a function by which its server says something."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        if name == "stdio":
            process = ProcessHarness(**settings).connect()
            self.handle, self.id = process.make(timeout=10)
            self.harness: ClientHarness = process
            self.say: Say = lambda data: process.say(data)
        elif name == "http+sse":
            sse = SseHarness(**settings).connect()
            self.handle, asked = sse.call(timeout=10)
            asked.accept()
            self.harness, self.id = sse, asked.id
            self.say = lambda data: say_event(sse.stream, data)
        else:
            self.harness = ClientHarness(**settings).connect()
            self.handle, asked = self.harness.call(timeout=10)
            self.id = asked.id
            if name == "event":
                asked.open_stream()
            self.say = asked.answer if name == "json" else lambda data: say_event(asked, data)

    def response(self, result: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (self.id, result)

    def end(self) -> CallCompleted | CallFailed:
        """How the call has ended, without that any time has passed."""
        ends = [e for e in self.harness.events if isinstance(e, CallCompleted | CallFailed)]
        (end,) = ends
        assert end.call == self.handle
        return end

    def failure(self) -> CallError:
        end = self.end()
        assert isinstance(end, CallFailed)
        return end.error

    @property
    def violations(self) -> list[str]:
        return [e.error.reason for e in self.harness.events if isinstance(e, ProtocolViolation)]


WAYS = pytest.mark.parametrize("way", ["json", "event", "http+sse", "stdio"])
READ: dict[bytes, tuple[Any, str]] = {
    rb'{"x":"abc\ud83d"}': ({"x": "abc�"}, "lone_surrogate"),
    rb'{"\ude00":1}': ({"�": 1}, "lone_surrogate"),
    b'{"x":[Infinity]}': ({"x": [math.inf]}, "not_finite"),
    b'{"x":"a\tb"}': ({"x": "a\tb"}, "malformed_json"),
    b'{"x":"caf\xe9"}': ({"x": "caf�"}, "invalid_utf8"),
}
UNREAD = {
    b'{"a":1,"a":2}': "'a' occurs twice",
    b'{"a":1e999}': "a number too large",
    b'{"a":[1,2,]}': "at character",
    b"{'a':1}": "at character",
    b'{"a":True}': "at character",
    b'{"a":"b': "at character",
    b"[" * 300 + b"]" * 300: "nested deeper than 256 (max_response_depth)",
    b"[" + b"1," * 200_001 + b"1]": "more than 200000 values (max_values)",
}


@WAYS
@pytest.mark.parametrize("result", READ)
def test_what_means_one_thing_only_is_read(way: str, result: bytes) -> None:
    if way in ("event", "http+sse") and result == b'{"x":"caf\xe9"}':
        reason = None  # event streams are decoded like that, by their standard
    else:
        reason = READ[result][1]
    made = Way(way)
    made.say(made.response(result))
    assert made.end() == CallCompleted(made.handle, READ[result][0])
    assert made.violations == ([reason] if reason else [])


@WAYS
def test_a_byte_order_mark_is_skipped(way: str) -> None:
    made = Way(way)
    made.say(BOM + made.response(b"{}"))
    assert made.end() == CallCompleted(made.handle, {})
    assert made.violations == ["byte_order_mark"]


@WAYS
@pytest.mark.parametrize("result", UNREAD, ids=lambda result: result[:10])
def test_a_response_that_cannot_be_read_ends_its_call_at_once(way: str, result: bytes) -> None:
    made = Way(way)
    made.say(made.response(result))
    error = made.failure()
    assert isinstance(error, InvalidResponse)
    assert UNREAD[result] in str(error)
    assert made.violations == []


@WAYS
def test_a_strict_client_reads_only_what_is_right(way: str) -> None:
    for bad in (b'{"x":NaN}', rb'"\ud83d"', b'{},"error":null'):
        made = Way(way, strict=True)
        made.say(made.response(bad))
        assert isinstance(made.failure(), InvalidResponse)


def test_nan_is_a_number() -> None:
    made = Way("json")
    made.say(made.response(b'{"x":NaN}'))
    end = made.end()
    assert isinstance(end, CallCompleted)
    assert math.isnan(end.result["x"])


def test_a_fault_is_reported_once() -> None:
    harness = ProcessHarness().connect()
    for _ in range(3):
        _, id = harness.make()
        harness.say(rb'{"jsonrpc":"2.0","id":%d,"result":["\ud83d",NaN]}' % id)
        _, id = harness.make()
        harness.say(b'{"jsonrpc":"2.0","id":%d,"result":{},"error":null}' % id)
    violations = [e.error for e in harness.take_events() if isinstance(e, ProtocolViolation)]
    assert [each.reason for each in violations] == [
        "lone_surrogate",
        "not_finite",
        "invalid_message",
    ]
    assert "at character 35" in str(violations[0])
    assert "$.result[1] is nan" in str(violations[1])


@WAYS
def test_a_response_above_the_limit_ends_its_call(way: str) -> None:
    made = Way(way, limits=Limits(max_message_bytes=3000))
    made.say(made.response(b'"%b"' % (b"x" * 3000)))
    error = made.failure()
    if way == "http+sse":  # all messages come on that stream, which cannot be read on
        assert isinstance(error, Disconnected)
    else:
        assert isinstance(error, InvalidResponse)
    assert "larger than the limit of 3000 bytes" in str(error)


# Null for nothing


@WAYS
@pytest.mark.parametrize(
    "members", [b'"error":null', b'"method":null,"error":null,"params":null', b'"method":null']
)
def test_null_beside_a_result_is_nothing(way: str, members: bytes) -> None:
    made = Way(way)
    made.say(made.response(b"{}," + members))
    assert made.end() == CallCompleted(made.handle, {})
    assert made.violations == ["invalid_message"]


@WAYS
@pytest.mark.parametrize("code", [b"-32000", b"-32000.0"])
def test_an_error_is_an_error_beside_a_null_result(way: str, code: bytes) -> None:
    made = Way(way)
    made.say(made.response(b'null,"error":{"code":%b,"message":"no luck"}' % code))
    error = made.failure()
    assert isinstance(error, JsonRpcError)
    assert (error.code, error.message) == (-32000, "no luck")


def test_params_that_are_null_are_none() -> None:
    harness = ProcessHarness().connect()
    harness.say(b'{"jsonrpc":"2.0","id":"p","method":"ping","params":null}')
    assert harness.written == [{"jsonrpc": "2.0", "id": "p", "result": {}}]


def test_messages_of_a_batch_are_read_each_for_itself() -> None:
    harness = ProcessHarness(capabilities={"elicitation": {}}).connect()
    handle, id = harness.make()
    harness.say(
        b'[5,{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":null},'
        rb'{"jsonrpc":"2.0","id":%d,"result":"\ud83d"}]' % id
    )
    reasons = [e.error.reason for e in harness.events if isinstance(e, ProtocolViolation)]
    assert reasons == ["lone_surrogate", "invalid_message", "invalid_message"]
    assert any(isinstance(each, ServerRequestReceived) for each in harness.events)
    assert CallCompleted(handle, "�") in harness.events


@pytest.mark.parametrize("start", [b"", BOM])
def test_the_error_of_a_refusal_is_read(harness: ClientHarness, start: bytes) -> None:
    handle, asked = harness.call()
    body = b'{"jsonrpc":"2.0","id":%d,"result":null,"error":{"code":-32000,"message":"no luck"}}'
    asked.answer(start + body % asked.id, 400)
    error = only_failure(harness, handle)
    assert isinstance(error, JsonRpcError)
    assert (error.message, error.http_status) == ("no luck", 400)


# What answers no call

NOISE = [
    b"Listening on port 80",
    b'{"content":[{"type":"text","text":"fine"}]}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no luck"}}',
    b'{"jsonrpc":"2.0","id":"%d","error":{"code":-32700,"message":"no luck"}}',
    b'{"jsonrpc":"2.0","id":"1","result":{}}',
    b'{"jsonrpc":"2.0","id":1,"resu',
]


@pytest.mark.parametrize("way", ["event", "http+sse", "stdio"])
@pytest.mark.parametrize("noise", NOISE)
def test_what_answers_no_call_is_quoted_by_its_timeout(way: str, noise: bytes) -> None:
    if way == "event" and b"null" in noise:
        return  # the stream of a call: the error is its response
    made = Way(way)
    for _ in range(5):
        made.say(noise)
    made.harness.wait(10)
    error = made.failure()
    assert isinstance(error, RequestTimeout)
    shown = "a response to" if b'"id":"1"' in noise else noise[-20:-4].decode()
    if b"no luck" in noise:
        shown = "no luck (code -32700)"
    assert str(error).startswith("tools/call was not answered within 10 s")
    assert str(error).count(shown) == 1


def test_texts_from_before_a_call_are_not_quoted() -> None:
    harness = ProcessHarness().connect()
    harness.say(b"hello")
    harness.wait(1)
    harness.make(timeout=10)
    harness.wait(10)
    (event,) = [each for each in harness.events if isinstance(each, CallFailed)]
    assert str(event.error) == "tools/call got no response within 10 s without progress (timeout)"


def test_texts_on_the_stream_of_another_call_are_not_quoted(harness: ClientHarness) -> None:
    handle, asked = harness.call(timeout=10)
    _, other = harness.call(timeout=20)
    asked.open_stream()
    other.open_stream()
    other.event(b"hello")
    harness.events.clear()
    harness.wait(10)
    assert "hello" not in str(only_failure(harness, handle))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', "JSON, though its Content-Type is"),
        (b'{\n "jsonrpc": "2.0",\n "id": 1\n}\n', 'event stream: { "jsonrpc": "2.0", "id": 1 }'),
        (b'data: {"jsonrpc":"2.0"}\n', "without the blank line at its end: data: {"),
        (b"event: message\ndata: " + b"x" * 3000, "without the blank line at its end"),
        (b"data: " + b"x" * 3000 + b"\n", "without the blank line at its end: xxx"),
        (b"data: {'jsonrpc': '2.0'}\n\n", "{'jsonrpc': '2.0'}"),
        (b'data: {"hello":1}\n\n', '{"hello":1}'),
        (b'event: error\ndata: {"error":"upstream timed out"}\n\n', 'error: {"error":"upstream'),
        (b"\xef\xbb", "without the blank line at its end"),
    ],
)
def test_a_stream_without_the_response_says_what_came(
    harness: ClientHarness, body: bytes, shown: str
) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.feed(BodyData(body))
    asked.end()
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert shown in str(error)


def test_so_does_the_opening() -> None:
    harness = ClientHarness(connect_timeout=5)
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.open_stream()
    asked.event(b"please wait")
    harness.wait(5)
    assert "(received, not a response) please wait" in str(failure(harness))


# Numbers that are none


@pytest.mark.parametrize("progress", [b"NaN", b"Infinity"])
def test_progress_is_a_finite_number(harness: ClientHarness, progress: bytes) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(
        b'{"jsonrpc":"2.0","method":"notifications/progress",'
        b'"params":{"progressToken":%d,"progress":%b}}' % (asked.id, progress)
    )
    asked.event(response(asked.id))
    *violations, completed = harness.events
    assert [type(each) for each in violations] == [ProtocolViolation, ProtocolViolation]
    assert completed == CallCompleted(handle, {})


def test_a_result_that_is_not_json_is_not_cached() -> None:
    harness = ModernClientHarness(cache=True).connect()
    for _ in range(2):
        handle, asked = harness.call("tools/list")
        asked.answer(b'{"jsonrpc":"2.0","id":%d,"result":{"ttlMs":9999,"x":NaN}}' % asked.id)
        (completed,) = [e for e in harness.take_events() if isinstance(e, CallCompleted)]
        assert completed.call == handle


def test_a_fault_in_what_is_no_message_is_no_second_fault() -> None:
    harness = ProcessHarness().connect()
    harness.say(b'{"x":NaN}', rb'{"jsonrpc":"2.0","method":"x","params":{"y":"\ud83d"}}')
    reasons = [e.error.reason for e in harness.events if isinstance(e, ProtocolViolation)]
    assert reasons == ["lone_surrogate"]
