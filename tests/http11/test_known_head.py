"""A head like the one before on its connection is read as any other, in everything that matters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from sansmcp import Limits, RemoteProtocolError
from sansmcp.http import BodyEnd
from sansmcp.http11 import message_parser
from sansmcp.http11.known_head import remember

from ..fuzz.inputs import corpus_of
from . import harness as harnesses
from .harness import HEADERS, INITIALIZE, MALFORMED, PING, ConnectionHarness, post

START = b"POST /mcp HTTP/1.1\r\n" + HEADERS
LENGTH, NAME = b"Content-Length: 12\r\n", b"Mcp-Name: a b\r\n"
LENGTH_TWINS = [
    (START + LENGTH + b"\r\n", START + b"Content-Length: %b\r\n\r\n" % value)
    for value in (
        *(b"-1", b"+1", b"1_0", b"1,2", b"0x1", b"", b" ", b"1 2", b"1\t", b"\x0b1", b"1" * 19),
        *(b"9" * 5000, b"12\r", b"12\n", b"12\r\n 3", b"12\r\n\t3", b"12\0", b"12\r\nx", b"\xb2"),
        *(b"12\r\nContent-Length: 12", b"12\r\ncontent-length: 3", b"12\nContent-Length: 3"),
        *(b"12\r\nTransfer-Encoding: chunked", b"12\r\n Content-Length: 3", b"12, 12"),
    )
]
NAMED_TWINS = [
    (START + NAME + LENGTH + b"\r\n", START + b"Mcp-Name: %b\r\n" % value + LENGTH + b"\r\n")
    for value in (
        *(b"", b"a  b", b"a\tb", b"a\r\n b", b"a\r", b"a\n", b"a\0", b"\xe4", b"a\x7f", b"a "),
        *(b"a\r\nMcp-Name: c", b"a\r\nContent-Length: 3", b"a\nmcp-name: c", b"a\rb: c"),
        *(b"a\r\n\r\nGET / HTTP/1.1", b"a\r\nTransfer-Encoding: chunked", b"a\r\nhost: b"),
    )
]
OTHER_TWINS = [
    (START + LENGTH + b"\r\n", START.replace(old, new) + LENGTH + b"\r\n")
    for old, new in (
        *((b" HTTP/1.1", b" HTTP/1.0"), (b" HTTP/1.1", b" HTTP/1.10"), (b"/mcp", b"/m cp")),
        *((b"host:", b"host :"), (b"host:", b" host:"), (b"host:", b"Host:"), (b"/mcp", b"/mcp?")),
        *((b"localhost\r", b"localhost\0\r"), (b"localhost", b"localhost\r\nhost: b")),
    )
]
ALL_TWINS = [*LENGTH_TWINS, *NAMED_TWINS, *OTHER_TWINS]
"""A harmless head, and one like it that is not, or not the same."""
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
RESPONSE_TWINS = [
    *(
        (first.replace(START, RESPONSE), head.replace(START, RESPONSE))
        for first, head in [*LENGTH_TWINS, *NAMED_TWINS]
    ),
    (
        RESPONSE + LENGTH + b"Connection: other\r\n\r\n",
        RESPONSE + LENGTH + b"Connection: close\r\n\r\n",
    ),
    *(
        (RESPONSE + LENGTH + b"\r\n", RESPONSE.replace(old, new) + LENGTH + b"\r\n")
        for old, new in (
            *((b"/1.1", b"/1.0"), (b"200", b"201"), (b"200", b"204"), (b"200", b"100")),
            *((b"OK", b"Ok"), (b"json", b"json\r\nConnection: close"), (b"/json", b"\0/json")),
            *((b"Type:", b"Type :"), (b"json", b"json\r\nTransfer-Encoding: chunked")),
        )
    ),
]
"""A harmless head of a response, and one like it that is not, or not the same."""
REPEATED = [
    (START + LENGTH + b"\r\n", START + b"Content-Length: 0\r\n\r\n"),
    (START + LENGTH + b"\r\n", START + b"Content-Length: %b\r\n\r\n" % (b"1" * 18)),
    (NAME.join((START, LENGTH + b"\r\n")), START + b"Mcp-Name: ~!\r\n" + LENGTH + b"\r\n"),
    (START + LENGTH + NAME + b"\r\n", START + b"Content-Length: 7\r\nMcp-Name: x y z\r\n\r\n"),
    (START + b"content-LENGTH:5 \r\n\r\n", START + b"content-LENGTH:6 \r\n\r\n"),
    (START + b"\r\n", START + b"\r\n"),
]
"""A head, and one that is read by the first."""


def heads(data: bytes) -> Iterator[bytes]:
    """The heads in the bytes of an input, as far as its blank lines tell."""
    for part in data.split(b"\r\n\r\n"):
        if (start := part.find(b" HTTP/1.")) >= 0:
            yield part[part.rfind(b"\n", 0, start) + 1 :].lstrip(b"\r") + b"\r\n\r\n"


def harmless(head: bytes) -> bytes:
    """A head with the values of lengths and names replaced by others that are proper."""
    twin = re.sub(rb"(?i)(content-length:[ \t]*)[^\r\n]*", rb"\g<1>0", head, count=1)
    return re.sub(rb"(?i)(mcp-name:[ \t]*)[^\r\n]*", rb"\g<1>a b", twin, count=1)


Parser: TypeAlias = message_parser.RequestParser | message_parser.ResponseParser


def outcome(reader: Parser, head: bytes) -> Any:
    """What a parser makes of a head whose body does not matter."""
    reader.receive(head)
    try:
        return reader.next_part(), reader.is_http_1_1
    except RemoteProtocolError as error:
        return error.http_status, str(error)


def skip_body(reader: Any) -> None:
    """Let a parser go on to the next head."""
    reader._body = None  # noqa: SLF001
    reader._buffer.waiting.clear()  # noqa: SLF001


def parser() -> message_parser.RequestParser:
    return message_parser.RequestParser(harnesses.HTTP11.read_request_head, 300_000)


def response_parser() -> message_parser.ResponseParser:
    return message_parser.ResponseParser(harnesses.HTTP11.read_response_head, 300_000)


def second(reader: Parser, first: bytes, head: bytes) -> tuple[Any, bool]:
    """What a parser makes of a head after another one, and if it did not have to parse it."""
    outcome(reader, first)
    skip_body(reader)
    return outcome(reader, head), reader.is_repeated


CORPUS = [
    head
    for target in ("heads", "http11_parsers", "server_http")
    for data in corpus_of(target)
    for head in heads(data[2:])
]


def test_every_malformed_head_after_its_harmless_twin_and_after_itself() -> None:
    assert len(CORPUS) > 100
    alone = [head for data in MALFORMED for head in heads(data)] + CORPUS
    pairs = [*ALL_TWINS, *((harmless(head), head) for head in alone)]
    pairs += [(head, head) for _, head in pairs]
    for first, head in pairs:
        found, _ = second(parser(), first, head)
        assert found == outcome(parser(), head), (first, head)


@pytest.mark.parametrize(("first", "head"), ALL_TWINS)
def test_what_differs_in_more_than_two_values_is_parsed(first: bytes, head: bytes) -> None:
    assert not second(parser(), first, head)[1]


@pytest.mark.parametrize(("first", "head"), REPEATED)
def test_a_head_with_another_length_or_name_is_not_parsed(first: bytes, head: bytes) -> None:
    found, is_repeated = second(parser(), first, head)
    assert is_repeated
    assert found == outcome(parser(), head)


@pytest.mark.parametrize(("first", "head"), RESPONSE_TWINS)
def test_a_response_after_one_that_differs_in_more_than_its_length(
    first: bytes, head: bytes
) -> None:
    for before in (first, head):
        reader = response_parser()
        found, is_repeated = second(reader, before, head)
        assert before == head or not is_repeated
        alone = response_parser()
        assert found == outcome(alone, head)
        skip_body(reader)
        skip_body(alone)
        assert reader.is_ready is alone.is_ready


@pytest.mark.parametrize(("first", "head"), REPEATED)
def test_a_response_with_another_length_is_not_parsed(first: bytes, head: bytes) -> None:
    first, head = first.replace(START, RESPONSE), head.replace(START, RESPONSE)
    found, is_repeated = second(response_parser(), first, head)
    assert is_repeated
    assert found == outcome(response_parser(), head)


def test_one_byte_more_or_less_outside_of_the_values_is_parsed() -> None:
    head = START + NAME + LENGTH + b"Cookie: a\r\n\r\n"
    known = remember(head, parser_head(head))
    assert known is not None
    values = [*range(head.index(b"a b"), head.index(b"a b") + 3)]
    values += [*range(head.index(b"12"), head.index(b"12") + 2)]
    for place in range(len(head)):
        for changed in (head[:place] + head[place + 1 :], head[:place] + b"x" + head[place:]):
            read = known.read(changed)
            assert read is None or (place in values or place - 1 in values), changed
            assert read is None or read == parser_head(changed)
    assert known.read(head + b"x") is None
    assert known.read(head) == parser_head(head)


def parser_head(data: bytes) -> Any:
    return harnesses.HTTP11.read_request_head(data)[0]


def test_large_heads_are_not_kept() -> None:
    for size, is_kept in ((1024, True), (1025, False)):
        rest = START + b"x: \r\n\r\n"
        head = rest.replace(b"x: ", b"x: " + b"y" * (size - len(rest)))
        assert len(head) == size
        assert (remember(head, parser_head(head)) is not None) is is_kept


def test_a_connection_whose_heads_differ_keeps_none_any_more() -> None:
    """Each head was kept for nothing."""
    for different, is_repeated in ((6, True), (8, False)):
        reader = parser()
        for number in [*range(different), 100, 100]:
            outcome(reader, b"GET / HTTP/1.1\r\nhost: a\r\nx: %d\r\n\r\n" % number)
            assert isinstance(reader.next_part(), BodyEnd)
        assert reader.is_repeated is is_repeated


# On a connection


def test_every_malformed_request_after_a_harmless_one_gets_its_own_answer() -> None:
    for data in MALFORMED:
        alone = ConnectionHarness().feed(data)
        after = ConnectionHarness().feed(post(INITIALIZE))
        after.sent = b""
        after.feed(data)
        assert after.sent == alone.sent


def test_the_length_is_checked_for_every_request() -> None:
    harness = ConnectionHarness(limits=Limits(max_message_bytes=1000))
    large = post(b"x" * 5000)
    harness.feed(post(INITIALIZE)).feed(post(INITIALIZE)).feed(large)
    assert [answer.status for answer in harness.answers()] == [200, 200, 413]


def test_a_head_that_was_refused_is_refused_again() -> None:
    harness = ConnectionHarness()
    for _ in range(3):
        harness.feed(post(PING, b"origin: http://evil.example\r\n"))
    assert [answer.status for answer in harness.answers()] == [403] * 3


def test_the_session_is_looked_for_at_every_request() -> None:
    harness = ConnectionHarness()
    session = harness.session()
    harness.feed(post(PING, session))
    harness.server.end_session(harness.server.sessions[0], "over", now=harness.now)
    harness.feed(post(PING, session))
    assert [answer.status for answer in harness.answers()] == [200, 404]


def test_every_request_is_authenticated_and_has_its_own_principal() -> None:
    """Also if the head is the same, since what was valid may be so no longer."""
    harness = ConnectionHarness(authentication=True)
    for principal in ("ada", "bob"):
        harness.feed(post(INITIALIZE, b"authorization: Bearer x\r\n"))
        harness.server.authenticated(harness.asked.pop(), principal, now=0)
        harness.run_pending()
    assert [session.principal for session in harness.server.sessions] == ["ada", "bob"]
    large = post(INITIALIZE, b"authorization: Bearer x\r\n").replace(b"h: 1", b"h: 999999999")
    harness.feed(large)
    assert (harness.asked, harness.answers()[-1].status) == ([], 413)


def test_paths_of_others_are_looked_for_at_every_request() -> None:
    harness = ConnectionHarness(health_path="/health", http_sse="/sse")
    health = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    harness.feed(health * 2).feed(post(INITIALIZE) * 2).feed(health)
    harness.feed(post(PING, path=b"/messages?session_id=x") * 2)
    methods = ["GET", "GET", "POST", "POST", "GET", "POST", "POST"]
    assert [each.status for each in harness.answers(*methods)] == [*([200] * 5), 404, 404]
