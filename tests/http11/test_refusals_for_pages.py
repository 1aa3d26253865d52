"""A page of a listed origin may read refusals of heads that the server has never seen, too."""

from __future__ import annotations

import pytest

from sansmcp import Limits, ProtectedResource, RequestHead, SecurityPolicy
from sansmcp.http11.message_parser import RequestParser

from .harness import HEADERS, HTTP11, PING, Answer, ConnectionHarness, chunked, post

ORIGIN = b"https://app.example.com"
FIELD = b"origin: " + ORIGIN + b"\r\n"
START = b"POST /mcp HTTP/1.1\r\n" + HEADERS + FIELD
MANY = b"".join(b"x-%d: y\r\n" % number for number in range(100))
POLICY = SecurityPolicy(allowed_origins=(ORIGIN.decode(),), cors=True)
LIMITS = Limits(max_head_bytes=4000, max_request_bytes=1000)

REFUSED = {
    "too many lines": (START + MANY + b"\r\n", 431),
    "a line that is too long": (START + b"x: " + b"y" * 5000 + b"\r\n\r\n", 431),
    "a head without an end": (START + b"x: " + b"y" * 8000, 431),
    "an origin after the limit": (
        START.replace(FIELD, b"x: " + b"y" * 5000 + b"\r\n") + FIELD + b"\r\n",
        431,
    ),
    "a name with a space": (START + b"a b: c\r\n\r\n", 400),
    "no colon": (START + b"no colon\r\n\r\n", 400),
    "a control character": (START + b"x: a\0b\r\n\r\n", 400),
    "two hosts": (START + b"host: other\r\n\r\n", 400),
    "no host": (b"POST /mcp HTTP/1.1\r\n" + FIELD + b"\r\n", 400),
    "another version": (START.replace(b"HTTP/1.1", b"HTTP/3.1") + b"\r\n", 505),
    "a target with a space": (START.replace(b"/mcp", b"/m cp") + b"\r\n", 400),
    "a target without a host": (START.replace(b"/mcp", b"http:///mcp") + b"\r\n", 400),
    "another coding": (START + b"transfer-encoding: gzip\r\n\r\n", 501),
    "two lengths": (START + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
    "a length that is none": (START + b"content-length: " + b"9" * 19 + b"\r\n\r\n", 400),
    "a long body": (post(b"x" * 2000, FIELD), 413),
    "a long body in chunks": (chunked(b"x" * 2000, FIELD), 413),
    "a bad chunk": (START + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
}
"""Bytes of a page that are refused, and the status."""


def server(**settings: object) -> ConnectionHarness:
    common = {"policy": POLICY, "limits": LIMITS}
    return ConnectionHarness(**{**common, **settings})  # type: ignore[arg-type]


def readers(answer: Answer) -> bytes | None:
    """The origin whose pages may read a response."""
    assert b"origin" in answer.headers[b"vary"].lower()
    return answer.headers.get(b"access-control-allow-origin")


@pytest.mark.parametrize("size", [1, 7, None])
@pytest.mark.parametrize("kind", REFUSED)
def test_a_refusal_names_the_origin_of_the_page(kind: str, size: int | None) -> None:
    data, status = REFUSED[kind]
    harness = server().feed(data, size)
    answer = harness.answer()
    # httptools does not tell why it refuses a head.
    assert answer.status == status or (answer.status == 400 and status > 500)
    assert readers(answer) == ORIGIN
    assert b"Retry-After" in answer.headers[b"access-control-expose-headers"]


@pytest.mark.parametrize("before", [b"", post(PING), b"\r\n"])
@pytest.mark.parametrize(
    "data", [START, START + b"x: y", START + b"content-length: 9\r\n\r\nx"], ids=["", "x", "body"]
)
def test_a_request_that_does_not_arrive_in_time(data: bytes, before: bytes) -> None:
    harness = server().feed(before + data, 1)
    harness.wait(LIMITS.head_timeout + LIMITS.body_timeout)
    answer = harness.answers()[-1]
    assert (answer.status, readers(answer)) == (408, ORIGIN)


@pytest.mark.parametrize(
    "field",
    [
        b"",
        b"origin: https://other.example.com\r\n",
        b"origin: null\r\n",
        FIELD + b"origin: https://other.example.com\r\n",
        FIELD.replace(b"\r\n", b"\0\r\n"),
        FIELD.replace(b"origin:", b"origin :"),
        b"x: " + FIELD,
        b"x: y\rorigin: " + ORIGIN + b"\r\n",
    ],
)
def test_no_other_page_may_read_it(field: bytes) -> None:
    data = REFUSED["two hosts"][0].replace(FIELD, field)
    answer = server().feed(data).answer()
    assert (answer.status, readers(answer)) == (400, None)


@pytest.mark.parametrize("field", [FIELD[:-2], FIELD[:-6]])
def test_an_origin_that_has_not_arrived_in_full_is_none(field: bytes) -> None:
    harness = server().feed(START.replace(FIELD, field))
    harness.wait(LIMITS.head_timeout)
    assert readers(harness.answer()) is None
    most = 2 * LIMITS.max_head_bytes
    fits = START.replace(FIELD, b"x: ") + b"y" * most
    beyond = fits[: most - len(field) - 2] + b"\r\n" + field
    assert len(beyond) == most
    harness = server().feed(beyond + FIELD[len(field) :] + b"\r\n\r\n")
    assert (harness.answer().status, readers(harness.answer())) == (431, None)


def test_by_default_no_refusal_has_such_headers() -> None:
    for data, _ in REFUSED.values():
        policy = SecurityPolicy(allowed_origins=(ORIGIN.decode(),))
        answer = server(policy=policy).feed(data).answer()
        assert answer.status >= 400
        assert not [name for name in answer.headers if name == b"vary" or b"access-" in name]


@pytest.mark.parametrize("kind", ["too many lines", "two hosts", "a head without an end"])
def test_any_page_may_read_what_is_wrong_with_a_request_for_metadata(kind: str) -> None:
    resource = ProtectedResource(
        resource="http://localhost/mcp", authorization_servers=("https://login.example.com",)
    )
    path = b"/.well-known/oauth-protected-resource/mcp"
    other = b"https://other.example.com"
    data = REFUSED[kind][0].replace(b"/mcp", path).replace(ORIGIN, other)
    harness = server(protected_resource=resource, authentication=True).feed(data)
    assert harness.answer().headers[b"access-control-allow-origin"] == b"*"


@pytest.mark.parametrize("first", [b"HEAD", b"POST"])
@pytest.mark.parametrize("kind", ["too many lines", "two hosts"])
def test_a_refusal_is_no_response_to_the_request_before(kind: str, first: bytes) -> None:
    """After HEAD it had the length of a body, and no body."""
    before = b"HEAD /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n"
    data, status = REFUSED[kind]
    harness = server().feed(before + data.replace(b"POST", first))
    refusal = harness.answers("HEAD", first.decode())[-1]
    assert refusal.status == status
    length = int(refusal.headers[b"content-length"])
    assert len(refusal.body) == (0 if first == b"HEAD" else length) < length + 1


def test_what_is_not_a_header_line_is_left_out() -> None:
    parser = RequestParser(HTTP11.read_request_head, 1000)
    parser.receive(
        b"GET /mcp HTTP/1.1\r\nA: b \r\nc:\td\0\r\n e\r\n: f\r\ng : h\r\ni: \xe9\r\nj: k"
    )
    headers = ((b"a", b"b"), (b"i", b"\xe9"))
    assert parser.readable_head() == RequestHead(method=b"GET", target=b"/mcp", headers=headers)
    parser = RequestParser(HTTP11.read_request_head, 20)
    parser.receive(b"GET /mcp HTTP/1.1\r\na: b\r\n\r\norigin: of the next request\r\n\r\n")
    assert parser.readable_head().headers == ((b"a", b"b"),)
    parser = RequestParser(HTTP11.read_request_head, 1000)
    parser.receive(b"GET\r\na: b\r\n")
    assert parser.readable_head() == RequestHead(method=b"", target=b"", headers=((b"a", b"b"),))
