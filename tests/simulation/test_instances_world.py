"""One handler, three ways of asking, any instance: a call completes once, whatever happens.

Each run is one call that needs two rounds of answers, towards instances that share a store. They
are all there, or those that have asked are killed before they are answered; connections break after
a random number of bytes, and often while an answer is under way. While the call waits for answers,
strangers try to use what they have seen, in all ways of ``tests/stores/strangers.py``: this is what
the worlds of the simulator do not have.
"""

# The planted bug has to reach into the machines.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from sansmcp import (
    App,
    BodyData,
    BodyEnd,
    Client,
    Idle,
    InputRequest,
    InputRequired,
    Limits,
    MemoryStore,
    ReconnectPolicy,
    RequestHead,
    ResponseHead,
    Server,
    ServerCall,
    StateSigner,
)
from sansmcp.effects import SendBody, SendHead
from sansmcp.events import CallCompleted, CallFailed, ServerRequestReceived
from sansmcp.server.legacy.parked_calls import ParkedCall, ResponseDelivery
from sansmcp.server.procedures import Steps
from sansmcp.testing import Link, Pair, sequential_tokens

from ..stores.strangers import Attempt, Spy, attempts, initialize
from ..thorough import in_seeds

requirement = pytest.mark.requirement

WAYS = {
    "requests": ("2025-06-18", False),
    "multi-turn streams": ("2025-11-25", True),
    "results": ("2026-07-28", False),
}
IN_PLACE = "requests in place"
"""The handler stays, and waits where it is."""
PLACES = ["one instance", "any instance", "the one that has asked is killed"]


def question(value: int) -> InputRequest:
    return InputRequest("elicitation/create", {"message": "?", "value": value})


class Visit:
    """A request of a stranger at an instance."""

    def __init__(self, pair: Pair, server: Server, attempt: Attempt, principal: str) -> None:
        self.server = server
        self.attempt = attempt
        self.head: ResponseHead | None = None
        self._body = b""
        self._exchange = server.open_exchange(self)
        headers = {"host": "localhost", **attempt.headers}
        head = RequestHead(
            method=attempt.method.encode(),
            target=b"/mcp",
            headers=tuple((name.encode(), value.encode()) for name, value in headers.items()),
            principal=principal,
        )
        body = b"" if attempt.body is None else json.dumps(attempt.body).encode()
        for part in (head, BodyData(body), BodyEnd()):
            server.receive_part(self._exchange, part, now=pair.clock.now)
        self.drive()

    def drive(self) -> None:
        """Take what the instance says."""
        while not isinstance(effect := self.server.next_effect_of(self._exchange), Idle):
            if isinstance(effect, SendHead):
                self.head = effect.head
            elif isinstance(effect, SendBody):
                self._body += effect.data

    @property
    def told(self) -> tuple[int, str] | str | None:
        """The refusal; None: the request was ignored."""
        if self.head is None:
            return "nothing"
        if self.head.status == 202:
            return None
        error = json.loads(self._body).get("error", {"data": {"reason": "none"}})
        return self.head.status, error["data"]["reason"]

    @property
    def session(self) -> str:
        """That which was opened."""
        assert self.head is not None
        return dict(self.head.headers)[b"mcp-session-id"].decode()


