"""Fuzz codecs, most of them against a second implementation that reads the same bytes.

A difference is a finding: if two parsers read one document differently, filters can be bypassed.
"""

from __future__ import annotations

import base64
import contextlib
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sansmcp import (
    Batch,
    BodyData,
    EventId,
    Idle,
    Limits,
    LocalProtocolError,
    NdjsonDecoder,
    RemoteProtocolError,
    RequestHead,
    ResponseHead,
    ServerConnection,
    SseDecoder,
    SseEvent,
    StateSigner,
    Url,
    decode_envelope,
    decode_message,
    encode_event,
    encode_line,
    encode_message,
    h11_parser,
    httptools_parser,
)
from sansmcp.codecs import envelope, headers, http11_framing, json, mirrored
from sansmcp.http11.message_parser import RequestParser, ResponseParser
from sansmcp.http11_parser import Http11Parser

from .inputs import in_parts, seeded
from .mutations import Mutator
from .server_harness import Peer, World

Outcome: TypeAlias = tuple[str, Any]
"""The result of a function or its error, in a form that can be compared."""


def outcome(function: Callable[..., Any], *args: Any) -> Outcome:
    """Return the result of a codec, or the error that it documents."""
    try:
        return "value", function(*args)
    except RemoteProtocolError as error:
        return "remote", (error.reason, error.jsonrpc_code, error.request_id)
    except LocalProtocolError as error:
        return "local", str(error)


def same(*outcomes: Outcome) -> None:
    """Assert that all are equal, including the types of values: 1 is neither 1.0 nor True."""
    first = outcomes[0]
    for other in outcomes[1:]:
        assert repr(first) == repr(other), f"{first!r} and {other!r}"


# JSON


def json_documents(data: bytes) -> None:
    """``decode`` agrees with ``decode_stdlib``, and ``encode`` with ``encode_stdlib``."""
    seed, text = seeded(data)
    random = Mutator(seed)
    bounds = random.choice(((64, 200_000), (3, 20), (500, 1000)))
    found = outcome(json.decode, text, *bounds)
    same(found, outcome(json.decode_stdlib, text, *bounds))
    if found[0] != "value":
        return
    value = found[1]
    for encode in (json.encode, json.encode_stdlib):
        same(found, outcome(json.decode, encode(value), 500))
    assert json.decode(json.encode_sorted(value), 500) == value
    odd = _with_oddities(value, random)
    same(*(outcome(_read_again, encode, odd) for encode in (json.encode, json.encode_stdlib)))


def _read_again(encode: Callable[[Any], bytes], value: Any) -> Any:
    """Encode and decode a value, since 1e300 can also be encoded as 1e+300."""
    return json.decode(encode(value), 500)


class _Text(str):
    __slots__ = ()


_ODD: Sequence[Any] = (
    *(math.nan, math.inf, -0.0, 1e300, 10**400, True, None, "\ud800", "\0", "\u2028", "é"),
    *((), (1, [2.0]), [], {}, {1: 2}, {"a": {None: 1}}, {"\udfff": 1}, b"x", {1}, _Text("x"), 1j),
)


def _with_oddities(value: Any, random: Mutator) -> Any:
    """Replace some parts of a value by ones that JSON cannot represent, or are often mishandled."""
    if random.random() < 0.1:
        return random.choice(_ODD)
    if json.is_object(value):
        return {name: _with_oddities(each, random) for name, each in value.items()}
    if json.is_array(value):
        return [_with_oddities(each, random) for each in value]
    return value


# Messages


