"""The names of accepted DPoP proofs: none is accepted twice, and a flood costs others nothing."""

from __future__ import annotations

import random
import weakref

import pytest

from sansmcp import DpopProof, RemoteProtocolError
from sansmcp.server.accepted_proofs import AcceptedProofs

MAX_AGE = 300.0
WAIT = 60.0
"""Seconds for which a request may wait after its proof was compared with the clock."""


class Instance:
    """Users of a server, whose proofs are presented again and again."""

    def __init__(self, max_names: int, seed: int = 0) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.accepted = AcceptedProofs(max_names, MAX_AGE)
        self.used: list[tuple[str, str, float]] = []
        """The principals of proofs that were accepted, their names, and when they were made."""

    def present(self, principal: str, name: str, made: float) -> bool | None:
        """Return True if a proof is accepted, False if it was used, None if it has to wait."""
        proof = DpopProof(
            thumbprint=principal, method="POST", url="u", id=name, age=self.now - made
        )
        try:
            digest = self.accepted.take(principal, proof, self.now)
        except RemoteProtocolError as error:
            assert error.http_status == 429
            assert int(dict(error.headers)[b"retry-after"]) > 0
            return None
        if digest is None:
            return False
        self.used.append((principal, name, made))
        return True

    def make(self, principal: str, age: float = 0.0) -> bool | None:
        """Present a proof that is new."""
        return self.present(principal, f"{len(self.used)} {self.random.random()}", self.now - age)

    def replay(self, wait: float = 0.0) -> None:
        """Present every proof again that the clock accepts, after a wait: none is accepted."""
        self.now += wait
        for principal, name, made in tuple(self.used):
            if abs(self.now - wait - made) <= MAX_AGE:
                assert not self.present(principal, name, made + wait), (principal, name)


@pytest.mark.parametrize("accounts", [1, 17])
@pytest.mark.parametrize("each", [1, 30, 200])
def test_a_flood_by_some_costs_others_nothing(accounts: int, each: int) -> None:
    """However many accounts make however many proofs, each user has a fair share of the names."""
    server = Instance(max_names=400)
    for round_ in range(4):
        assert server.make("eve", age=-100.0 if round_ == 0 else 0.0)
        for number in range(accounts):
            for _ in range(each):
                server.make(f"account {number}")
        assert server.make("ada")
        server.now += 5.0
    server.replay()
    assert len(server.accepted) <= 400


def test_one_user_has_all_names_and_may_go_on() -> None:
    """A user may make as many as fit into the minute for which a request may wait."""
    server = Instance(max_names=100)
    for _ in range(2000):
        server.now += 0.7
        assert server.make("ada")
    assert len(server.accepted) == 100
    server.replay()
    server.now += 0.7
    assert server.make("ada")


def test_a_user_that_makes_too_many_waits_for_a_minute_at_most() -> None:
    server = Instance(max_names=100)
    made = [server.make("ada") for _ in range(1000)]
    assert made == [True] * 100 + [None] * 900
    server.now += WAIT
    assert server.make("ada") is None
    server.now += 0.001
    assert server.make("ada")


def test_names_of_different_users_are_free_after_their_time() -> None:
    server = Instance(max_names=50)
    for number in range(50):
        assert server.make(f"user {number}")
    assert server.make("ada") is None
    server.now += 2 * MAX_AGE + WAIT - 0.001
    assert server.make("ada") is None
    server.now += 0.001
    assert server.make("ada")


class User(str):
    """A principal of which one can see if anything refers to it."""


def test_users_whose_names_are_lost_or_old_leave_nothing() -> None:
    server, users = Instance(max_names=50), weakref.WeakSet[User]()

    def use(user: User) -> None:
        users.add(user)
        for _ in range(20):
            server.make(user)

    for number in range(7):
        use(User(f"user {number}"))
    server.used.clear()
    assert len(users) == 7
    server.now += 2 * MAX_AGE + WAIT
    for _ in range(50):
        server.make("ada")
    assert (len(server.accepted), len(users)) == (50, 0)


@pytest.mark.parametrize("seed", range(40))
def test_no_proof_is_accepted_twice(seed: int) -> None:
    """Users with clocks of their own make proofs at random; each is presented again later."""
    server = Instance(max_names=random.Random(seed).choice([2, 5, 20, 60]), seed=seed)
    chance = server.random
    users = [f"user {number}" for number in range(chance.choice([1, 2, 5, 30]))]
    pace = chance.choice([0.1, 2.0, 20.0])
    for step in range(300):
        server.now += chance.expovariate(1 / pace)
        server.make(chance.choice(users), age=chance.uniform(-MAX_AGE, MAX_AGE))
        if step % 30 == 0:
            server.replay(wait=chance.uniform(0.0, WAIT))
    assert len(server.accepted) <= server.accepted.max_names
