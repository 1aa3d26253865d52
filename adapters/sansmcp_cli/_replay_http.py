"""Replay the HTTP exchanges of a recording: as the client of a server, or as a server.

What happened after something in the recording happens after it again: a request is sent when the
responses that had ended before it have ended, and a piece of a response when the requests that had
been sent before it have come. A response that its client left is left when those that had ended
before have ended: the event stream of HTTP+SSE is the session, also while nothing more comes on it.
So a replay needs no clock, and works at any speed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import attrs
import h11

import sansmcp
from sansmcp_local import connect_unix

from ._compare import (
    BodyReader,
    Compared,
    Message,
    Translation,
    needs_key,
    parse_messages,
    progress_token,
    read_body,
)
from ._recording import REDACTED, RecordedExchange, Recording

_PATIENCE = 10.0
"""Seconds in which what had come in the recording must come again."""
_LONGER = 60.0
"""Seconds by which an exchange may take longer than in the recording."""
_READ = 65536
_CONNECTION_HEADERS = ("connection", "content-length", "host", "transfer-encoding")
_SESSION = "mcp-session-id"
_MOST_BYTES = 1 << 26
_MOST_INTERIM = 100
"""Interim responses (1xx) before a response."""
_FAILED = (OSError, h11.RemoteProtocolError, h11.LocalProtocolError, sansmcp.LocalProtocolError)
"""What ends an exchange: the network, the peer, or a recording that HTTP does not allow."""


@attrs.define(eq=False)
class _Sending:
    """An exchange that is sent again."""

    recorded: RecordedExchange
    timeout: float
    """Seconds in which it has to end: those of the recording, and some more."""
    answered: asyncio.Event = attrs.field(factory=asyncio.Event)
    done: asyncio.Event = attrs.field(factory=asyncio.Event)
    status: int | None = None
    body: BodyReader = attrs.field(factory=lambda: BodyReader.of(""))
    """That of the response."""
    notes: list[str] = attrs.field(factory=list[str])

    @property
    def compared(self) -> Compared:
        """What is to be compared."""
        was = _recorded_body(self.recorded).messages
        return _label(self.recorded), was, self.body.messages, self.notes


async def send_http(
    recording: Recording,
    url: sansmcp.Url,
    headers: Sequence[tuple[str, str]],
    keep_times: bool,
) -> list[Compared]:
    """Send the requests of a recording to a server.

    Args:
        recording: the recording.
        url: the endpoint.
        headers: headers that replace those of the recording, such as credentials.
        keep_times: True to begin each request at its time in the recording.

    Returns:
        For each exchange a label, the recorded messages, those of today, and other differences.
    """
    steps = recording.steps
    exchanges = [
        _Sending(each, max(steps[each.ended or -1].t - steps[each.began].t, 0) + _LONGER)
        for each in recording.exchanges()
        if not _needs_key(each)
    ]
    first = min((step.t for step in steps), default=0.0)
    client = _Client(url, headers, exchanges)
    tasks: list[asyncio.Task[None]] = []
    start = asyncio.get_running_loop().time()
    try:
        for sending in exchanges:
            await client.wait_for_earlier(sending.recorded.began)
            if keep_times:
                due = start + steps[sending.recorded.began].t - first
                await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0))
            tasks.append(asyncio.ensure_future(client.send(sending)))
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [each.compared for each in exchanges]


def labels_not_sent(recording: Recording) -> list[str]:
    """Return the labels of the exchanges that are not sent again, since they need a key."""
    return [_label(each) for each in recording.exchanges() if _needs_key(each)]


def _needs_key(exchange: RecordedExchange) -> bool:
    return any(map(needs_key, parse_messages(exchange.body)))


def _label(exchange: RecordedExchange) -> str:
    methods = [str(each.get("method", "response")) for each in parse_messages(exchange.body)]
    return f"#{exchange.number} {' '.join([exchange.method, *methods])}"


def _ended_before(exchange: RecordedExchange, other: RecordedExchange) -> bool:
    """True if an exchange had ended before another.

    Of two that were open at the end of the recording, the one that began first ends last.
    """
    if exchange.ended is None:
        return other.ended is None and exchange.began > other.began
    return other.ended is None or exchange.ended < other.ended


def _recorded_body(exchange: RecordedExchange) -> BodyReader:
    return read_body(exchange.response, exchange.header("content-type"))


@attrs.define
class _Client:
    _url: sansmcp.Url
    _headers: Sequence[tuple[str, str]]
    _exchanges: list[_Sending]
    _session: str | None = attrs.field(default=None, init=False)
    _translation: Translation = attrs.field(factory=Translation, init=False)

    async def wait_for_earlier(self, place: int) -> None:
        """Wait for what had come before a line of the recording."""
        for each in self._exchanges:
            recorded = each.recorded
            had_ended = recorded.ended is not None and recorded.ended < place
            with suppress(asyncio.TimeoutError):
                if had_ended and recorded.ending != "abort":
                    await asyncio.wait_for(each.done.wait(), 2 * _PATIENCE)
                elif recorded.answered is not None and recorded.answered < place:
                    await asyncio.wait_for(each.answered.wait(), _PATIENCE)
                    pieces = sum(1 for line, *_ in recorded.pieces if line < place)
                    await asyncio.wait_for(self._has_read(each, pieces), _PATIENCE)

    async def _has_read(self, sending: _Sending, pieces: int) -> None:
        """Wait until an exchange has brought the messages that it had brought by a piece."""
        before = b"".join(data for *_, data in sending.recorded.pieces[:pieces])
        count = len(read_body(before, sending.recorded.header("content-type")).messages)
        while len(sending.body.messages) < count and not sending.done.is_set():
            await asyncio.sleep(0.01)
        self._learn(sending)

    async def send(self, sending: _Sending) -> None:
        """Send a request, and read its response."""
        recorded = sending.recorded
        try:
            await asyncio.wait_for(self._exchange(sending), sending.timeout)
        except (*_FAILED, asyncio.TimeoutError) as error:
            reason = str(error) or "nothing came for a while, or it takes much longer"
            sending.notes.append(f"no complete response: {reason}")
        self._learn(sending)
        if sending.status != recorded.status and recorded.status is not None:
            sending.notes.append(f"status is {sending.status}, was {recorded.status}")
        sending.answered.set()
        sending.done.set()

    async def _exchange(self, sending: _Sending) -> None:
        recorded, url = sending.recorded, self._url
        reader, writer = await asyncio.wait_for(_open(url), _PATIENCE)
        others = asyncio.ensure_future(self._wait_for_ended(recorded))
        try:
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
            body = _translated(recorded.body, self._translation)
            request = h11.Request(
                method=recorded.method,
                target=self._target(recorded),
                headers=_as_bytes(self._head(sending, body)),
            )
            for event in (request, h11.Data(data=body), h11.EndOfMessage()):
                if not isinstance(event, h11.Data) or body:
                    writer.write(connection.send(event) or b"")
            await writer.drain()
            await self._read(sending, connection, reader, others)
        finally:
            others.cancel()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _wait_for_ended(self, recorded: RecordedExchange) -> None:
        """Wait until the exchanges that had ended before one have ended."""
        for each in self._exchanges:
            if _ended_before(each.recorded, recorded):
                await each.done.wait()

    async def _read(
        self,
        sending: _Sending,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        others: asyncio.Future[None],
    ) -> None:
        recorded = _recorded_body(sending.recorded)
        interim = received = 0
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                data = await _read_some(reader, others)
                if data is not None:
                    connection.receive_data(data)
            elif isinstance(event, h11.InformationalResponse) and interim < _MOST_INTERIM:
                interim += 1
            elif isinstance(event, h11.Response):
                sending.status = event.status_code
                sending.body = self._body_of(event)
                sending.answered.set()
            elif isinstance(event, h11.Data):
                received += len(event.data)
                if received > _MOST_BYTES:
                    raise OSError(f"the response has more than {_MOST_BYTES} bytes")
                sending.body.receive(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                sending.body.end()
                return
            else:
                raise OSError("the server does not answer, or switches to another protocol")
            # What had not ended in the recording would not end today, either.
            body = sending.body
            is_as_long = len(body.messages) >= len(recorded.messages)
            has_events = not body.is_stream or len(body.events) >= len(recorded.events)
            is_open = sending.recorded.ending != "end" and sending.answered.is_set()
            if is_open and is_as_long and has_events and others.done():
                return

    def _body_of(self, response: h11.Response) -> BodyReader:
        """Return a reader for the body of a response, and keep its session."""
        kind = ""
        for name, value in response.headers:
            if name == b"content-type":
                kind = value.decode("latin-1")
            elif name == _SESSION.encode():
                self._session = value.decode("latin-1")
        return BodyReader.of(kind)

    def _learn(self, sending: _Sending) -> None:
        """Learn ids from what has come for an exchange."""
        recorded = _recorded_body(sending.recorded)
        for old, new in zip(recorded.messages, sending.body.messages, strict=False):
            self._translation.learn(old, new)
        for was, is_now in zip(recorded.events, sending.body.events, strict=False):
            if was.id and is_now.id:
                self._translation.texts[was.id] = is_now.id
            if was.event == is_now.event == "endpoint" and was.data and is_now.data:
                self._translation.texts[was.data] = is_now.data
                self._translation.makes_keys = True

    def _target(self, recorded: RecordedExchange) -> str:
        learned = self._translation.texts.get(recorded.target)
        return self._url.target if learned is None else self._url.join(learned).target

    def _head(self, sending: _Sending, body: bytes) -> list[tuple[str, str]]:
        given = {name.lower(): value for name, value in self._headers}
        headers = [("host", self._url.authority), ("connection", "close")]
        for name, value in sending.recorded.headers:
            if name in _CONNECTION_HEADERS or name in given:
                continue
            if name == _SESSION and self._session is not None:
                headers.append((name, self._session))
            elif name == "last-event-id":
                headers.append((name, self._translation.texts.get(value, value)))
            elif value != REDACTED:
                headers.append((name, value))
        if body:
            headers.append(("content-length", str(len(body))))
        return [*headers, *given.items()]


async def serve_http(
    recording: Recording,
    listeners: Sequence[socket.socket],
    say: Callable[[str], None],
    stopped: asyncio.Event,
    *,
    keep_times: bool,
    policy: sansmcp.SecurityPolicy,
) -> None:
    """Serve what the server of a recording sent, until ``stopped`` is set.

    Args:
        recording: the recording.
        listeners: the sockets that listen; they are closed at the end.
        say: is called with the URL, and with a line for each request that the recording lacks.
        stopped: ends the server.
        keep_times: True to make the pauses of the recording within responses.
        policy: the hosts and origins that are served.
    """
    player = _Player(recording, say, keep_times, policy)
    path = next((each.target for each in recording.exchanges()), "")
    if not path.startswith("/"):  # it would become a part of the host in the URL
        path = "/"
    host, port = listeners[0].getsockname()[:2]
    servers = [await asyncio.start_server(player.serve, sock=each) for each in listeners]
    try:
        say(str(sansmcp.Url("http", host, port, path.partition("?")[0])))
        await stopped.wait()
    finally:
        for server in servers:
            server.close()
        for task in player.tasks:
            task.cancel()
        await asyncio.gather(*player.tasks, return_exceptions=True)


@attrs.define
class _Player:
    _recording: Recording
    _say: Callable[[str], None]
    _keep_times: bool
    _policy: sansmcp.SecurityPolicy
    tasks: set[asyncio.Task[None]] = attrs.field(factory=set[asyncio.Task[None]], init=False)
    _left: list[RecordedExchange] = attrs.field(init=False)
    _waits: dict[int, asyncio.Event] = attrs.field(factory=dict[int, asyncio.Event], init=False)
    """By the number of an exchange, whether its request has come."""

    def __attrs_post_init__(self) -> None:
        self._left = self._recording.exchanges()
        self._waits = {each.number: asyncio.Event() for each in self._left}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one connection."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (*_FAILED, asyncio.CancelledError):
            pass
        finally:
            self.tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        while True:
            request, body = await _next_request(connection, reader)
            if request is None:
                return
            messages = parse_messages(body)
            is_served = self._is_served(request)
            found = self._take(request.method.decode("latin-1"), messages) if is_served else None
            if not is_served:
                text = b"This host or origin is not served; sansmcp replay --allow-host NAME"
                await _respond(403, text, connection, writer)
            elif found is None:
                await self._refuse(request, messages, connection, writer)
            elif not await self._play(found, messages, connection, writer):
                return
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()

    def _is_served(self, request: h11.Request) -> bool:
        """True unless a web page of another host reads this server, by DNS rebinding or else."""
        headers = dict(request.headers)
        origin = headers.get(b"origin")
        return self._policy.allows_host(headers.get(b"host")) and self._policy.allows_origin(
            None if origin is None else origin.decode("latin-1")
        )

    def _take(self, method: str, messages: list[Message]) -> RecordedExchange | None:
        """Remove and return the next exchange of the recording that fits a request."""
        words = [each.get("method") for each in messages]
        same = [
            each
            for each in self._left
            if each.method == method
            and [old.get("method") for old in parse_messages(each.body)] == words
        ]
        if not same:
            return None
        params = [each.get("params") for each in messages]
        exact = [
            each
            for each in same
            if [old.get("params") for old in parse_messages(each.body)] == params
        ]
        found = (exact or same)[0]
        self._left.remove(found)
        self._waits[found.number].set()
        return found

    async def _refuse(
        self,
        request: h11.Request,
        messages: list[Message],
        connection: h11.Connection,
        writer: asyncio.StreamWriter,
    ) -> None:
        words = [request.method.decode("latin-1"), *(str(each.get("method")) for each in messages)]
        self._say(f"not in the recording: {' '.join(words)}")
        status = 405 if request.method == b"GET" else 404
        text = b"The recording has no further request of this kind"
        await _respond(status, text, connection, writer)

    async def _play(
        self,
        found: RecordedExchange,
        messages: list[Message],
        connection: h11.Connection,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Send a recorded response. Return False if the connection is to be closed."""
        translation = Translation()
        recorded = parse_messages(found.body)
        for old, new in zip(recorded, messages, strict=False):
            translation.learn(old, new)
        if found.status is None:
            return False
        headers = [
            (name, value)
            for name, value in found.response_headers
            if name not in _CONNECTION_HEADERS
        ]
        writer.write(
            connection.send(h11.Response(status_code=found.status, headers=_as_bytes(headers)))
            or b""
        )
        before = self._recording.steps[found.answered or 0].t
        for place, t, data in self._pieces(found, messages, recorded, translation):
            await self._wait_for_requests(place)
            if self._keep_times:
                await asyncio.sleep(max(t - before, 0))
            before = t
            writer.write(connection.send(h11.Data(data=data)) or b"")
            await writer.drain()
        if found.ending == "end":
            await self._wait_for_requests(found.ended or 0)
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            return True
        await writer.drain()
        if found.ending == "lost":
            return False
        await asyncio.Event().wait()  # until the client leaves, or the server stops
        return False

    def _pieces(
        self,
        found: RecordedExchange,
        messages: list[Message],
        recorded: list[Message],
        translation: Translation,
    ) -> list[tuple[int, float, bytes]]:
        """Return the pieces of the body: as they were, unless the client has chosen other ids."""
        if _chosen(messages) == _chosen(recorded):
            return found.pieces
        if "event-stream" not in found.header("content-type"):
            body = _translated(found.response, translation)
            place, t = found.pieces[-1][:2] if found.pieces else (0, 0.0)
            return [(place, t, body)]
        decoder = sansmcp.SseDecoder(_MOST_BYTES)
        return [
            (place, t, b"".join(_event(event, translation) for event in decoder.feed(data)))
            for place, t, data in found.pieces
        ]

    async def _wait_for_requests(self, place: int) -> None:
        """Wait for the messages that had been sent before a line of the recording.

        One that does not come is waited for once: another client need not send the same.
        """
        for each in self._recording.exchanges():
            if each.method == "POST" and each.began < place:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._waits[each.number].wait(), _PATIENCE)
                self._waits[each.number].set()