def messages(data: bytes) -> None:
    """``decode_message`` agrees with ``decode_envelope``, and that with its slow path."""
    seed, text = seeded(data)
    limits = (Limits(), Limits(max_json_depth=4, max_values=30, max_batch_messages=2))[seed % 2]
    message = outcome(decode_message, text, limits)
    opened = outcome(lambda: decode_envelope(text, limits).decode_payload(limits))
    outside = outcome(decode_envelope, text, limits)
    same(outside, outcome(envelope.decode_stdlib, text, limits))
    if message[0] == "value" and isinstance(message[1], Batch):
        assert outside[0] == "remote"
        for item in message[1].items:
            if not isinstance(item, RemoteProtocolError):
                same(("value", item), outcome(decode_message, encode_message(item), limits))
        return
    assert message[0] == opened[0] or message[1][0] == "batch_too_large"
    if message[0] == "value":
        same(message, opened)
        same(message, outcome(decode_message, encode_message(message[1]), limits))
        same(message, outcome(decode_message, outside[1].encode(), limits))


# Lines


def lines(data: bytes) -> None:
    """``NdjsonDecoder`` agrees with a split at each LF, however the input is cut."""
    seed, text = seeded(data)
    random = Mutator(seed)
    limit = random.choice((1, 7, 100, 1 << 20))
    expected = _split(text, limit)
    for pieces in _cuts(text, random):
        assert _read_lines(pieces, limit) == expected
    for line in expected:
        if isinstance(line, bytes):
            assert encode_line(line) == line + b"\n"


def _cuts(text: bytes, random: Mutator) -> list[list[bytes]]:
    """Return the input whole, in pieces, and with its start byte by byte."""
    start = min(len(text), 100)
    return [[text], random.pieces(text), [*(text[i : i + 1] for i in range(start)), text[start:]]]


def _split(text: bytes, limit: int) -> list[bytes | None]:
    """Return the lines; None for one that is too long."""
    found: list[bytes | None] = []
    for line in text.split(b"\n"):
        if len(line) > limit:
            found.append(None)
        elif line.strip(b" \t\r"):
            found.append(line.removesuffix(b"\r"))
    return found


def _read_lines(pieces: Sequence[bytes], limit: int) -> list[bytes | None]:
    decoder = NdjsonDecoder(limit)
    found: list[bytes | None] = []
    for piece in pieces:
        decoder.receive_data(piece)
        found += _taken(decoder)
    decoder.receive_eof()
    return found + _taken(decoder)


def _taken(decoder: NdjsonDecoder) -> list[bytes | None]:
    found: list[bytes | None] = []
    while True:
        try:
            line = decoder.next_event()
        except RemoteProtocolError as error:
            assert error.reason == "message_too_large"
            found.append(None)
            continue
        if isinstance(line, Idle):
            return found
        found.append(line)


# Event streams


def event_streams(data: bytes) -> None:
    """``SseDecoder`` agrees with the steps of the WHATWG text, however the input is cut."""
    seed, text = seeded(data)
    random = Mutator(seed)
    events, last_id, retry = _as_whatwg_says(text)
    for pieces in _cuts(text, random):
        decoder = SseDecoder(1 << 20)
        found = [event for piece in pieces for event in decoder.feed(piece)]
        dispatched = [
            (each.event, each.data, each.last_event_id) for each in found if each.dispatched
        ]
        assert dispatched == events
        assert decoder.last_event_id == last_id
        assert decoder.reconnection_time == retry
    limit = random.choice((1, 10, 100))
    first = _read_limited([text], limit)
    assert _read_limited(random.pieces(text), limit) == first
    for kind, content, last in events:
        if "\r" not in (content or ""):
            id = last if last and not re.search("[\0-\x1f\x7f]", last) else None
            name = kind if not re.search("[\0-\x1f\x7f]", kind) else "message"
            block = encode_event((content or "").encode(), event=name, id=id)
            (again,) = SseDecoder(1 << 20).feed(block)
            assert again == SseEvent(name, content, id, None, id or "")


