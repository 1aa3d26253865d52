"""An envelope tells what its message is, opens to it, and is the same whichever way it was read."""

from __future__ import annotations

import importlib
import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import (
    Batch,
    Envelope,
    Limits,
    Message,
    Notification,
    RemoteProtocolError,
    Request,
    decode_envelope,
    decode_message,
)
from sansmcp.codecs import envelope

LIMITS = Limits()
GIVEN = b'{"jsonrpc":"2.0",%s}'


def refusal(decode: Callable[[bytes, Limits], object], data: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(data, LIMITS)
    return caught.value


def test_a_gateway_gives_a_request_another_id_and_leaves_the_rest_alone() -> None:
    params = b'{"name":"add", "arguments":{"a":1.50,"b":"\\u0031"}}'
    data = GIVEN % (b'"id":7,"method":"tools/call","params":' + params)
    envelope = decode_envelope(data, LIMITS)
    assert envelope == Envelope(7, "tools/call", params)
    envelope.id = "gateway-1"
    passed_on = envelope.encode()
    assert params in passed_on
    arguments = {"a": 1.5, "b": "1"}
    expected = Request("gateway-1", "tools/call", {"name": "add", "arguments": arguments})
    assert decode_message(passed_on, LIMITS) == expected


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (b'"method":"m"', Envelope(None, "m")),
        (b'"method":"m","params":{}', Envelope(None, "m", b"{}")),
        (b'"id":"a","method":"m"', Envelope("a", "m")),
        (b'"id":1,"result":[1,{"a":null}]', Envelope(1, result=b'[1,{"a":null}]')),
        (b'"id":1,"result":null', Envelope(1, result=b"null")),
        (b'"id":1,"error":{"code":1}', Envelope(1, error=b'{"code":1}')),
        (b'"error":{"code":1}', Envelope(error=b'{"code":1}')),
        (
            b'"error":{"code":1},"id":null',
            Envelope(error=b'{"code":1}', further={"id": b"null"}),
        ),
        (
            b'"x":[1.0 ],"id":1,"\\u0079\\"":{},"result":2,"params":[]',
            Envelope(1, result=b"2", further={"x": b"[1.0 ]", 'y"': b"{}", "params": b"[]"}),
        ),
        (b'"id":1.0,"method":"m"', None),
        (b'"id":1.0,"result":2', Envelope(1, result=b"2")),
        (b'"method" : "\\u006d" , "params"\t:\n{ } ', Envelope(None, "m", b"{ }")),
        (b'"method":"m","result":{},"\\u0069d":1', None),
        (b'"method":"m","params":[]', None),
        (b'"method":"m","params":null', None),
        (b'"method":"m","id":null', None),
        (b'"method":"m","id":1.0', None),
        (b'"method":"m","id":true', None),
        (b'"method":"m","method":"n"', None),
        (b'"method":"m","\\u006dethod":"n"', None),
        (b'"method":"m","x":{"a":1,"a":2}', None),
        (b'"method":"m","\\ud800":1', None),
        (b'"method":"m","\\uD800":1', None),
        (b'"method":1', None),
        (b'"result":1', None),
        (b'"id":1,"error":[]', None),
        (b'"id":1,"result":1,"error":{}', None),
        (b'"id":1', None),
        (b'"id":1,"result":1,', None),
        (b'"id":1,"result":NaN', None),
        (b'"id":1,"result":"\xff"', None),
    ],
)
def test_what_is_outside_keeps_the_rules(members: bytes, expected: Envelope | None) -> None:
    data = GIVEN % members
    if expected is None:
        reason = refusal(decode_message, data).reason
        assert refusal(decode_envelope, data).reason == reason
        assert refusal(envelope.decode_stdlib, data).reason == reason
    else:
        assert decode_envelope(data, LIMITS) == expected
        assert envelope.decode_stdlib(data, LIMITS) == expected
        assert decode_envelope(expected.encode(), LIMITS) == expected


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"a":1,"a":2}', "duplicate_name"),
        (b"[" * 65 + b"]" * 65, "too_deep"),
        (b"[" * 64 + b"]" * 64, "too_deep"),
        (b"1e999", "number_too_large"),
        (b"9" * 5000, "number_too_large"),
        (b'["\\ud800"]', "lone_surrogate"),
        (b'["\\uD800"]', "lone_surrogate"),
    ],
)
def test_what_is_inside_is_judged_when_it_is_opened(payload: bytes, reason: str) -> None:
    data = GIVEN % (b'"id":1,"result":' + payload)
    for decode in (decode_envelope, envelope.decode_stdlib):
        found = decode(data, LIMITS)
        assert found == Envelope(1, result=payload)
        with pytest.raises(RemoteProtocolError) as caught:
            found.decode_payload(LIMITS)
        assert caught.value.reason == reason


@pytest.mark.parametrize("name", [b'"id":1,"result":', b'"x":1,"id":1,"result":'])
def test_what_exhausts_stack_or_memory_is_refused_unopened(name: bytes) -> None:
    """Brackets and values are counted before anything recurses."""
    limits = Limits(max_values=2000)
    for payload, reason in (
        (b"[" * 1024 + b"]" * 1024, "too_deep"),
        (b"[" * 1025, "too_deep"),
        (b"[" * 100_000, "too_many_values"),
        (b"[" + b"1," * 2000 + b"1]", "too_many_values"),
    ):
        data = GIVEN % (name + payload)
        for decode in (decode_envelope, envelope.decode_stdlib, decode_message):
            with pytest.raises(RemoteProtocolError) as caught:
                decode(data, limits)
            assert caught.value.reason == reason