class World:
    """One simulated run."""

    def __init__(self, way: str, place: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kills = place == PLACES[2]
        self.spy = Spy()
        self.handle = self.return_questions
        if way == IN_PLACE:
            self.handle = self.ask_in_place
        version, self.multi_turn = WAYS.get(way, WAYS["requests"])
        limits = Limits(replay_page_entries=3)
        store = MemoryStore(limits)
        servers = [self.new_server(number, limits) for number in range(3)]
        client = Client(
            "http://localhost/mcp",
            versions=(version,),
            multi_turn=self.multi_turn,
            capabilities={"elicitation": {}},
            trace=self.spy,
            jitter=self.chance.random,
            reconnect=ReconnectPolicy(initial_delay=0.2, max_delay=2.0, max_attempts=60),
            timeout=1000,
        )
        link = Link(self.chance.random, latency=0.01 * self.chance.random(), fragments=True)
        slowness = self.chance.choice([0.0, 0.002, 0.05])
        self.pair = Pair(
            client,
            servers[0],
            link,
            others=servers[1:],
            store=store,
            store_delay=lambda: slowness * self.chance.random(),
        )
        if place == PLACES[0]:
            self.pair.route = lambda: servers[0]
        else:
            self.pair.route = lambda: self.chance.choice(self.pair.servers)
        self.entered: Counter[int] = Counter()
        """How often a handler was entered with the state of that number."""
        self.asking: Server | None = None
        self.asked = 0
        """How many questions have come to the client."""
        self.strange = self.chance.choice([1, 2, 3])
        """At which of them strangers come."""
        self.visits: list[Visit] = []
        client.start(now=0.0)
        self.pair.run(5.0)
        self.strangers = self.open_sessions(version) if self.spy.session else {"": "", "eve": ""}
        link.mean_cut = self.chance.choice([None, 1000, 2000, 5000])
        params: dict[str, Any] = {"name": "ask", "arguments": {}}
        now = self.pair.clock.now
        self.call = client.call("tools/call", params, idempotent=True, now=now)

    def new_server(self, number: int, limits: Limits) -> Server:
        app = App("world")
        app.handler("tools/call")(self.handle)
        seal = StateSigner(keys=(b"0123456789abcdef",), clock=lambda: self.pair.clock.now)
        return Server(
            app,
            new_token=sequential_tokens(f"instance-{number}"),
            shared_store=True,
            multi_turn=True,
            state_signer=seal,
            limits=limits,
        )

    def return_questions(self, call: ServerCall) -> Generator[float, Any, Any]:
        """The tool: two questions, then a third; the answers are added up."""
        now = self.pair.clock
        yield self.chance.choice([0.0, 0.01, 0.3, 1.0])
        call.notify(
            "notifications/message", {"data": "x" * self.chance.randrange(300)}, now=now.now
        )
        yield self.chance.choice([0.0, 0.01, 0.3])
        state = call.handler_input.state
        fresh = self.chance.randrange(10**9)
        self.asking = self.pair.server_for(call)
        if state is None:
            return InputRequired({"a": question(1), "b": question(2)}, [0, fresh])
        self.entered[state[1]] += 1
        total = state[0] + sum(
            answer["content"] for answer in call.handler_input.input_responses.values()
        )
        if "c" in call.handler_input.input_responses:
            return {"sum": total}
        return InputRequired({"c": question(4)}, [total, fresh])

    def open_sessions(self, version: str) -> dict[str, str]:
        """The sessions of strangers, by principal; the client itself has no name."""
        opened = {
            principal: Visit(self.pair, self.pair.server, initialize(version), principal)
            for principal in ("", "eve")
        }
        self.pair.run(10.0)
        return {principal: visit.session for principal, visit in opened.items()}

    def ask_in_place(self, call: ServerCall) -> Generator[float, Any, Any]:
        """The same tool, as a handler that awaits each answer."""
        total = 0
        for value in (1, 2, 4):
            yield self.chance.choice([0.0, 0.01, 0.3])
            now = self.pair.clock.now
            params = question(value).params
            answered = yield call.ask("elicitation/create", params, timeout=100, now=now)
            total += answered.result()["content"]
        return {"sum": total}

    def run(self) -> World:
        seen = 0
        while self.pair.clock.now < 400 and not self.ends:
            self.pair.run(self.pair.clock.now + 0.3)
            for event in self.pair.events[seen:]:
                seen += 1
                if isinstance(event, ServerRequestReceived):
                    self.answer(event)
        self.pair.run(self.pair.clock.now + 30)
        return self

    def answer(self, event: ServerRequestReceived) -> None:
        if self.kills and self.asking in self.pair.servers[1:] + self.pair.servers[:-1]:
            assert self.asking is not None
            self.pair.kill(self.asking)
        self.asked += 1
        if self.asked == self.strange:
            for attempt in attempts(self.spy, self.strangers, multi_turn=self.multi_turn):
                server = self.chance.choice(self.pair.servers)
                self.visits.append(Visit(self.pair, server, attempt, attempt.principal))
        request = event.request
        result = {"action": "accept", "content": (request.params or {})["value"]}

        def respond() -> None:
            self.pair.client.respond(request.id, result, now=self.pair.clock.now)
            if self.chance.random() < 0.5:
                # An instance may have the answer already. The client sends it again, perhaps before
                # the handler, which may take a second, has written anything.
                moment = 3 * self.pair.link.latency * self.chance.random()
                self.pair.clock.call_later(moment, self.pair.break_connections)

        self.pair.clock.call_later(self.chance.choice([0.0, 0.0, 0.1, 1.0]), respond)

    @property
    def ends(self) -> list[CallCompleted | CallFailed]:
        return [e for e in self.pair.events if isinstance(e, CallCompleted | CallFailed)]

    def problems(self, *, once: bool) -> list[str]:
        """What went wrong. ``once``: no handler is entered twice with the same state."""
        found = [f"ended {len(self.ends)} times"] if len(self.ends) != 1 else []
        for event in self.ends:
            if not isinstance(event, CallCompleted):
                found.append(f"failed: {event.error!r}")
            elif event.result["sum"] != 7:
                found.append(f"got {event.result}")
        if once:
            found += [f"{times} times" for times in self.entered.values() if times > 1]
        for visit in self.visits:
            if visit.server in self.pair.servers and visit.told != visit.attempt.refused:
                found.append(f"{visit.attempt} is answered {visit.told}")
        if not self.visits:
            found.append("no stranger came")
        return found


def problems(way: str, place: str, seeds: range) -> Iterator[str]:
    """What goes wrong in worlds of one kind; ``make simulate`` runs such by the thousand."""
    # A call of the stateless revision whose response breaks is made again, round by round.
    once = way != "results"
    for seed in seeds:
        for text in World(way, place, seed).run().problems(once=once):
            yield f"seed {seed}: {text}"


@requirement("MTURN-S-009", "MTURN-S-011", "MTURN-B-001", "MRTR-S-010", "MRTR-S-011")
@in_seeds(8, 30)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_a_call_completes_once_with_the_right_answer(way: str, place: str, seeds: range) -> None:
    assert list(problems(way, place, seeds)) == []


@in_seeds(20, 100)
@pytest.mark.parametrize("place", PLACES[:2])
def test_an_answer_finds_the_handler_that_waits_for_it(place: str, seeds: range) -> None:
    assert list(problems(IN_PLACE, place, seeds)) == []


@in_seeds(20, 100)
def test_a_cancellation_finds_the_handler_that_waits_for_an_answer(seeds: range) -> None:
    for seed in seeds:
        world = World(IN_PLACE, PLACES[1], seed)
        world.pair.link.mean_cut = None
        pair = world.pair
        pair.run(pair.clock.now + 2 * world.chance.random())
        pair.client.cancel(world.call, now=pair.clock.now)
        pair.run(pair.clock.now + 2)
        assert len(world.ends) == 1, seed
        assert not any(server.is_busy for server in pair.servers), seed


def test_planted_bug_who_comes_back_goes_on_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(self: ResponseDelivery, parked: ParkedCall) -> Steps[int | None]:
        yield from ()
        return self._turn.seq

    monkeypatch.setattr(ResponseDelivery, "_claim", twice)
    found = problems("multi-turn streams", PLACES[1], range(60))
    assert any("times" in text for text in found)
