"""The machines of HTTP/2 (``stdio-v2``) as targets: a server, and the client of a process."""

from __future__ import annotations

import json
from collections import Counter

from sansmcp import ServerCall
from sansmcp.events import CallCancelled, ServerEvent
from sansmcp.http2.frames import PREFACE, FrameType
from sansmcp.http2.pipe_client import PipeClient
from sansmcp.http2.server_connection import ServerConnection
from sansmcp.process import StderrData, StdoutData
from sansmcp.revisions import HANDSHAKE_VERSIONS, REVISIONS

from .client_harness import FuzzClient, result_message
from .http2_frames import END_HEADERS, END_STREAM, FrameWriter, SentFrames, frame
from .inputs import in_parts
from .machine_targets import bounded, end_client, leave, wait_for_client
from .mutations import Mutator
from .server_harness import MODERN, Bystander, Peer, World


class Http2World(World):
    """A server whose calls are counted by how often they were cancelled."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.cancelled: Counter[ServerCall] = Counter()

    def happened(self, event: ServerEvent) -> None:
        if isinstance(event, CallCancelled):
            self.cancelled[event.call] += 1
            assert self.cancelled[event.call] == 1, "a call is cancelled twice"
        super().happened(event)


class Http2Peer(Peer):
    """A connection of HTTP/2, whose output is read frame by frame."""

    def __init__(self, world: World) -> None:
        self.frames = SentFrames(has_preface=False)
        self.received = b""
        self._is_over = False
        super().__init__(world, ServerConnection)

    def write(self, data: bytes) -> None:
        """Feed bytes in pieces, and let the server send all that it has to send."""
        self.received += data
        self.read()
        for piece in self.world.random.pieces(data):
            self.feed(piece)
            self.read()
            self.world.wait(0.0, self)
            self.read()

    def read(self) -> None:
        """Read what the server has sent."""
        data = bytes(self.sent)
        self.sent.clear()
        assert not (data and self._is_over), "bytes after the end"
        self._is_over = self.is_closed
        if self.received.startswith(PREFACE):
            self.frames.receive(data)
        elif data:
            assert json.loads(data)["error"], "something else than an error in a line"


def server_http2(data: bytes) -> None:
    """Each part is a frame for a server; see :mod:`.http2_frames`."""
    seed, parts = in_parts(data)
    world = Http2World(seed)
    bystander = Bystander(world)
    writer, peer = FrameWriter(), Http2Peer(world)
    peer.write(PREFACE if seed % 8 else b"")
    for part in parts:
        written = writer.written(part)
        with bounded(world, written):
            peer.write(written)
        if world.random.random() < 0.2:
            world.finish_calls()
        if world.random.random() < 0.05:
            world.wait(65, peer, bystander.peer)
    assert bystander.is_answered()
    peer.end()
    world.wait(6, peer)
    peer.read()
    assert peer.is_closed
    left = [call for call in world.running if call.is_running and call.peer.revision.name == MODERN]
    assert left == [], "a call goes on after its stream has ended"
    leave(world, bystander.peer)


class Http2Client(FuzzClient):
    """A client of a process that speaks HTTP/2."""

    machine = PipeClient

    def __init__(self, random: Mutator) -> None:
        versions = (HANDSHAKE_VERSIONS, tuple(REVISIONS), (MODERN,))
        super().__init__(random, target=("server",), versions=random.choice(versions))
        self.writer = FrameWriter()
        self.frames = SentFrames(has_preface=True)
        self.pending: list[int] = []
        """Streams with a complete request and no response."""
        self._has_begun = False

    def read(self) -> None:
        """Read the requests that the client has made."""
        data, self.input = self.input, b""
        if data:
            self.pending += self.frames.receive(data)
        self.pending = [each for each in self.pending if each not in self.frames.reset]

    def feed(self, data: bytes) -> None:
        """Feed output of the process, in pieces; now and then its standard error instead."""
        for piece in self.random.pieces(data):
            kind = StdoutData if self.random.random() < 0.95 else StderrData
            self.client.receive_process_part(kind(piece), now=self.now)
            self.run_pending()
        self.read()

    def part(self, part: bytes) -> bytes:
        """Return the bytes of a part: stream 255 stands for the first that waits, ID for its id."""
        if part[2:3] == b"\xff" and self.pending:
            stream = self.pending[0]
            part = part[:2] + bytes((stream % 256,)) + part[3:].replace(b"ID", self._id_of(stream))
        return self.writer.written(part)

    def answer(self) -> None:
        """Respond to all requests, or end the process if it is stopping."""
        for _ in range(100):
            self.read()
            data = b"" if self._has_begun else frame(FrameType.SETTINGS)
            self._has_begun = True
            for stream in self.pending:
                data += self._response(stream)
            self.pending = []
            if data:
                self.client.receive_process_part(StdoutData(data), now=self.now)
                self.run_pending()
            if self.is_stopping:
                self.exit()
            if not (self.input or self.pending):
                return

    def _id_of(self, stream: int) -> bytes:
        body = self.frames.bodies[stream]
        return json.dumps(json.loads(body).get("id", 1) if body else 1).encode()

    def _response(self, stream: int) -> bytes:
        body, request = b"", json.loads(self.frames.bodies[stream] or b"{}")
        status = b"405" if self.frames.heads[stream][b":method"] == b"GET" else b"202"
        if "id" in request and "method" in request:
            body = result_message(request["id"], self.result(request["method"]))
            status = b"200"
        lines = b":status: %b\r\ncontent-type: application/json\r\n" % status
        flags = END_HEADERS if body else END_HEADERS | END_STREAM
        head = frame(FrameType.HEADERS, self.writer.headers(lines), flags=flags, stream=stream)
        return head + (frame(FrameType.DATA, body, flags=END_STREAM, stream=stream) * bool(body))


def client_http2(data: bytes) -> None:
    """Each part is a frame of a server process, or ``PROPER``: its responses to all requests."""
    seed, parts = in_parts(data)
    random = Mutator(seed)
    world = Http2Client(random)
    world.client.start(now=world.now)
    world.run_pending()
    calls: list[int | None] = []
    for part in parts:
        if not world.pending or random.random() < 0.1:
            calls.append(world.call())
        if world.is_closed:
            break
        world.read()
        if part == b"PROPER":
            world.answer()
            continue
        written = world.part(part)
        with bounded(world, written):
            world.feed(written)
        wait_for_client(world, random, world.answer)
    end_client(world, calls, world.answer)