@pytest.mark.parametrize("depth", [1, 62, 63, 64])
def test_the_depth_of_what_is_outside_is_counted_from_the_message(depth: int) -> None:
    """The count was one too lenient."""
    data = GIVEN % (b'"method":"m","x":' + b"[" * depth + b"]" * depth)
    reasons: list[str] = []
    for decode in (decode_envelope, envelope.decode_stdlib, decode_message):
        try:
            decode(data, LIMITS)
        except RemoteProtocolError as error:
            reasons.append(error.reason)
    assert reasons == (["too_deep"] * 3 if depth == 64 else [])


def test_what_was_not_understood_is_passed_on() -> None:
    """A null id and unknown members got lost."""
    data = GIVEN % b'"id":null,"error":{"code":1,"message":""},"trace":{"x":[1.50]}'
    passed_on = decode_envelope(data, LIMITS).encode()
    assert json.loads(passed_on) == json.loads(data)
    assert b'{"x":[1.50]}' in passed_on
    answered = decode_envelope(data, LIMITS)
    answered.id = 7
    assert json.loads(answered.encode()) == {**json.loads(data), "id": 7}


@pytest.mark.parametrize("unit", [b"x", b"\\n", b"\xc3\xa9"])
def test_a_long_name_takes_little_memory(unit: bytes) -> None:
    """163 bytes of memory for each byte of the name of a member."""
    data = GIVEN % (b'"method":"m","' + unit * 500_000 + b'":1')
    tracemalloc.start()
    try:
        decode_envelope(data, LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * len(data)


@pytest.mark.parametrize("data", [b"", b"1", b"{}", b"[]", b"[" * 100_000, b'{"a":1}{', b"\xff"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    assert refusal(decode_envelope, data).jsonrpc_code in (-32700, -32600)


def test_without_msgspec_everything_takes_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sansmcp.codecs.members", None)
    monkeypatch.delitem(sys.modules, envelope.__name__)
    monkeypatch.setattr("sansmcp.codecs.envelope", envelope)  # back again afterwards
    plain = importlib.import_module(envelope.__name__)
    assert plain is not envelope
    assert plain.decode(GIVEN % b'"method":"m"', LIMITS).method == "m"


SPACES = st.sampled_from(
    [("", "", ""), ("", "", ""), ("", "", " "), ("", "", " "), (" ", " ", " "), ("\r\n\t",) * 3]
)
"""Around an object and inside of it, before each colon, after each colon and comma."""
NAMES = st.sampled_from(
    ["jsonrpc", "id", "method", "params", "result", "error", "x", "\\u0069d", '\\"', "m\u00e9"]
)
VALUES = st.sampled_from(
    [
        *('"2.0"', '"m"', "1", "1.0", "-0", "null", "{}", '{"a":1,"a":2}', "[]", "1e9", "1e999"),
        *('{"code":1,"message":""}', '"é\\n"', '"\\ud800"', "[[1 ]", "tru", '"2\\u002e0"'),
    ]
)
TYPICAL = st.sampled_from(
    [
        {"jsonrpc": '"2.0"', "id": "1", "method": '"m"', "params": '{"a":[1.50, 2]}'},
        {"jsonrpc": '"2.0"', "id": "1", "method": '"m"', "params": '{"a": [1.50, 2]}'},
        {"method": '"m"', "jsonrpc": '"2.0"'},
        {"jsonrpc": '"2.0"', "id": '"a"', "result": '"é"'},
        {"jsonrpc": '"2.0"', "id": "7", "error": '{"code":1,"message":"m"}'},
    ]
)

RULES_INSIDE = ("duplicate_name", "lone_surrogate", "number_too_large")


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Messages, and what differs from them in a member or two."""
    pairs = list(draw(TYPICAL).items())
    for name, value in draw(st.lists(st.tuples(NAMES, VALUES), max_size=2)):
        pairs.insert(draw(st.integers(0, len(pairs))), (name, value))
    around, before, after = draw(SPACES)
    text = f",{after}".join(f'"{name}"{before}:{after}{value}' for name, value in pairs)
    return f"{around}{{{around}{text}{around}}}{around}".encode()


def outcome(decode: Callable[[bytes, Limits], object], data: bytes) -> object:
    try:
        return repr(decode(data, LIMITS))
    except RemoteProtocolError as error:
        return error.reason


@pytest.mark.parametrize(
    "message", [{"id": 1, "method": "m", "params": {"a": None, "é": [1.5, 2]}}, {"method": "m"}]
)
def test_what_python_writes_is_not_read_slowly(message: dict[str, Any]) -> None:
    pytest.importorskip("msgspec")
    from sansmcp.codecs import members

    message = {"jsonrpc": "2.0", **message}
    spaced = json.dumps(message).encode()
    compact = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    assert members.read(spaced) is not None
    assert members.read(compact) is not None
    assert members.read(compact.replace(b'"jsonrpc"', b'"method": "m", "jsonrpc"')) is None


@given(documents())
def test_an_envelope_opens_to_what_its_message_is(data: bytes) -> None:
    def opened(data: bytes, limits: Limits) -> Message | Batch:
        found = decode_envelope(data, limits)
        message = found.decode_payload(limits)
        assert found.id == (None if isinstance(message, Notification) else message.id)
        assert found.method == getattr(message, "method", None)
        return message

    assert outcome(decode_envelope, data) == outcome(envelope.decode_stdlib, data)
    expected = outcome(decode_message, data)
    # A message that breaks several rules may be refused for another one, and what does not belong
    # to it is not looked at.
    assert outcome(opened, data) == expected or expected in RULES_INSIDE
