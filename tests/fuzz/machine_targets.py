"""Machines as targets: servers, clients, cursors and parked calls.

Nothing raises out of a machine, the work for an input is bounded, no deadline is due when all that
was due is done, the bystander is answered, and all that is pending ends.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Generator
from typing import Any

from sansmcp import (
    EventId,
    ServerCall,
    ServerConnection,
    ServerPipe,
    h11_parser,
    httptools_parser,
)
from sansmcp.input_required import InputRequest, InputRequired
from sansmcp.process import StderrData, StdoutData
from sansmcp.revisions import HANDSHAKE_VERSIONS, REVISIONS
from sansmcp.states import ClientState

from .client_harness import FuzzClient, http_client
from .inputs import RecordedValues, in_parts
from .mutations import Mutator, with_length
from .server_harness import (
    CLIENT,
    MODERN,
    Bystander,
    Peer,
    World,
    ended,
    get,
    message,
    post,
    session_header,
)

SERVERS: tuple[dict[str, Any], ...] = (
    {},
    {"http11": httptools_parser.HTTP11},
    {"shared_store": True, "multi_turn": True},
    {"http11": httptools_parser.HTTP11, "resumable": False},
    {"stream_after": 0.0, "retry": 1.0},
)


@contextlib.contextmanager
def bounded(world: World | FuzzClient, data: bytes) -> Generator[None, None, None]:
    """Raise AssertionError if the steps exceed the bound for the bytes that have arrived."""
    before = world.steps
    yield
    steps, most = world.steps - before, 500 + 10 * len(data)
    assert steps <= most, f"{steps} steps for {len(data)} bytes"


def server_http(data: bytes) -> None:
    """Each part of the input is the bytes of one connection to a server."""
    seed, parts = in_parts(data)
    world = World(seed, **SERVERS[seed % len(SERVERS)])
    bystander = Bystander(world)
    recorded = RecordedValues()
    peers: list[Peer] = []
    for part in parts:
        request = recorded.filled(part)
        peers.append(Peer(world, ServerConnection))
        with bounded(world, request):
            recorded.record(peers[-1].feed(*world.random.pieces(request)))
        pass_some_time(world, *peers, bystander.peer)
        for peer in peers:
            recorded.record(bytes(peer.sent))
    assert bystander.is_answered()
    leave(world, *peers, bystander.peer)


def server_stdio(data: bytes) -> None:
    """The input is lines for a server on stdio."""
    seed, parts = in_parts(data)
    world = World(seed)
    bystander = Bystander(world)
    peer = Peer(world, ServerPipe)
    recorded = RecordedValues()
    for part in parts:
        lines = recorded.filled(part) + b"\n"
        with bounded(world, lines):
            recorded.record(peer.feed(*world.random.pieces(lines)))
        pass_some_time(world, peer, bystander.peer)
    assert bystander.is_answered()
    peer.end()
    world.finish_calls()
    world.wait(6, peer)
    assert peer.is_closed
    leave(world, bystander.peer)


def pass_some_time(world: World, *peers: Peer) -> None:
    """Do nothing, end handlers, advance the time, or disconnect a peer."""
    match world.random.randrange(8):
        case 0 | 1:
            world.finish_calls()
        case 2:
            world.wait(65, *peers)
        case 3:
            peers[0].end()
        case _:
            pass


def leave(world: World, *peers: Peer) -> None:
    """Disconnect all clients, and assert that nothing is pending."""
    for peer in peers:
        peer.end()
        assert peer.is_closed
        assert peer.machine.next_deadline() is None
    assert ended(world)


# Clients


def client_http(data: bytes) -> None:
    """Each part of the input is a response for a client, in the order of its requests."""
    seed, parts = in_parts(data)
    random = Mutator(seed)
    world = http_client(random, (h11_parser, httptools_parser)[seed % 2].HTTP11)
    world.damage = 0.0
    world.client.start(now=world.now)
    world.run_pending()
    calls: list[int | None] = []
    for part in parts:
        if not world.open or random.random() < 0.1:
            calls.append(world.call())
        if world.is_closed or not world.open:
            break
        effect = next(iter(world.open.values()))
        response = world.proper(effect) if part == b"PROPER" else _filled(part, effect.body)
        with bounded(world, response):
            world.exchange(effect, response)
        wait_for_client(world, random, world.answer_requests)
    end_client(world, calls, world.answer_requests)


def client_stdio(data: bytes) -> None:
    """The input is the output of a server process for a client."""
    seed, parts = in_parts(data)
    random = Mutator(seed)
    versions = (HANDSHAKE_VERSIONS, tuple(REVISIONS), (MODERN,))[seed % 3]
    world = FuzzClient(random, target=("server",), versions=versions)
    world.client.start(now=world.now)
    world.run_pending()
    calls: list[int | None] = []
    for part in parts:
        if not world.input or random.random() < 0.1:
            calls.append(world.call())
        if world.is_closed:
            break
        if part == b"PROPER":
            world.answer_lines()
            continue
        requests = [line for line in world.input.split(b"\n") if b'"id"' in line]
        output = _filled(part, requests[0] if requests else b"{}") + b"\n"
        world.input = b"".join(line + b"\n" for line in requests[1:])
        with bounded(world, output):
            for piece in random.pieces(output):
                kind = StdoutData if random.random() < 0.95 else StderrData
                world.client.receive_process_part(kind(piece), now=world.now)
                world.run_pending()
        wait_for_client(world, random, world.answer_lines)
    end_client(world, calls, world.answer_lines)


def _filled(part: bytes, request: bytes) -> bytes:
    """Replace the placeholder ID by the id of a request."""
    if b"ID" not in part:
        return part
    members = json.loads(request or b"{}")
    return with_length(part.replace(b"ID", json.dumps(members.get("id", 1)).encode()))


def wait_for_client(world: FuzzClient, random: Mutator, answered: Any) -> None:
    match random.randrange(10):
        case 0:
            world.pass_time(1.0, answered)
        case 1:
            world.pass_time(60.0, lambda: None)
        case 2:
            world.answer_server_requests()
            world.run_pending()
        case _:
            pass


def end_client(world: FuzzClient, calls: list[int | None], answered: Any) -> None:
    """Assert that every call ends once, before its timeout, and that the client then closes."""
    world.pass_time(2000.0, answered)
    for call in calls:
        assert call is None or world.ended[call] == 1, f"ended {world.ended[call]} times"
    if not world.is_closed:
        world.client.close(now=world.now)
        world.run_pending()
        world.pass_time(100.0, answered)
        if world.is_stopping:
            world.exit()
        world.pass_time(100.0, answered)
    assert world.is_closed
    assert world.client.state is ClientState.CLOSED
    assert world.client.next_deadline() is None


# Cursors

_EVENT = re.compile(rb"\nid: ([^\n]*)\n")


def cursors(data: bytes) -> None:
    """Each part is a ``Last-Event-ID`` for a server that stores streams of two sessions."""
    seed, parts = in_parts(data)
    world = World(seed, **({} if seed % 2 else {"shared_store": True}), stream_after=0.0)
    owner, stranger = Bystander(world), Bystander(world)
    known = _streams_of(world, owner)
    foreign = _streams_of(world, stranger)
    for part in parts:
        cursor = _named(part, known, foreign)
        peer = Peer(world, ServerConnection)
        head = get(owner.header, b"accept: text/event-stream", b"last-event-id: " + cursor)
        with bounded(world, head):
            response = peer.feed(*world.random.pieces(head))
        place = EventId.decode(cursor.decode("latin-1"))
        if response.startswith(b"HTTP/1.1 200 ") and cursor.strip(b" \t"):
            assert place is not None, "what is no cursor was taken for one"
            assert place.stream.encode() in known, "a stream of no session, or of another one"
            _check_resumed(place, response)
        peer.end()
        assert peer.is_closed
        world.wait(world.random.choice((0.0, 1.0)), owner.peer, stranger.peer)
    assert owner.is_answered()
    assert stranger.is_answered()
    leave(world, owner.peer, stranger.peer)


def _check_resumed(place: EventId, response: bytes) -> None:
    """Assert that only later events of the stream follow, each once, in order."""
    found = [EventId.decode(each[1].decode()) for each in _EVENT.finditer(response)]
    numbers = [each.seq for each in found if each is not None and each.stream == place.stream]
    assert len(numbers) == len(found)
    assert numbers == sorted(set(numbers))
    if place.seq in numbers:
        assert b"\nid: %b\ndata: \n\n" % place.encode().encode() in response
        numbers.remove(place.seq)
    assert all(number > place.seq for number in numbers)


def _streams_of(world: World, client: Bystander) -> list[bytes]:
    """Return the tokens of streams: of an ended call, of a running call, and of a GET."""
    tokens: list[bytes] = []
    call = message("tools/call", 1, name="x", arguments={}, _meta={"progressToken": 1})
    for request in (
        post(call, client.header),
        post(call.replace(b'"id":1', b'"id":2'), client.header),
        post(call.replace(b'"id":1', b'"id":3'), client.header),
        get(client.header, b"accept: text/event-stream"),
    ):
        peer = Peer(world, ServerConnection)
        peer.feed(request)
        world.wait(0.0, peer)
        response = bytes(peer.sent)
        tokens += dict.fromkeys(each.rpartition(b"-")[0] for each in _EVENT.findall(response))
        peer.end()
    return tokens


def _named(part: bytes, known: list[bytes], foreign: list[bytes]) -> bytes:
    """Replace STREAM0 to STREAM9 and OTHER0 to OTHER9 in a cursor by names of streams."""
    for word, tokens in ((b"STREAM", known), (b"OTHER", foreign)):
        for number, token in enumerate(tokens):
            part = part.replace(b"%b%d" % (word, number), token)
    return re.sub(rb"[\r\n\0]", b"", part)


# Parked calls


class ParkingWorld(World):
    """A server whose handlers send two input requests, and then return the input responses."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, shared_store=True, multi_turn=True)
        self.entered = 0
        self.completed = 0

    def happened(self, event: Any) -> None:
        self.steps += 1
        call = getattr(event, "call", None)
        if not isinstance(call, ServerCall) or not call.is_running:
            return
        self.entered += 1
        if call.handler_input.state is None:
            input_requests = {
                name: InputRequest("elicitation/create", {"message": name}) for name in "ab"
            }
            call.respond(InputRequired(input_requests, state={"turn": 1}), now=self.now)
            return
        assert call.handler_input.state == {"turn": 1}
        assert set(call.handler_input.input_responses) == {"a", "b"}
        self.completed += 1
        call.respond({"content": []}, now=self.now)