def _read_limited(pieces: Sequence[bytes], limit: int) -> tuple[list[SseEvent], bool]:
    decoder = SseDecoder(limit)
    found: list[SseEvent] = []
    is_beyond = False
    for piece in (*pieces, b""):
        try:
            decoder.receive_data(piece)
            while isinstance(event := decoder.next_event(), SseEvent):
                found.append(event)
        except RemoteProtocolError as error:
            assert error.reason == "message_too_large"
            is_beyond = True
    return found, is_beyond


def _as_whatwg_says(text: bytes) -> tuple[list[tuple[str, str, str]], str, int | None]:
    """Return dispatched events, last event id and reconnection time by the steps of 9.2.6."""
    stream = text.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    stream = stream.replace("\r\n", "\n").replace("\r", "\n")
    *complete, _ = stream.split("\n")  # the rest has no line ending yet
    events: list[tuple[str, str, str]] = []
    data = event_type = ""
    id_buffer = last_id = ""
    retry: int | None = None
    for line in complete:
        if not line:
            last_id = id_buffer
            if data:
                events.append((event_type or "message", data.removesuffix("\n"), last_id))
            data = event_type = ""
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            event_type = value
        elif field == "data":
            data += value + "\n"
        elif field == "id" and "\0" not in value:
            id_buffer = value
        elif field == "retry" and re.fullmatch("[0-9]+", value):
            retry = int(value.lstrip("0")[:16] or "0")  # our decoder reads 16 digits
    return events, last_id, retry


# Headers, event ids, mirrored parameters, URLs


def header_values(data: bytes) -> None:
    """Parsers of header values raise nothing; headers of applications are sent unchanged."""
    _, text = seeded(data)
    values = text.split(b"\n")
    headers.accepts(values, headers.JSON)
    headers.options(values)
    headers.media_type(values)
    joined = headers.single(values)
    assert joined is not None
    if headers.is_session_id(joined):
        assert joined.isascii()
        assert joined.isprintable()
    pairs = [(name, value) for name, _, value in (each.partition(b":") for each in values)]
    with contextlib.suppress(LocalProtocolError):
        added = headers.further_headers(pairs)
        head = http11_framing.encode_head(b"GET / HTTP/1.1", (*added, (b"host", b"x")))
        for http11 in (h11_parser.HTTP11, httptools_parser.HTTP11):
            read, _ = http11.read_request_head(head)
            assert read.headers == (*added, (b"host", b"x"))
    for value in values:
        with contextlib.suppress(LocalProtocolError):
            url = Url.parse(value.decode("latin-1"))
            assert Url.parse(str(url)) == url
            url.join(joined)


def event_ids(data: bytes) -> None:
    """An event id that is decoded is encoded to the same text."""
    _, text = seeded(data)
    for each in (text.decode("latin-1"), text.decode("utf-8", "replace")):
        found = EventId.decode(each)
        if found is not None:
            assert found.encode() == each
            assert found.seq >= 0


def mirrored_headers(data: bytes) -> None:
    """Headers that repeat arguments are decoded to what was encoded; schemas raise ValueError."""
    _, text = seeded(data)
    header, _, document = text.partition(b"\n")
    decoded = mirrored.decode_header_value(header)
    if decoded is not None:
        assert mirrored.decode_header_value(mirrored.encode_header_value(decoded)) == decoded
        assert mirrored.header_matches(header, decoded)
    assert (
        mirrored.decode_header_value(mirrored.encode_header_value(text.decode("utf-8", "replace")))
        is not None
    )
    try:
        value = json.decode(document, 64, 10_000)
    except RemoteProtocolError:
        return
    written = mirrored.header_text(value)
    if written is not None:
        assert mirrored.header_matches(mirrored.encode_header_value(written), value)
    mirrored.header_matches(header, value)
    schema = json.as_object(value)
    if schema is None:
        return
    with contextlib.suppress(ValueError):
        for path in mirrored.parameters(schema).values():
            mirrored.argument_at(schema, path)


# States that travel with the client


