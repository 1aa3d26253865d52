"""Documents and messages that are not exactly right: what is read, and what can be seen."""

from __future__ import annotations

import json as standard
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Limits, RemoteProtocolError
from sansmcp.codecs import json, jsonrpc
from sansmcp.codecs.tolerant import glimpse, mend_from_client, mend_from_server
from sansmcp.messages import ErrorResponse, Notification, Request, Response

from .test_json import VALUES

# JSON


@pytest.mark.parametrize(
    ("document", "value", "reasons"),
    [
        (rb'"a\ud83d"', "a�", ["lone_surrogate"]),
        (rb'"\ude00b"', "�b", ["lone_surrogate"]),
        (rb'"\ud83d\ud83d\ude00"', "�\U0001f600", ["lone_surrogate"]),
        (rb'"\\ud83d\ud83d"', "\\ud83d�", ["lone_surrogate"]),
        (b'"caf\xe9"', "caf�", ["invalid_utf8"]),
        (b'"\xed\xa0\xbd"', "���", ["invalid_utf8"]),
        (b"[-Infinity,Infinity]", [-math.inf, math.inf], ["not_finite"]),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}, ["byte_order_mark"]),
        (b'"a\tb\x1b"', "a\tb\x1b", ["malformed_json"]),
        (b"\xef\xbb\xbf" + rb'["\ud83d"]', ["�"], ["byte_order_mark", "lone_surrogate"]),
        (b"1", 1, []),
    ],
)
def test_what_means_one_thing_only_is_read(document: bytes, value: Any, reasons: list[str]) -> None:
    found, faults = json.decode_tolerant(document, 64, 1000)
    assert found == value
    assert [fault.reason for fault in faults] == reasons
    if reasons:
        with pytest.raises(RemoteProtocolError):
            json.decode(document, 64)


def test_nan_is_read_as_such_and_its_place_is_named() -> None:
    value, (fault,) = json.decode_tolerant(b'{"a":[1,{"b":NaN}]}', 64, 1000)
    assert math.isnan(value["a"][1]["b"])
    assert "$.a[1].b is nan" in str(fault)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b'{"a":1,"a":2}', "duplicate_name"),
        (rb'{"\ud83d":1,"\ud83e":2}', "duplicate_name"),
        (b"1e999", "number_too_large"),
        (b"[1,]", "malformed_json"),
        (b"{'a':1}", "malformed_json"),
        (b"True", "malformed_json"),
        (b"\xef\xbb\xbf\xef\xbb\xbf1", "malformed_json"),
        (b"[" * 65 + b"]" * 65, "too_deep"),
        (b"[" + b"1," * 1000 + b"1]", "too_many_values"),
    ],
)
def test_what_parsers_read_differently_stays_refused(document: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError) as info:
        json.decode_tolerant(document, 64, 1000)
    assert info.value.reason == reason


@given(VALUES)
def test_what_is_right_is_read_as_it_is(value: Any) -> None:
    document = json.encode(value)
    assert json.decode_tolerant(document, 500, 10**6) == (json.decode(document, 500), ())


# Messages

LIMITS = Limits()
FAILURE = {"code": -32000, "message": "no luck"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"method": "ping", "params": None}, Notification("ping", None)),
        ({"id": 1, "method": "ping", "params": None}, Request(1, "ping", None)),
        ({"id": 1, "result": {}, "error": None}, Response(1, {})),
    ],
)
def test_both_sides_take_null_for_nothing(members: dict[str, Any], message: Any) -> None:
    data = standard.dumps({"jsonrpc": "2.0", **members}).encode()
    for mend in (mend_from_client, mend_from_server):
        assert jsonrpc.decode(data, LIMITS, mend) == message
        assert jsonrpc.decode(b"\xef\xbb\xbf" + data, LIMITS, mend) == message
        assert jsonrpc.decode(b"[%b]" % data, LIMITS, mend) == jsonrpc.Batch((message,))
    for document in (data, b"\xef\xbb\xbf" + data):
        with pytest.raises(RemoteProtocolError):
            jsonrpc.decode(document, LIMITS)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"id": 1, "result": {}, "method": None, "params": None}, Response(1, {})),
        ({"id": 1, "result": None, "error": FAILURE}, ErrorResponse(1, -32000, "no luck")),
        ({"id": 1, "error": {**FAILURE, "code": -32000.0}}, ErrorResponse(1, -32000, "no luck")),
    ],
)
def test_a_server_can_write_more_than_it_means(members: dict[str, Any], message: Any) -> None:
    data = standard.dumps({"jsonrpc": "2.0", **members}).encode()
    assert jsonrpc.decode(data, LIMITS, mend_from_server) == message
    with pytest.raises(RemoteProtocolError):
        jsonrpc.decode(data, LIMITS, mend_from_client)


@pytest.mark.parametrize(
    "value",
    [
        5,
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": None},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": "1", "message": ""}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []},
        {"jsonrpc": "1.0", "id": 1, "result": {}, "error": None},
    ],
)
def test_the_rest_stays_refused(value: Any) -> None:
    data = standard.dumps(value).encode()
    for mend in (mend_from_client, mend_from_server):
        with pytest.raises(RemoteProtocolError) as info:
            jsonrpc.decode(data, LIMITS, mend)
        assert info.value.reason == "invalid_message"


# What can be seen of a message that cannot be read


@pytest.mark.parametrize(
    ("data", "answered"),
    [
        (b'{"jsonrpc":"2.0","id":3,"result":[1,2,]}', 3),
        (b'{"result":{"a":1,"a":2},"id":3}', 3),
        (b' \xef\xbb\xbf{"id" : "x-1" , "error":tru}', None),
        (b'\xef\xbb\xbf{"id" : "x-1" , "error":tru}', "x-1"),
        (b'{"id":3,"result":{"x":"cut o', 3),
        (b'{"id":3,oops}', 3),
        (b'{"id":3,"resu', None),
        (b'{"id":3', None),
        (b'{"id":3}', 3),
        (b'{"id":30', None),
        (b'{"id":3,"method":"ping",}', None),
        (b'{"id":3,"params":{},"method":"x"', None),
        (b'{"id":3,"id":4,"result":1,}', None),
        (b'{"id":3,"result":{},}{"id":4,"result":{}}', None),
        (b'{"result":{"id":3},}', None),
        (b'{"result":"\\"id\\":3,",}', None),
        (b'{"a":["id",{"id":3}],"result":1,}', None),
        (b'{"a\\\\":"","id":3,"result":1,}', 3),
        (b'{"\\u0069d":4,"id":3,"result":1,}', None),
        (b'{"id":3.5,"result":1,}', None),
        (b'{"id":null,"result":1,}', None),
        (b'{"id":007,"result":1,}', None),
        (b'{"id":"\xff","result":1,}', None),
        (b'INFO {"id":3,"result":1,}', None),
        (b'[{"id":3,"result":1,}]', None),
        (b"{'id':3,'result':1}", None),
        (b"", None),
    ],
)
def test_the_call_that_a_broken_message_answers(data: bytes, answered: int | str | None) -> None:
    assert glimpse(data).answered == answered


@given(st.dictionaries(st.text(), VALUES), st.integers(0, 10**6), st.data())
def test_a_glimpse_never_takes_an_inner_id_for_the_id(
    members: dict[str, Any], id: int, data: st.DataObject
) -> None:
    message = {"id": id, "result": members}
    whole = json.encode(message)
    assert glimpse(whole).answered in (id, None)
    assert glimpse(json.encode({"result": [members], "x": members})).answered is None
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    assert glimpse(cut).answered in (id, None)