def parked(data: bytes) -> None:
    """Each part is responses for a parked call: its handler is called again once."""
    seed, parts = in_parts(data)
    world = ParkingWorld(seed)
    bystander = Bystander(world)
    opening = Peer(world, ServerConnection)
    client: dict[str, Any] = {**CLIENT}
    if seed % 2:
        client["capabilities"] = {"elicitation": {}, **_MULTI_TURN}
    opened = opening.feed(post(message("initialize", 0, protocolVersion="2025-11-25", **client)))
    header = session_header(opened)
    opening.feed(post(message("notifications/initialized"), header))
    asking = Peer(world, ServerConnection)
    asking.feed(post(message("tools/call", 1, name="x", arguments={}), header))
    world.wait(0.1, asking)
    sent = bytes(asking.sent)
    input_requests = re.findall(rb'"id":("[^"]+"),"method":"elicitation/create"', sent)
    assert len(input_requests) == 2, sent
    peers = [opening, asking]
    for part in parts:
        for name, id in zip((b"QA", b"QB"), input_requests, strict=True):
            part = part.replace(name, id)
        request = post(part, header, b"mcp-protocol-version: 2025-11-25")
        peers.append(Peer(world, ServerConnection))
        with bounded(world, request):
            peers[-1].feed(*world.random.pieces(request))
        world.wait(world.random.choice((0.0, 0.3)), *peers)
    assert world.completed <= 1, f"completed {world.completed} times"
    assert bystander.is_answered()
    leave(world, *peers, bystander.peer)


_MULTI_TURN: dict[str, Any] = {"experimental": {"sansmcp/multi-turn-sse": {}}}
