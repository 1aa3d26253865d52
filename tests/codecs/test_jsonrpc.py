"""JSON-RPC: four kinds of message, never guessed into one another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import (
    Batch,
    ErrorResponse,
    Limits,
    LocalProtocolError,
    Message,
    Notification,
    RemoteProtocolError,
    Request,
    Response,
    encode_message,
)
from sansmcp.codecs import json, jsonrpc

requirement = pytest.mark.requirement
LIMITS = Limits()


def decode(data: bytes) -> Message | Batch:
    return jsonrpc.decode(data, LIMITS)


def refusal(data: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(data)
    return caught.value


@requirement("JSONRPC-B-003", "JSONRPC-B-007", "JSONRPC-B-011", "JSONRPC-B-015", "JSONRPC-B-055")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"m"}', Request(1, "m", None)),
        (
            b'{"jsonrpc":"2.0","id":"1","method":"m","params":{"a":[1]}}',
            Request("1", "m", {"a": [1]}),
        ),
        (b'{"jsonrpc":"2.0","id":"","method":"m","params":{}}', Request("", "m", {})),
        (
            b'{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"m"}',
            Request(123456789012345678901234567890, "m"),
        ),
        (b'{"jsonrpc":"2.0","method":"m"}', Notification("m", None)),
        (
            b'{"jsonrpc":"2.0","method":"m","params":{"x":null},"extra":1}',
            Notification("m", {"x": None}),
        ),
        (b'{"jsonrpc":"2.0","id":1,"result":{"unknown":[{}]}}', Response(1, {"unknown": [{}]})),
        (b'{"jsonrpc":"2.0","id":1.0,"result":null}', Response(1, None)),
        (
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"x","data":[1]}}',
            ErrorResponse(1, -5, "x", [1]),
        ),
        (
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-5,"message":"x"}}',
            ErrorResponse(None, -5, "x"),
        ),
        (b'{"jsonrpc":"2.0","error":{"code":-5,"message":"x"}}', ErrorResponse(None, -5, "x")),
    ],
)
def test_messages(data: bytes, message: Message) -> None:
    read = decode(data)
    assert read == message
    assert not isinstance(read, Batch)
    if read != ErrorResponse(None, -5, "x"):
        assert type(getattr(read, "id", None)) is type(getattr(message, "id", None))


@requirement("JSONRPC-B-001")
@pytest.mark.parametrize("null_id", [False, True])
@pytest.mark.parametrize(
    "message",
    [
        Request(1, "m"),
        Request("1", "m", {"jsonrpc": "1.0"}),
        Notification("m"),
        Notification("m", {}),
        Response(1, {}),
        Response("1", None),
        ErrorResponse(1, -5, "x"),
        ErrorResponse("1", -5, "x", {"jsonrpc": "1.0"}),
        ErrorResponse(None, -5, "x"),
    ],
)
def test_every_message_says_that_it_is_json_rpc(message: Message, null_id: bool) -> None:
    """Only what is received was looked at."""
    written = jsonrpc.encode(message, null_id=null_id)
    members = json.decode(written, max_depth=10)
    assert isinstance(members, dict)
    assert members["jsonrpc"] == "2.0"
    assert decode(jsonrpc.encode_batch([written, written])) == Batch((message, message))


@requirement(
    "JSONRPC-B-001",
    "JSONRPC-B-004",
    "JSONRPC-B-008",
    "JSONRPC-B-009",
    "JSONRPC-B-010",
    "JSONRPC-B-013",
    "JSONRPC-B-014",
    "JSONRPC-B-017",
    "JSONRPC-B-020",
    "JSONRPC-B-022",
    "JSONRPC-B-024",
)
@pytest.mark.parametrize(
    ("data", "request_id"),
    [
        (b"1", None),
        (b'"x"', None),
        (b"null", None),
        (b"{}", None),
        (b'{"id":1,"method":"m"}', 1),
        (b'{"jsonrpc":2.0,"id":1,"method":"m"}', 1),
        (b'{"jsonrpc":"1.0","id":"a","method":"m"}', "a"),
        (b'{"JSONRPC":"2.0","id":1,"method":"m"}', 1),
        (b'{"jsonrpc":"2.0"}', None),
        (b'{"jsonrpc":"2.0","id":1}', 1),
        (b'{"jsonrpc":"2.0","id":1,"Method":"m"}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":1}', 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":{},"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":null}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","result":{}}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","error":{}}', 1),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}', 1),
        (b'{"jsonrpc":"2.0","result":{}}', None),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":true,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":1,"error":"x"}', 1),
        (b'{"jsonrpc":"2.0","id":1,"error":{"message":"x"}}', 1),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}', 1),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":"x"}}', 1),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}', 1),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":"x"}}', 1),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":2}}', 1),
        (b'{"jsonrpc":"2.0","id":{},"error":{"code":1,"message":"x"}}', None),
    ],
)
def test_what_is_no_message_is_refused_with_its_id(
    data: bytes, request_id: int | str | None
) -> None:
    error = refusal(data)
    assert (error.jsonrpc_code, error.reason, error.http_status) == (-32600, "invalid_message", 400)
    assert error.request_id == request_id
    assert type(error.request_id) is type(request_id)
    assert error.reply == ErrorResponse(
        request_id, -32600, error.message, {"reason": "invalid_message"}
    )


@requirement("JSONRPC-B-037")
def test_json_errors_are_parse_errors() -> None:
    assert refusal(b"[{").jsonrpc_code == -32700
    assert refusal(b'{"jsonrpc":"2.0","jsonrpc":"2.0","method":"m"}').reason == "duplicate_name"


@requirement("JSONRPC-B-036")
def test_batches_keep_their_order_and_their_bad_elements() -> None:
    batch = decode(
        b'[{"jsonrpc":"2.0","method":"a"},1,{"jsonrpc":"2.0","id":2,"result":{}},[],{"id":5}]'
    )
    assert isinstance(batch, Batch)
    kinds = [type(item) for item in batch.items]
    assert kinds == [
        Notification,
        RemoteProtocolError,
        Response,
        RemoteProtocolError,
        RemoteProtocolError,
    ]
    assert batch.items[0] == Notification("a")
    last = batch.items[4]
    assert isinstance(last, RemoteProtocolError)
    assert last.request_id == 5
    assert decode(b"[]") == Batch(())


def test_large_batches_are_refused() -> None:
    one = b'{"jsonrpc":"2.0","method":"a"}'
    assert isinstance(decode(b"[" + b",".join([one] * 100) + b"]"), Batch)
    error = refusal(b"[" + b",".join([one] * 101) + b"]")
    assert (error.reason, error.data) == ("batch_too_large", {"limit": 100})


@requirement("JSONRPC-B-012")
def test_an_error_without_id_leaves_it_out_or_says_null() -> None:
    error = ErrorResponse(None, -32700, "x", {"reason": "y"})
    assert (
        encode_message(error)
        == b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"x","data":{"reason":"y"}}}'
    )
    assert encode_message(error, null_id=True).startswith(b'{"jsonrpc":"2.0","id":null,')
    assert (
        encode_message(ErrorResponse(7, 1, "x"))
        == b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}'
    )


def test_encoding_refuses_what_is_not_json() -> None:
    with pytest.raises(LocalProtocolError):
        encode_message(Response(1, {"a": object()}))


def test_batches_are_joined() -> None:
    encoded = [encode_message(Notification("a")), encode_message(Response(1, {}))]
    batch = decode(jsonrpc.encode_batch(encoded))
    assert batch == Batch((Notification("a"), Response(1, {})))


IDS = st.integers() | st.text(max_size=5)
OBJECTS = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=3)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Request, IDS, st.text(max_size=8), st.none() | OBJECTS),
    st.builds(Notification, st.text(max_size=8), st.none() | OBJECTS),
    st.builds(Response, IDS, OBJECTS),
    st.builds(ErrorResponse, st.none() | IDS, st.integers(), st.text(), st.none() | OBJECTS),
)


@given(MESSAGES)
def test_messages_survive(message: Message) -> None:
    assert decode(encode_message(message)) == message


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["jsonrpc", "id", "method", "params", "result", "error", "code", "message", "x"]
            ),
            inner | st.just("2.0"),
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(JSON_VALUES)
def test_any_json_is_a_message_or_refused(value: Any) -> None:
    try:
        read = decode(json.encode(value))
    except RemoteProtocolError as error:
        assert error.jsonrpc_code in (-32600, -32700)
    else:
        assert isinstance(read, Batch) == isinstance(value, list)
