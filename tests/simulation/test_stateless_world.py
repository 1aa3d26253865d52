"""Conversations without sessions under accidents: every call ends once, and rightly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from sansmcp import (
    App,
    Call,
    Client,
    Disconnected,
    InputRequest,
    InputRequired,
    ReconnectPolicy,
    Server,
    StateSeal,
)
from sansmcp.client.modern.requests import StatelessCarrier
from sansmcp.events import CallCompleted, CallFailed, Connected, ServerAsked, ServerNotified
from sansmcp.testing import Link, Pair, counting_tokens

requirement = pytest.mark.requirement
CHANGED = "notifications/tools/list_changed"


def listed(call: Call) -> dict[str, Any]:
    return {"tools": [{"name": "t", "inputSchema": {}}]}


class StatelessWorld:
    """One simulated run, in which tools ask the client before they answer."""

    def __init__(
        self, seed: int, *, mean_cut: float | None, idempotent: bool = True, attempts: int = 60
    ) -> None:
        self.chance = random.Random(seed)
        app = App("world", capabilities={"tools": {"listChanged": True}})
        app.handler("tools/call")(self.handle)
        app.handler("tools/list")(listed)
        self.client = Client(
            "http://localhost/mcp",
            jitter=self.chance.random,
            capabilities={"elicitation": {}},
            reconnect=ReconnectPolicy(initial=0.2, cap=2.0, attempts=attempts),
            timeout=10_000,
            total_timeout=20_000,
        )
        self.server = Server(
            app,
            new_token=counting_tokens(),
            resumable=False,
            seal=StateSeal(keys=(b"0123456789abcdef",), clock=lambda: self.pair.clock.now),
        )
        self.link = Link(self.chance.random, latency=0.01 * self.chance.random(), fragments=True)
        self.pair = Pair(self.client, self.server, self.link)
        self.client.start(now=0.0)
        self.pair.run(5.0)
        assert [type(event) for event in self.pair.events] == [Connected]
        self.link.mean_cut = mean_cut
        self.handles = {self.call(n, idempotent): n for n in range(4)}
        self.listing = self.client.call("tools/list", now=self.pair.clock.now)

    def call(self, number: int, idempotent: bool) -> int:
        params = {"name": "t", "arguments": {"number": number}}
        return self.client.call(
            "tools/call", params, idempotent=idempotent, now=self.pair.clock.now
        )

    def handle(self, call: Call) -> Generator[float, None, Any]:
        """The tool: it asks for more or less, remembers what it asked, and adds up the answers."""
        number = (call.request.params or {})["arguments"]["number"]
        for step in range(3):
            yield self.chance.choice([0.0, 0.02, 0.5])
            call.progress(step, 3, "x" * self.chance.randrange(200), now=self.pair.clock.now)
        state = call.turn.state or {"rounds": 0, "sum": 0}
        answer = call.turn.answers.get("k", {"content": 0})["content"]
        state = {"rounds": state["rounds"] + 1, "sum": state["sum"] + answer}
        if state["rounds"] > number:
            return {"number": number, "sum": state["sum"]}
        asked = {"k": InputRequest("elicitation/create", {"message": "how many?"})}
        return InputRequired(asked if self.chance.random() < 0.9 else {}, state)

    def run(self) -> StatelessWorld:
        """Let time pass, and answer what is asked."""
        seen = 0
        for second in range(10, 3000, 5):
            self.pair.run(float(second))
            for event in self.pair.events[seen:]:
                seen += 1
                if isinstance(event, ServerAsked):
                    answer = {"action": "accept", "content": 1}
                    self.client.respond(event.request.id, answer, now=self.pair.clock.now)
        return self

    def ends(self) -> list[CallCompleted | CallFailed]:
        return [e for e in self.pair.events if isinstance(e, CallCompleted | CallFailed)]

    def check(self) -> list[str]:
        """What went wrong."""
        counts = Counter(event.call for event in self.ends())
        expected = [*self.handles, self.listing]
        problems = [f"{each} ended {counts[each]} times" for each in expected if counts[each] != 1]
        for event in self.ends():
            if isinstance(event, CallFailed):
                problems.append(f"call {event.call} failed: {event.error!r}")
            elif event.call in self.handles:
                number = self.handles[event.call]
                if event.result["number"] != number or event.result["sum"] > number:
                    problems.append(f"call {event.call} got {event.result}")
        return problems


@requirement("MRTR-B-001", "MODERN-B-002", "MODERN-B-003")
@pytest.mark.parametrize("mean_cut", [None, 3000, 6000])
def test_calls_that_may_be_repeated_end_well(mean_cut: float | None) -> None:
    worlds = [StatelessWorld(seed, mean_cut=mean_cut).run() for seed in range(15)]
    assert [problem for world in worlds for problem in world.check()] == []
    assert (sum(world.pair.cuts for world in worlds) > 5) is (mean_cut is not None)
    for world in worlds:
        assert world.client.next_deadline() is None


def test_the_others_end_once_and_are_never_repeated() -> None:
    failures = 0
    for seed in range(20):
        world = StatelessWorld(seed, mean_cut=4000, idempotent=False).run()
        failed = [event for event in world.ends() if isinstance(event, CallFailed)]
        failures += len(failed)
        assert all(isinstance(event.error, Disconnected) for event in failed)
        assert all("the outcome is unknown" in str(event.error) for event in failed)
        assert [problem for problem in world.check() if "ended" in problem] == []
    assert failures > 0


def test_a_subscription_outlives_its_connections() -> None:
    for seed in range(10):
        world = StatelessWorld(seed, mean_cut=5000)
        params = {"notifications": {"toolsListChanged": True}}
        handle = world.client.call("subscriptions/listen", params, now=world.pair.clock.now)
        for second in range(10, 2000, 10):
            world.pair.run(float(second))
            world.server.publish(CHANGED, now=world.pair.clock.now)
        world.link.mean_cut = None
        world.pair.run(2100.0)
        world.pair.events.clear()
        world.server.publish(CHANGED, now=world.pair.clock.now)
        world.pair.run(2110.0)
        told = [event for event in world.pair.events if isinstance(event, ServerNotified)]
        assert [(event.call, event.notification.method) for event in told] == [(handle, CHANGED)]
        assert world.pair.cuts > 0
        world.client.cancel(handle, now=world.pair.clock.now)
        world.pair.run(2120.0)


def test_planted_bug_nobody_is_told_of_a_broken_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(self: StatelessCarrier, reason: str | None) -> None:
        """The one who wants the answer is not told."""

    monkeypatch.setattr(StatelessCarrier, "ended", careless)
    problems = [p for seed in range(5) for p in StatelessWorld(seed, mean_cut=2000).run().check()]
    assert any("ended 0 times" in problem for problem in problems)
