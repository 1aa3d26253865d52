"""Publications, deaths, slow stores and reconnects in any order: a client gets each once."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sansmcp.server.legacy.shared_logs import SharedEntry
from sansmcp.store import StreamKey

from .harness import RawExchange, ServerHarness
from .instances import Instances

CHANGED = "notifications/tools/list_changed"
LOG = StreamKey("", ".publish", "log")


class World:
    """Instances that publish, are slow and die, and a client that listens to one of them."""

    def __init__(self, count: int) -> None:
        self.instances = Instances(count)
        self.dead: set[ServerHarness] = set()
        self.session = self.instances[0].open_session()
        for each in self.instances[1:]:
            each.open_session()
        self.place = self.instances[0]
        self.talk: RawExchange = self.place.get(self.session)
        self.last_id = self.talk.last_id
        self.before: list[Any] = []
        self.count = 0

    @property
    def received(self) -> list[int]:
        """The numbers of the publications that the client has got."""
        return [each["params"]["number"] for each in (*self.before, *self.talk.messages)]

    @property
    def published(self) -> list[int]:
        """Those that are in the log."""
        page = self.instances.store.read(LOG, 0, limit=10_000, max_bytes=10**9)
        if page is None:
            return []
        entries = [SharedEntry.decode(each.data) for each in page.entries]
        return [json.loads(each.data)["params"]["number"] for each in entries]

    @property
    def living(self) -> list[ServerHarness]:
        return [each for each in self.instances if each not in self.dead]

    def publish(self, harness: ServerHarness) -> None:
        self.count += 1
        harness.run_action(harness.server.publish, CHANGED, {"number": self.count})

    def slow(self, harness: ServerHarness) -> None:
        harness.store_works = harness.leases_work = False

    def step(self, harness: ServerHarness) -> None:
        if harness.waiting:
            harness.use_store_once()

    def work(self, harness: ServerHarness) -> None:
        harness.store_works = harness.leases_work = True
        while harness.waiting:
            harness.use_store_once()

    def die(self, harness: ServerHarness) -> None:
        if len(self.living) > 1:
            self.dead.add(harness)

    def reconnect(self, harness: ServerHarness) -> None:
        self.work(harness)
        if self.talk.head is not None:
            self.before += self.talk.messages
            ids = [each.last_event_id for each in self.talk.events if each.last_event_id]
            self.last_id = ids[-1] if ids else self.last_id
        if self.place not in self.dead:
            self.talk.lose_connection()
        self.place = harness
        self.talk = harness.get(self.session, self.last_id)
        assert self.talk.status == 200

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            for each in self.living:
                each.wait(0.5)


ACTIONS = ("publish", "publish", "publish", "slow", "step", "step", "work", "die", "reconnect")


@settings(max_examples=3 * settings().max_examples)
@given(
    st.integers(2, 3),
    st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2), st.sampled_from([0, 0, 0.5, 12])),
        max_size=25,
    ),
)
def test_each_publication_arrives_once_and_in_order(
    count: int, actions: list[tuple[str, int, float]]
) -> None:
    world = World(count)
    for action, number, pause in actions:
        harness = world.living[number % len(world.living)]
        getattr(world, action)(harness)
        world.wait(pause)
        assert world.received == world.published[: len(world.received)]
    for harness in world.living:
        world.work(harness)
    world.wait(1)
    world.reconnect(world.living[-1])
    world.wait(25)
    assert world.received == world.published
