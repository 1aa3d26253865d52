"""What a listener on this machine answers to a browser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp.auth.callbacks import MAX_HEAD_BYTES, MAX_LINE_BYTES, answer_browser, is_answer

URI = "http://127.0.0.1:9/callback"
LOGIN = "https://as.example/authorize?state=abc&x=y"


def head(
    target: str = "/callback?code=x&state=abc",
    method: str = "GET",
    version: str = "HTTP/1.1",
    host: str = "127.0.0.1:9",
) -> bytes:
    return f"{method} {target} {version}\r\nHost: {host}\r\nAccept: */*\r\n\r\n".encode()


def test_the_redirect() -> None:
    reply = answer_browser(head(), URI, LOGIN)
    assert reply is not None
    assert reply.redirect == f"{URI}?code=x&state=abc"
    assert reply.data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"code=x" not in reply.data


@pytest.mark.parametrize(
    "request_head",
    [
        head("/callback"),
        head("/callback?code=x"),
        head("/callback?code=x&state=other"),
        head("/other?code=x&state=abc"),
        head("/favicon.ico"),
        head(method="POST"),
        head(version="HTTP/2"),
        head(host="evil.test"),
        head(host="127.0.0.1"),
        b"GET /callback?code=x&state=abc HTTP/1.1\r\n\r\n",
        head().replace(b"Accept: */*", b"Host: 127.0.0.1:9"),
        b"GET /callback?code=x&state=abc\r\n\r\n",
        b"\r\n\r\n",
        b"\xff\r\n\r\n",
        bytes(MAX_LINE_BYTES + 1),
        b"GET / HTTP/1.1\r\n" + bytes(MAX_HEAD_BYTES + 1),
    ],
)
def test_everything_else_is_refused(request_head: bytes) -> None:
    reply = answer_browser(request_head, URI, LOGIN)
    assert reply is not None
    assert reply.redirect is None
    assert reply.data.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("state", "is_redirect"), [("abc", True), ("x&state=abc", True), ("known", False)]
)
def test_the_last_state_is_that_of_the_client(state: str, is_redirect: bool) -> None:
    """One that stands in the query of the endpoint comes first."""
    login = "https://as.example/authorize?state=known&state=abc"
    assert is_answer(login, f"{URI}?code=x&state={state}") is is_redirect
    assert not is_answer(login, f"{URI}?code=x&state={state}&state=")


@given(st.integers(0, len(head()) - 1))
def test_an_incomplete_head_is_waited_for(length: int) -> None:
    assert answer_browser(head()[:length], URI, LOGIN) is None


def test_a_redirect_uri_without_path() -> None:
    reply = answer_browser(head("/?state=abc"), "http://127.0.0.1:9", LOGIN)
    assert reply is not None
    assert reply.redirect == "http://127.0.0.1:9?state=abc"


def test_a_login_without_state_has_no_answer() -> None:
    assert not is_answer("https://as.example/authorize", "http://h/?state=")
    assert not is_answer("https://as.example/authorize?state=", "http://h/?state=")
