"""An observer is called with everything that a machine sends, receives and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from sansmcp import (
    App,
    Client,
    ErrorResponse,
    LocalProtocolError,
    MemoryStore,
    Observer,
    Server,
    ServerCall,
)
from sansmcp.events import CallCompleted, CallFailed
from sansmcp.observer import both
from sansmcp.process import StdoutData
from sansmcp.revisions import REVISIONS
from sansmcp.testing import Link, Pair, sequential_tokens
from sansmcp.trace import Tracer

from ..server.harness import request
from ..server.pipe_harness import Pipe


class Counting(Observer):
    """Counts what it is called with."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.calls: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name in vars(Observer):
            self.counts[name] += 1
        return super().__getattribute__(name)

    def call_started(
        self, call: int, method: str, params: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        self.calls.append((call, method))
        return {"com.example/a": 1, "com.example/b": 2} if method == "tools/call" else None

    def call_ended(self, call: ServerCall, error: ErrorResponse | None) -> None:
        self.calls.append((call.request.method, None if error is None else error.code))


def pair_of(client: Observer, server: Observer, version: str, received: list[Any]) -> Pair:
    app = App("observed")

    def answer(call: ServerCall) -> dict[str, Any]:
        meta = (call.request.params or {})["_meta"]
        received.append({name: meta[name] for name in meta if name.startswith("com.example/")})
        return {}

    app.handler("tools/call")(answer)
    return Pair(
        Client("http://localhost/mcp", jitter=lambda: 0.5, versions=(version,), observer=client),
        Server(app, new_token=sequential_tokens(), observer=server),
        Link(lambda: 0.5),
        store=MemoryStore(),
    )


@pytest.mark.parametrize("version", REVISIONS)
def test_both_sides_of_a_call(version: str) -> None:
    client, server, received = Counting(), Counting(), list[Any]()
    pair = pair_of(client, server, version, received)
    pair.client.start(now=0.0)
    first = pair.client.call("tools/call", {"name": "x"}, meta={"com.example/a": 3}, now=0.0)
    second = pair.client.call("tools/list", now=0.0)
    pair.run(until=10)
    assert received == [{"com.example/a": 3, "com.example/b": 2}]
    assert client.calls == [(first, "tools/call"), (second, "tools/list")]
    assert server.calls[-1] == ("tools/call", None)  # tools/list has no handler
    for name in ("part_received", "effect_pulled", "event_pulled"):
        assert client.counts[name] > 0
    for name in ("part_received", "part_sent", "event_pulled"):
        assert server.counts[name] > 0
    ends = [type(each) for each in pair.events if isinstance(each, CallCompleted | CallFailed)]
    assert set(ends) == {CallCompleted, CallFailed}


def test_two_observers() -> None:
    """Each is called with everything; on stdio, too."""
    first, second, received = Counting(), Counting(), list[Any]()
    assert both(None, None) is None
    assert both(first, None) is both(None, first) is first
    joined = both(first, second)
    assert joined is not None
    pair = pair_of(joined, joined, "2025-11-25", received)
    pair.client.start(now=0.0)
    pair.client.call("tools/call", {"name": "x"}, now=0.0)
    pair.run(until=10)
    assert received == [{"com.example/a": 1, "com.example/b": 2}]
    pipe = Pipe(App("observed"), observer=joined)
    pipe.say(request("ping"))
    client = Client(["server"], jitter=lambda: 0.5, observer=joined)
    client.start(now=0.0)
    client.receive_process_part(StdoutData(b"noise"), now=0.0)
    names = {name for name in vars(Observer) if not name.startswith("_")}
    assert set(first.counts) == names
    assert first.counts == second.counts
    assert first.calls == second.calls


def test_an_observer_beside_a_trace() -> None:
    lines: list[str] = []
    observer = Counting()
    client = Client(
        ["server"], jitter=lambda: 0.5, trace=Tracer("client", lines.append), observer=observer
    )
    client.start(now=0.0)
    client.next_effect()
    client.call("tools/list", now=0.0)
    assert lines == ["client > starts server"]
    assert observer.counts == {"effect_pulled": 1, "call_started": 1}


@pytest.mark.parametrize(("setting", "kind"), [("observer", "Observer"), ("trace", "Tracer")])
def test_another_object_is_refused(setting: str, kind: str) -> None:
    wrong: Any = {setting: print}
    with pytest.raises(LocalProtocolError, match=f"{setting} must be {kind}"):
        Client("http://localhost/mcp", jitter=lambda: 0.5, **wrong)
    with pytest.raises(LocalProtocolError, match=f"{setting} must be {kind}"):
        Server(App("a"), new_token=sequential_tokens(), **wrong)
