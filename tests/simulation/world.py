"""A whole conversation by seed: calls, accidents, and checkers that see what must never happen.

Everything random comes from the seed, so a failing seed is a failing test that can be run again.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Generator

from sansmcp import (
    App,
    Call,
    Client,
    Entry,
    Idle,
    Limits,
    MemoryStore,
    ReconnectPolicy,
    Server,
    ServerExchange,
    StreamKey,
)
from sansmcp.effects import ExchangeEffect, SendBody
from sansmcp.events import CallCompleted, CallFailed, ProgressReceived
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp.testing import Link, Pair, counting_tokens

URL = "http://localhost/mcp"


class NotingStore(MemoryStore):
    """Notes which events it has."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.ids: set[str] = set()

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        is_added = super().append(key, entries, now=now)
        if is_added:
            self.ids |= {f"{key.stream}-{entry.seq}" for entry in entries}
        return is_added


class WatchedServer(Server):
    """Notes every event that is sent before it is stored."""

    store: NotingStore
    sent_too_early: list[str]

    def next_effect_of(self, exchange: ServerExchange) -> ExchangeEffect | Idle:
        effect = super().next_effect_of(exchange)
        if isinstance(effect, SendBody):
            for id in re.findall(r"^id: (.*)$", effect.data.decode(), re.MULTILINE):
                if not id.endswith("-0") and id not in self.store.ids:
                    self.sent_too_early.append(id)
        return effect


class World:
    """One simulated run."""

    def __init__(
        self,
        seed: int,
        *,
        calls: int = 3,
        steps: int = 6,
        mean_cut: float | None = 2000,
        attempts: int = 50,
        store_fails: float = 0.0,
        window: int = 64 * 1024,
        idempotent: bool = True,
    ) -> None:
        self.chance = random.Random(seed)
        self.steps = steps
        self.problems: list[str] = []
        app = App("world")
        app.handler("tools/call")(self.handle)
        limits = Limits(max_unsent_bytes=2000, replay_page_entries=3)
        self.client = Client(
            URL,
            versions=HANDSHAKE_VERSIONS,
            jitter=self.chance.random,
            reconnect=ReconnectPolicy(initial=0.2, cap=2.0, attempts=attempts),
            timeout=10_000,
            total_timeout=20_000,
            connect_timeout=10_000,
            limits=limits,
        )
        store = NotingStore(limits)
        self.server = WatchedServer(app, new_token=counting_tokens(), limits=limits)
        self.server.store = store
        self.server.sent_too_early = self.problems
        link = Link(
            self.chance.random,
            latency=0.01 * self.chance.random(),
            fragments=True,
            window=window,
        )
        slowness = self.chance.choice([0.0, 0.001, 0.05])
        self.pair = Pair(
            self.client,
            self.server,
            link,
            store=store,
            store_delay=lambda: (
                -1.0 if self.chance.random() < store_fails else slowness * self.chance.random()
            ),
        )
        self.client.start(now=0.0)
        self.pair.run(5.0)
        link.mean_cut = mean_cut
        self.handles = [
            self.client.call(
                "tools/call", {"number": number}, idempotent=idempotent, now=self.pair.clock.now
            )
            for number in range(calls)
        ]

    def handle(self, call: Call) -> Generator[float, None, dict[str, int]]:
        """The tool: some progress, some pauses, and sometimes it lets the client go."""
        clock = self.pair.clock
        for step in range(1, self.steps + 1):
            yield self.chance.choice([0.0, 0.0, 0.02, 0.5, 3.0])
            call.progress(step, self.steps, "x" * self.chance.randrange(300), now=clock.now)
            if self.chance.random() < 0.2:
                call.disconnect(retry=self.chance.choice([None, 0.0, 0.3]), now=clock.now)
        return {"number": (call.request.params or {})["number"]}

    def run(self) -> World:
        self.pair.run(9000.0)
        return self

    def check(self) -> list[str]:
        """What went wrong: nothing may be lost, nothing may come twice or out of order."""
        ends: Counter[int] = Counter()
        reports: dict[int, list[float]] = {handle: [] for handle in self.handles}
        for event in self.pair.events:
            if isinstance(event, ProgressReceived):
                if ends[event.call]:
                    self.problems.append(f"progress of {event.call} after its end")
                reports[event.call].append(event.progress)
            elif isinstance(event, CallCompleted | CallFailed):
                ends[event.call] += 1
                if isinstance(event, CallFailed):
                    self.problems.append(f"call {event.call} failed: {event.error}")
                elif event.result != {"number": self.handles.index(event.call)}:
                    self.problems.append(f"call {event.call} got {event.result}")
        for handle in self.handles:
            if ends[handle] != 1:
                self.problems.append(f"call {handle} ended {ends[handle]} times")
            if reports[handle] != list(range(1, self.steps + 1)):
                self.problems.append(f"call {handle} reported {reports[handle]}")
        return self.problems
