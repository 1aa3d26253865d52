"""The requests of a flow and their responses, bounded and without secrets in their text."""

from __future__ import annotations

import pytest

from sansmcp.auth.http import (
    MAX_BODY_BYTES,
    AuthRequest,
    AuthResponse,
    ResponseCollector,
    strings_in,
)
from sansmcp.errors import AuthorizationFailed
from sansmcp.http import BodyData, BodyEnd, ConnectionLost, ResponseHead

from .responses import REQUEST, response


def test_a_response_is_collected() -> None:
    collector = ResponseCollector(REQUEST)
    head = ResponseHead(status=200, headers=((b"dpop-nonce", b"n"),))
    assert collector.receive(head) is None
    assert collector.receive(BodyData(b'{"a"')) is None
    assert collector.receive(BodyData(b":1}")) is None
    found = collector.receive(BodyEnd())
    assert isinstance(found, AuthResponse)
    assert (found.document, found.nonce, found.is_success) == ({"a": 1}, "n", True)


def test_a_long_response_is_refused_as_soon_as_it_is_too_long() -> None:
    collector = ResponseCollector(REQUEST)
    collector.receive(ResponseHead(status=200))
    assert collector.receive(BodyData(bytes(MAX_BODY_BYTES))) is None
    found = collector.receive(BodyData(b"x"))
    assert isinstance(found, AuthorizationFailed)
    assert found.reason == "response_too_large"


def test_a_lost_connection_and_a_timeout_have_their_own_reasons() -> None:
    lost = ResponseCollector(REQUEST).receive(ConnectionLost("no route"))
    assert isinstance(lost, AuthorizationFailed)
    assert (lost.reason, lost.url) == ("unreachable", REQUEST.url)
    assert "no route" in str(lost)
    late = ResponseCollector(REQUEST).timed_out("within 10 s")
    assert late.reason == "no_response"


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'"a"', b'{"a":1,"a":2}', b"[" * 65 + b"]" * 65, b"\xff"]
)
def test_what_is_not_one_json_object_is_no_document(body: bytes) -> None:
    assert response(body).document is None


def test_a_byte_order_mark_is_skipped() -> None:
    assert response(b'\xef\xbb\xbf{"a": 1}').document == {"a": 1}


def test_the_text_of_a_refusal_is_that_of_the_server_and_safe_to_show() -> None:
    error = response({"error": "bad\n", "error_description": "x" * 999}, 400).refused()
    assert error.reason == "refused"
    text = str(error)
    assert "HTTP 400" in text
    assert "bad\\u000a: xxx" in text
    assert "secret" not in text
    assert len(text) < 500
    assert response(b"", 503).refused().reason == "refused"


def test_no_secret_is_in_a_repr() -> None:
    request = AuthRequest(
        step="s", url="https://h.example/x?secret", headers=((b"a", b"secret"),), body=b"secret"
    )
    answer = AuthResponse(request, 200, ((b"a", b"secret"),), b"secret")
    assert "secret" not in repr((request, answer))


def test_arrays_of_strings() -> None:
    assert strings_in({"a": ["x", "y"]}, "a") == ("x", "y")
    assert strings_in({"a": ["x", 1]}, "a") is strings_in({"a": "x"}, "a") is None