async def _respond(
    status: int, text: bytes, connection: h11.Connection, writer: asyncio.StreamWriter
) -> None:
    head = [("content-type", "text/plain"), ("content-length", str(len(text)))]
    writer.write(connection.send(h11.Response(status_code=status, headers=head)) or b"")
    writer.write(connection.send(h11.Data(data=text)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


def _as_bytes(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as h11 takes them if they are not ASCII."""
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]


def _chosen(messages: list[Message]) -> list[str]:
    """Return what a client has chosen in its messages: ids and progress tokens."""
    return [json.dumps([each.get("id"), progress_token(each)]) for each in messages]


def _event(event: sansmcp.SseEvent, translation: Translation) -> bytes:
    name = None if event.event == "message" else event.event
    data = None if event.data is None else _translated(event.data.encode(), translation)
    return sansmcp.encode_event(data, event=name, id=event.id, retry=event.retry)


def _translated(body: bytes, translation: Translation) -> bytes:
    """Return the message or batch of a body as it must be today; other bytes as they are."""
    messages = parse_messages(body)
    translated = [translation.applied(message) for message in messages]
    if translated == messages:
        return body
    document = translated if body.lstrip().startswith(b"[") else translated[0]
    return json.dumps(document).encode()


async def _open(url: sansmcp.Url) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the server at a URL. Raises OSError."""
    if url.socket_path is None:
        secure = ssl.create_default_context() if url.scheme == "https" else None
        return await asyncio.open_connection(url.host, url.port, ssl=secure)
    connection = connect_unix(url.socket_path)
    return await asyncio.open_connection(sock=connection)


async def _read_some(reader: asyncio.StreamReader, others: asyncio.Future[None]) -> bytes | None:
    """Read bytes of a server; None if ``others`` become done first.

    Until they are done, a stream may be silent for as long as they take. Other tasks, and Ctrl-C,
    have their turn before: a read of what has come already does not wait, and one that is cancelled
    while it ends can ignore that in Python 3.11.
    """
    are_done = others.done()
    await asyncio.sleep(0)
    if are_done:
        return await asyncio.wait_for(reader.read(_READ), _PATIENCE)
    reading = asyncio.ensure_future(reader.read(_READ))
    try:
        either: list[asyncio.Future[Any]] = [reading, others]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else None
    finally:
        reading.cancel()
        await asyncio.wait([reading])  # two must not read at once


async def _next_request(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> tuple[h11.Request | None, bytes]:
    """Read a request and its body; None at the end of the connection."""
    request, body = None, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _MOST_BYTES:
                raise OSError("the request is too large")
        elif isinstance(event, h11.EndOfMessage):
            return request, bytes(body)
        else:
            return None, b""
