"""Exceptions say what is wrong, to whom, and what to answer."""

from __future__ import annotations

import pytest

from sansmcp import (
    CallError,
    ErrorResponse,
    JsonRpcError,
    LocalProtocolError,
    ProcessEnded,
    ProtocolError,
    RemoteProtocolError,
)
from sansmcp.errors import error_response


def test_protocol_error_is_abstract() -> None:
    with pytest.raises(TypeError):
        ProtocolError("x")
    assert LocalProtocolError("x").message == "x"


def test_a_remote_error_carries_its_answer() -> None:
    error = RemoteProtocolError(
        "bad", reason="why", http_status=406, jsonrpc_code=-1, request_id=5, data={"required": []}
    )
    assert error.reply == ErrorResponse(5, -1, "bad", {"reason": "why", "required": []})
    assert error.http_status == 406
    assert RemoteProtocolError("bad", reason="why").reply == ErrorResponse(
        None, -32600, "bad", {"reason": "why"}
    )


def test_call_errors_are_one_family() -> None:
    error = JsonRpcError(-32602, "bad params", [1], method="m", request_id=3, http_status=400)
    assert isinstance(error, CallError)
    assert str(error) == "bad params (code -32602)"
    assert (error.code, error.data, error.method, error.request_id) == (-32602, [1], "m", 3)


def test_what_a_handler_raised_becomes_an_answer_that_tells_nothing() -> None:
    assert error_response(1, JsonRpcError(-5, "m", {"a": 1})) == ErrorResponse(1, -5, "m", {"a": 1})
    assert error_response("a", ValueError("secret")) == ErrorResponse("a", -32603, "Internal error")


def test_the_text_of_a_call_error_can_be_shown() -> None:
    """What a peer says can neither add a line nor move the cursor."""
    error = JsonRpcError(-1, "no\nsansmcp: \x1b[2Jyes\u202e")
    assert str(error) == r"no\u000asansmcp: \u001b[2Jyes\u202e (code -1)"
    assert error.message == "no\nsansmcp: \x1b[2Jyes\u202e"
    ended = ProcessEnded("it has ended:", status=1, log=("one\x07", "two"))
    assert str(ended) == "it has ended:\none\\u0007\ntwo"