_SIGNERS = (
    StateSigner(keys=(b"k" * 32,), clock=lambda: 0.0),
    StateSigner(keys=(b"o" * 32,), clock=lambda: 0.0),
)
_METHOD = "tools/call"
_PARAMS: dict[str, Any] = {"name": "x", "arguments": {}}
_STATES = {
    b"VALID": _SIGNERS[0].sign({"n": 1}, "me", _METHOD, _PARAMS, name="1"),
    b"OLD": StateSigner(keys=(b"k" * 32,), clock=lambda: -601.0).sign(
        {"n": 1}, "me", _METHOD, _PARAMS, name="2"
    ),
    b"OTHER": _SIGNERS[0].sign({"n": 1}, "you", _METHOD, _PARAMS, name="3"),
    b"FOREIGN": _SIGNERS[1].sign({"n": 1}, "me", _METHOD, _PARAMS, name="4"),
}


def signed_states(data: bytes) -> None:
    """The signer verifies only a state that it signed for this request, and returns that one."""
    _, text = seeded(data)
    for word, signed in _STATES.items():
        text = text.replace(word, signed.encode())
    for given in (text.decode("latin-1"), text.decode("utf-8", "surrogateescape")):
        try:
            state = _SIGNERS[0].verify(given, "me", _METHOD, _PARAMS)
        except RemoteProtocolError as error:
            assert error.reason == "bad_request_state"
        else:
            assert state == {"n": 1}
            assert _raw(given) == _raw(_STATES[b"VALID"])


def _raw(signed: str) -> bytes:
    return base64.urlsafe_b64decode(signed)


# HTTP/1.1


def heads(data: bytes) -> None:
    """A head that both h11 and httptools accept is parsed to the same values."""
    _, text = seeded(data)
    head, blank, _ = text.partition(b"\r\n\r\n")
    if not blank:
        return
    for kind in ("read_request_head", "read_response_head"):
        found = [outcome(_head_from, getattr(each.HTTP11, kind), head + blank) for each in _PARSERS]
        if all(each[0] == "value" for each in found):
            same(*found)


def _head_from(
    read: Callable[[bytes], tuple[RequestHead | ResponseHead, bool]], data: bytes
) -> Any:
    """Return the content of a head, with secrets, and whether it is of HTTP/1.1."""
    head, is_http_1_1 = read(data)
    return _said(head), is_http_1_1


def _said(head: RequestHead | ResponseHead) -> Any:
    """Return the content of a head. Transfer codings are in lower case, as h11 returns them."""
    start = (head.method, head.target) if isinstance(head, RequestHead) else head.status
    coding = b"transfer-encoding"
    return start, [(name, each.lower() if name == coding else each) for name, each in head.headers]


_PARSERS = (h11_parser, httptools_parser)


class _Recorded:
    """A parser that records its results and errors."""

    def __init__(self, http11: Http11Parser) -> None:
        self.found: list[Outcome] = []
        self.http11 = Http11Parser(
            self._recorded(http11.read_request_head), http11.read_response_head
        )

    def _recorded(self, read: Any) -> Any:
        def recorded(data: bytes) -> tuple[RequestHead, bool]:
            self.found.append(outcome(_head_from, read, data))
            return read(data)  # type: ignore[no-any-return]

        return recorded


def http11_parsers(data: bytes) -> None:
    """A connection gives the same responses with either parser, however the input is cut."""
    seed, text = seeded(data)
    random = Mutator(seed)
    sent: list[bytes] = []
    read: list[list[Outcome]] = []
    for parser, pieces in (
        (h11_parser, [text]),
        (h11_parser, random.pieces(text)),
        (httptools_parser, [text]),
        (httptools_parser, random.pieces(text)),
    ):
        recorded = _Recorded(parser.HTTP11)
        world = EchoWorld(0, http11=recorded.http11)
        peer = Peer(world, ServerConnection)
        peer.feed()
        for piece in pieces:
            peer.machine.receive_data(piece, now=0.0)
            peer.wake()
            world.run_pending()
        sent.append(_IN_TIME.sub(b"", bytes(peer.sent)))
        read.append(recorded.found)
    _is_same_beginning(sent[0], sent[1])
    _is_same_beginning(sent[2], sent[3])
    for ours, theirs in zip(read[0], read[2], strict=False):
        if ours[0] == theirs[0] == "value":
            same(ours, theirs)
        else:
            return  # one parser is stricter, which is allowed
    _is_same_beginning(sent[0], sent[2])


