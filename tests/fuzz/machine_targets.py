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
from .inputs import Said, in_parts
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
    """Raise AssertionError if it takes more steps than bytes that have come allow."""
    before = world.steps
    yield
    steps, most = world.steps - before, 500 + 10 * len(data)
    assert steps <= most, f"{steps} steps for {len(data)} bytes"


def server_http(data: bytes) -> None:
    """Connections to a server, each with some bytes."""
    seed, parts = in_parts(data)
    world = World(seed, **SERVERS[seed % len(SERVERS)])
    bystander = Bystander(world)
    said = Said()
    peers: list[Peer] = []
    for part in parts:
        request = said.filled(part)
        peers.append(Peer(world, ServerConnection))
        with bounded(world, request):
            said.hear(peers[-1].feed(*world.random.pieces(request)))
        _pass_some_time(world, *peers, bystander.peer)
        for peer in peers:
            said.hear(bytes(peer.sent))
    assert bystander.is_answered()
    _leave(world, *peers, bystander.peer)


def server_stdio(data: bytes) -> None:
    """Lines for a server."""
    seed, parts = in_parts(data)
    world = World(seed)
    bystander = Bystander(world)
    peer = Peer(world, ServerPipe)
    said = Said()
    for part in parts:
        lines = said.filled(part) + b"\n"
        with bounded(world, lines):
            said.hear(peer.feed(*world.random.pieces(lines)))
        _pass_some_time(world, peer, bystander.peer)
    assert bystander.is_answered()
    peer.end()
    world.finish_calls()
    world.wait(6, peer)
    assert peer.is_closed
    _leave(world, bystander.peer)


def _pass_some_time(world: World, *peers: Peer) -> None:
    """Nothing happens, handlers return, time passes, or a peer leaves."""
    match world.random.randrange(8):
        case 0 | 1:
            world.finish_calls()
        case 2:
            world.wait(65, *peers)
        case 3:
            peers[0].end()
        case _:
            pass


def _leave(world: World, *peers: Peer) -> None:
    """All clients go, and nothing of them is left."""
    for peer in peers:
        peer.end()
        assert peer.is_closed
        assert peer.machine.next_deadline() is None
    assert ended(world)


# Clients


def client_http(data: bytes) -> None:
    """Responses for a client, in the order of its requests."""
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
        _wait_for(world, random, world.answer_requests)
    _end(world, calls, world.answer_requests)


def client_stdio(data: bytes) -> None:
    """Output of a server process for a client."""
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
        asked = [line for line in world.input.split(b"\n") if b'"id"' in line]
        output = _filled(part, asked[0] if asked else b"{}") + b"\n"
        world.input = b"".join(line + b"\n" for line in asked[1:])
        with bounded(world, output):
            for piece in random.pieces(output):
                kind = StdoutData if random.random() < 0.95 else StderrData
                world.client.receive_process_part(kind(piece), now=world.now)
                world.run_pending()
        _wait_for(world, random, world.answer_lines)
    _end(world, calls, world.answer_lines)


def _filled(part: bytes, request: bytes) -> bytes:
    """A response to this request, if it has ID for the id."""
    if b"ID" not in part:
        return part
    asked = json.loads(request or b"{}")
    return with_length(part.replace(b"ID", json.dumps(asked.get("id", 1)).encode()))


def _wait_for(world: FuzzClient, random: Mutator, answered: Any) -> None:
    match random.randrange(10):
        case 0:
            world.pass_time(1.0, answered)
        case 1:
            world.pass_time(60.0, lambda: None)
        case 2:
            world.answer_questions()
            world.run_pending()
        case _:
            pass


def _end(world: FuzzClient, calls: list[int | None], answered: Any) -> None:
    """Every call ends once, within its time; then the client closes, within its own."""
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
    """What ``Last-Event-ID`` says, to a server that keeps some streams of two sessions."""
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
            answer = peer.feed(*world.random.pieces(head))
        place = EventId.decode(cursor.decode("latin-1"))
        if answer.startswith(b"HTTP/1.1 200 ") and cursor.strip(b" \t"):
            assert place is not None, "what is no cursor was taken for one"
            assert place.stream.encode() in known, "a stream of no session, or of another one"
            _check_resumed(place, answer)
        peer.end()
        assert peer.is_closed
        world.wait(world.random.choice((0.0, 1.0)), owner.peer, stranger.peer)
    assert owner.is_answered()
    assert stranger.is_answered()
    _leave(world, owner.peer, stranger.peer)


def _check_resumed(place: EventId, answer: bytes) -> None:
    """What comes next in its stream, once, in order; maybe after an empty event at the cursor."""
    found = [EventId.decode(each[1].decode()) for each in _EVENT.finditer(answer)]
    numbers = [each.seq for each in found if each is not None and each.stream == place.stream]
    assert len(numbers) == len(found)
    assert numbers == sorted(set(numbers))
    if place.seq in numbers:
        assert b"\nid: %b\ndata: \n\n" % place.encode().encode() in answer
        numbers.remove(place.seq)
    assert all(number > place.seq for number in numbers)


def _streams_of(world: World, client: Bystander) -> list[bytes]:
    """The tokens of some streams: of a call that is over, of one that runs, and of a GET."""
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
        answer = bytes(peer.sent)
        tokens += dict.fromkeys(each.rpartition(b"-")[0] for each in _EVENT.findall(answer))
        peer.end()
    return tokens


def _named(part: bytes, known: list[bytes], foreign: list[bytes]) -> bytes:
    """A cursor with STREAM0 to STREAM9, and OTHER0 to OTHER9, replaced by names of streams."""
    for word, tokens in ((b"STREAM", known), (b"OTHER", foreign)):
        for number, token in enumerate(tokens):
            part = part.replace(b"%b%d" % (word, number), token)
    return re.sub(rb"[\r\n\0]", b"", part)


# Parked calls


class ParkingWorld(World):
    """A server whose handlers ask two questions, and then return what was answered."""

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
            questions = {
                name: InputRequest("elicitation/create", {"message": name}) for name in "ab"
            }
            call.respond(InputRequired(questions, state={"turn": 1}), now=self.now)
            return
        assert call.handler_input.state == {"turn": 1}
        assert set(call.handler_input.input_responses) == {"a", "b"}
        self.completed += 1
        call.respond({"content": []}, now=self.now)


def parked(data: bytes) -> None:
    """Answers to the questions of a call that is parked: its handler is entered again once."""
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
    asked = bytes(asking.sent)
    questions = re.findall(rb'"id":("[^"]+"),"method":"elicitation/create"', asked)
    assert len(questions) == 2, asked
    peers = [opening, asking]
    for part in parts:
        for name, id in zip((b"QA", b"QB"), questions, strict=True):
            part = part.replace(name, id)
        request = post(part, header, b"mcp-protocol-version: 2025-11-25")
        peers.append(Peer(world, ServerConnection))
        with bounded(world, request):
            peers[-1].feed(*world.random.pieces(request))
        world.wait(world.random.choice((0.0, 0.3)), *peers)
    assert world.completed <= 1, f"completed {world.completed} times"
    assert bystander.is_answered()
    _leave(world, *peers, bystander.peer)


_MULTI_TURN: dict[str, Any] = {"experimental": {"sansmcp/multi-turn-sse": {}}}
