"""Keys of calls in a shared store at the handshake revisions: any instance gives the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from sansmcp import InputRequired, StateSigner
from sansmcp.effects import StoreRead
from sansmcp.events import CallReceived

from .harness import LATEST, RawExchange, ServerHarness
from .instances import Instances
from .test_keys_in_sessions import OLDER, keyed, rest
from .test_rounds import ALL, NAME

DONE = {"sum": 3}


class Fleet(Instances):
    """Instances that share the keys of calls, and a session at one revision."""

    def __init__(self, version: str = LATEST, **settings: Any) -> None:
        settings.setdefault("reclaim", "store")
        super().__init__(
            wall_clock=lambda: 1_800_000_000.0,
            state_signer=StateSigner(keys=(b"sixteen bytes at least",), clock=lambda: 0.0),
            **settings,
        )
        self.version = version
        self.session = self.open_session(version, ALL)

    def ask(self, number: int, message: Any) -> RawExchange:
        return self[number].post(message, self.session, self.version)

    def ask_while_claims_wait(self, message: Any) -> RawExchange:
        """The same at the first instance, whose store only reads."""
        return self.while_claims_wait(lambda: self.ask(0, message))

    def while_claims_wait(self, ask: Callable[[], RawExchange]) -> RawExchange:
        """Ask the first instance, whose store only reads."""
        self[0].store_works = False
        talk = ask()
        while reads := [each for each in self[0].waiting if isinstance(each, StoreRead)]:
            self[0].waiting.remove(reads[0])
            self[0].perform_store_effect(reads[0])
            self[0].run_pending()
        return talk

    def claims_are_stored(self) -> None:
        self[0].store_works = True
        while self[0].waiting:
            self[0].use_store_once()


def starts(harness: ServerHarness) -> int:
    return sum(isinstance(event, CallReceived) for event in harness.events)


@pytest.mark.parametrize("version", OLDER)
def test_any_instance_gives_the_response(version: str) -> None:
    fleet = Fleet(version)
    talk = fleet.ask(0, keyed())
    talk.lose_connection()
    call = fleet[0].last_call()
    fleet[0].run_action(call.respond, DONE)
    assert fleet.ask(1, rest()).json["result"] == DONE
    assert fleet.ask(1, keyed()).json["result"] == DONE
    assert starts(fleet[1]) == 0


def test_while_it_runs_the_client_looks_for_its_instance() -> None:
    """Which alone sends it the questions of the call."""
    fleet = Fleet()
    fleet.ask(0, keyed()).lose_connection()
    call = fleet[0].last_call()
    fleet[0].run_action(call.respond, InputRequired({"name": NAME}, None))
    again = fleet.ask(1, rest())
    fleet.wait(0.5)
    assert not again.ended
    fleet.wait(1)
    assert (again.status, again.error["data"]["reason"]) == (503, "runs_elsewhere")
    asked = fleet.ask(0, rest())
    assert [each["method"] for each in asked.messages] == ["elicitation/create"]


def test_a_copy_runs_nothing_while_the_store_is_asked() -> None:
    fleet = Fleet()
    talk = fleet.ask_while_claims_wait(keyed())
    copy = fleet.ask_while_claims_wait(keyed())
    assert talk.aborted
    fleet.claims_are_stored()
    call = fleet[0].last_call()
    fleet[0].run_action(call.respond, DONE)
    assert copy.messages[-1]["result"] == DONE
    assert starts(fleet[0]) == 0


def test_a_call_whose_session_has_ended_meanwhile_is_refused() -> None:
    fleet = Fleet()
    talk = fleet.ask_while_claims_wait(keyed())
    (session,) = fleet[0].server.sessions
    fleet[0].server.end_session(session, "an operator", now=fleet[0].now)
    fleet[0].run_pending()
    fleet.claims_are_stored()
    assert talk.status == 404
    assert starts(fleet[0]) == 0


@pytest.mark.parametrize("reclaim", [True, "store"])
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_copy_is_not_refused_because_the_store_fails(
    *, reclaim: bool | Literal["store"], has_ended: bool
) -> None:
    """The refusal would say that nothing was run."""
    fleet = Fleet(reclaim=reclaim)
    talk = fleet.ask(0, keyed())
    call = fleet[0].last_call()
    if has_ended:
        fleet[0].run_action(call.respond, DONE)
    talk.lose_connection()
    fleet[0].store_works = False
    copy = fleet.ask(0, keyed())
    if not has_ended:
        fleet[0].run_action(call.respond, DONE)
    assert copy.json["result"] == DONE
    assert starts(fleet[0]) == 0
    other = fleet.ask(0, keyed(2, secret="a-secret-of-another"))
    fleet[0].fail_store_for_good(fleet[0].waiting[-1])
    assert other.error["data"]["reason"] == "store_failed"


def test_a_copy_in_a_session_that_has_ended_is_refused() -> None:
    fleet = Fleet()
    talk = fleet.ask(0, keyed())
    fleet[0].run_action(fleet[0].last_call().respond, DONE)
    talk.lose_connection()
    (session,) = fleet[0].server.sessions
    fleet[0].server.end_session(session, "an operator", now=fleet[0].now)
    fleet[0].run_pending()
    assert fleet.ask(0, keyed()).status == 404