_NO_MORE = 1 << 32
"""So many heads that were not repeated; a parser then keeps none."""


def repeated_heads(data: bytes) -> None:
    """A connection responds as one that parses every head, whatever the last head was.

    Each part is sent twice, and once more with a few bytes changed.
    """
    seed, parts = in_parts(data)
    random = Mutator(seed)
    requests = [each for part in parts for each in (part, part, random.mutated(part, parts))]
    http11 = _PARSERS[seed % 2].HTTP11
    sent: list[bytes] = []
    for is_forgetful in (False, True):
        peer = Peer(EchoWorld(0, http11=http11), ServerConnection)
        if is_forgetful:
            machine: Any = peer.machine
            machine._reader._misses = _NO_MORE  # noqa: SLF001
        sent.append(b"".join(peer.feed(each) for each in requests))
    assert sent[0] == sent[1]


_IN_TIME = re.compile(rb"HTTP/1\.1 100 Continue\r\n\r\n|connection: close\r\n")
"""The parts of a response that depend on how much of its request had arrived."""


def _is_same_beginning(one: bytes, other: bytes) -> None:
    """A refusal before the end of a request ends the connection, so one may be shorter."""
    assert one.startswith(other) or other.startswith(one), (one, other)


class EchoWorld(World):
    """A server that responds to each call at once."""

    def happened(self, event: Any) -> None:
        self.steps += 1
        if (call := getattr(event, "call", None)) is not None and call.is_running:
            call.respond({"content": []}, now=self.now)


def response_bodies(data: bytes) -> None:
    """Both parsers give the same parts of responses, however the input is cut.

    All of it comes twice, and a parser that parses every head gives the same parts, too.
    """
    seed, text = seeded(data)
    random = Mutator(seed)
    found: list[list[list[Any]]] = []
    for parser in _PARSERS:
        forgetful: Any = ResponseParser(parser.HTTP11.read_response_head, 4096)
        forgetful._misses = _NO_MORE  # noqa: SLF001
        usual = [ResponseParser(parser.HTTP11.read_response_head, 4096) for _ in range(2)]
        found.append(
            [
                _parts_of(reader, pieces)
                for reader, pieces in zip(
                    (*usual, forgetful),
                    ([text, text], random.pieces(text + text), [text, text]),
                    strict=True,
                )
            ]
        )
    for whole, in_pieces, of_forgetful in found:
        assert whole == in_pieces == of_forgetful
    (ours, *_), (theirs, *_) = found
    if None not in (*ours, *theirs):
        assert ours == theirs


def _parts_of(reader: RequestParser | ResponseParser, pieces: Sequence[bytes]) -> list[Any]:
    """Return heads and bodies, as far as they arrived; last None if they are not HTTP/1.1."""
    parts: list[Any] = []
    try:
        for piece in (*pieces, b""):
            reader.receive(piece)
            while (part := reader.next_part()) is not None:
                if isinstance(part, RequestHead | ResponseHead):
                    parts += [_said(part), b""]
                elif isinstance(part, BodyData):
                    parts[-1] += part.data
                else:
                    parts.append("end")
                if len(parts) > len(b"".join(pieces)) + 2:
                    raise AssertionError("parts without end")
    except RemoteProtocolError as error:
        assert error.reason in ("malformed_http", "head_too_large")
        parts.append(None)
    return parts
