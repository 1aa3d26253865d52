"""Requests about tasks as a target: two users at one server, and one of them sends anything."""

from __future__ import annotations

import json
import re
from typing import Any

from sansmcp import ServerCall, ServerConnection
from sansmcp.effects import Authenticate, ServerEffect
from sansmcp.events import CallReceived, ServerEvent
from sansmcp.meta_keys import CAPABILITIES, NAMED
from sansmcp.tasks import EXTENSION

from .inputs import in_parts
from .machine_targets import bounded, leave, pass_some_time
from .server_harness import META, MODERN, Bystander, Peer, World, message, post

TASK_META: dict[str, Any] = {
    **META,
    CAPABILITIES: {"elicitation": {}, "extensions": {EXTENSION: {}}},
}
"""What a client sends that can follow tasks."""
_SECRET = "what only the owner may read"
_TASK_ID = re.compile(rb'"taskId":"([^"]+)"')
_HEADER_VALUE = re.compile("[!-~]{1,200}")
_EPOCH = 1_700_000_000.0


class _TaskWorld(World):
    """A server whose calls become tasks. Those of the owner run until the end."""

    def __init__(self, seed: int) -> None:
        super().__init__(
            seed,
            task=(0, 0.5, "optional", "required")[seed % 4],
            shared_store=True,
            authentication=True,
            wall_clock=lambda: _EPOCH + self.now,
        )
        self.owned: list[ServerCall] = []

    def perform(self, effect: ServerEffect) -> None:
        if isinstance(effect, Authenticate):
            self.steps += 1
            names = effect.head.values(b"authorization")
            self.server.authenticated(effect, names[0].decode() if names else "-", now=self.now)
        else:
            super().perform(effect)

    def happened(self, event: ServerEvent) -> None:
        if not (isinstance(event, CallReceived) and event.call.peer.principal == "owner"):
            super().happened(event)
            return
        self.steps += 1
        self.owned.append(event.call)
        event.call.become_task(now=self.now)
        event.call.progress(1, 2, _SECRET, now=self.now)

    def ask(self, body: bytes, principal: str) -> bytes:
        """Send a request in one piece, and return the response."""
        peer = Peer(self, ServerConnection)
        peer.feed(_request(body, principal))
        self.wait(1.0, peer)
        response = bytes(peer.sent)
        peer.end()
        return response

    def new_task(self, principal: str) -> bytes:
        """Make a call that becomes a task, and return its id; empty if it did not become one."""
        call = message("tools/call", 1, name="x", arguments={}, _meta=TASK_META)
        found = _TASK_ID.search(self.ask(call, principal))
        return b"" if found is None else found[1]


def task_requests(data: bytes) -> None:
    """Each part is a request of a guest, who learns nothing of a task of the owner, nor ends it."""
    seed, parts = in_parts(data)
    world = _TaskWorld(seed)
    bystander = Bystander(world)
    foreign = world.new_task("owner")
    assert foreign, "the owner has no task"
    words = {b"FOREIGN": foreign, b"TASK": world.new_task("guest") or b"none"}
    peers: list[Peer] = []
    for part in parts:
        for word, id in words.items():
            part = part.replace(word, id)
        request = _request(part, "guest")
        peers.append(Peer(world, ServerConnection))
        with bounded(world, request):
            peers[-1].feed(*world.random.pieces(request))
        pass_some_time(world, *peers, bystander.peer)
        response = bytes(peers[-1].sent)
        assert _SECRET.encode() not in response, "a guest reads a task of the owner"
        if found := _TASK_ID.findall(response):
            words[b"TASK"] = found[-1]
    assert bystander.is_answered()
    _check_task(world, foreign, "working")
    assert world.owned[0].is_running, "a guest has ended a task of the owner"
    world.owned[0].respond({"content": [], "note": _SECRET}, now=world.now)
    world.run_pending()
    _check_task(world, foreign, "completed")
    for call in world.owned[1:]:
        call.respond({"content": []}, now=world.now)
    leave(world, *peers, bystander.peer)


def _check_task(world: _TaskWorld, id: bytes, status: str) -> None:
    body = message("tasks/get", 1, taskId=id.decode(), _meta=TASK_META)
    response = world.ask(body, "owner")
    assert f'"status":"{status}"'.encode() in response, response
    assert _SECRET.encode() in response, response


def _request(body: bytes, principal: str) -> bytes:
    """Return a request with the headers that its body must have, as far as it can be read."""
    headers = [
        b"authorization: " + principal.encode(),
        b"mcp-protocol-version: " + MODERN.encode(),
    ]
    try:
        found: Any = json.loads(body)
        method: Any = found["method"]
        named: Any = found["params"].get(NAMED.get(method, "taskId"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        method = named = None
    for header, value in ((b"mcp-method", method), (b"mcp-name", named)):
        if isinstance(value, str) and _HEADER_VALUE.fullmatch(value):
            headers.append(header + b": " + value.encode())
    return post(body, *headers)
