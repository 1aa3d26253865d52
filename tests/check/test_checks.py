"""The checks themselves: how they fail, what they say then, and what their two sides refuse."""

from __future__ import annotations

import threading
import unittest
from collections.abc import Mapping
from typing import Any

import pytest

import sansmcp
from sansmcp_pytest import (
    ClientUnderTest,
    Feature,
    client_checks,
    server_checks,
    stdio_app,
)
from sansmcp_pytest._checks.check import Broken, Check, raises, same, stays_the_same
from sansmcp_pytest._checks.clients import until
from sansmcp_pytest._checks.fake_server import Exchange, FakeServer, in_turn
from sansmcp_pytest._checks.raw_client import Connection, request


class Subject:
    """Does nothing, and says so."""

    lacks: Mapping[Feature, str] = {Feature.STDIO: "made for this test"}

    def connect(self, target: Any, **_: Any) -> Any:
        raise NotImplementedError


def check_of(run: Any) -> Check[ClientUnderTest]:
    return Check("mine", "It has to be done.", frozenset(), run)


@pytest.mark.parametrize("checks", [client_checks(), server_checks()], ids=["client", "server"])
def test_every_check_has_a_name_of_its_own_and_says_what_it_wants(
    checks: tuple[Check[Any], ...],
) -> None:
    assert len({str(check) for check in checks}) == len(checks) > 30
    assert [check for check in checks if not check.obligation.endswith(".")] == []


def test_what_is_left_out_is_said() -> None:
    (check, *_) = [check for check in client_checks() if Feature.STDIO in check.needs]
    with pytest.raises(unittest.SkipTest, match="stdio: made for this test"):
        check(Subject())


def test_a_failure_says_what_was_seen_and_what_is_to_be_done() -> None:
    def run(subject: ClientUnderTest) -> None:
        same([1] * 1000, [2], "the numbers")

    with pytest.raises(
        AssertionError, match=r"the numbers: got \[1(, 1)+.*\.\.\., expected \[2\]"
    ) as caught:
        check_of(run)(Subject())
    assert str(caught.value).endswith("mine: It has to be done.")


def test_what_an_adapter_raises_is_shown() -> None:
    (check, *_) = client_checks()
    with pytest.raises(AssertionError, match=r"it raised NotImplementedError\(\)") as caught:
        check(Subject())
    assert isinstance(caught.value.__cause__, NotImplementedError)


def test_what_hangs_is_given_up_and_shown() -> None:
    over = threading.Event()

    def hang_in_there(subject: ClientUnderTest) -> None:
        over.wait()

    said, patience = "", 0.05
    while "hang_in_there" not in said and patience < 60:  # it may not have begun in time
        with pytest.raises(AssertionError, match=f"did not end within {patience:g} s") as caught:
            check_of(hang_in_there)(Subject(), patience=patience)
        said, patience = str(caught.value), 2 * patience
    over.set()
    assert "hang_in_there" in said


def test_another_exception_or_none_is_wrong() -> None:
    with pytest.raises(Broken, match=r"raised ZeroDivisionError.* instead of OSError"):
        raises(OSError, lambda: 1 / 0, "dividing")
    with pytest.raises(Broken, match=r"dividing: returned 1.0 instead of raising OSError"):
        raises(OSError, lambda: 1 / 1, "dividing")


def test_what_is_left_behind_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp_pytest._checks.check._LAST_STEPS", 0.05)
    over = threading.Event()
    with pytest.raises(Broken, match="threads and descriptors"):
        stays_the_same(lambda: threading.Thread(target=over.wait).start())
    over.set()


def test_what_does_not_happen_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp_pytest._checks.clients.MOMENT", 0.01)

    class Client:
        def work(self, seconds: float) -> None:
            pass

    client: Any = Client()
    with pytest.raises(Broken, match=r"not within 0.01 s: a miracle"):
        until(client, lambda: False, "a miracle")


# The fake server


def test_a_request_that_nobody_wants_fails_the_check() -> None:
    with pytest.raises(Broken, match="there is no script for 'PUT'"), FakeServer() as server:
        _ask(server, "PUT")


def test_a_request_too_many_fails_the_check() -> None:
    once = in_turn(lambda exchange: exchange.close())
    with pytest.raises(Broken, match="one 'GET' too many"), FakeServer({"GET": once}) as server:
        _ask(server, "GET")
        _ask(server, "GET")


def test_connections_that_stay_open_fail_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp_pytest._checks.fake_server.MOMENT", 0.05)
    connections: list[Connection] = []
    with pytest.raises(Broken, match="closed all its connections"), FakeServer() as server:
        connections.append(Connection(server.url))
        connections[0].send(request(server.url, "GET", {}))
        connections[0].response(to="GET")
    assert connections[0].is_closed()
    connections[0].close()


def test_when_a_check_has_failed_the_rest_does_not_matter() -> None:
    connections: list[Connection] = []
    with pytest.raises(Broken, match="mine"), FakeServer({"GET": _hang}) as server:
        connections.append(Connection(server.url))
        connections[0].send(request(server.url, "GET", {}))
        server.wait_for("GET")
        raise Broken("mine")
    connections[0].close()


def test_what_is_taken_can_be_sent() -> None:
    with FakeServer({"GET": _hang}) as server, Connection(server.url) as connection:
        connection.send(request(server.url, "GET", {}))
        assert connection.send_until_held_up(b"x" * 1000, 10_000) >= 10_000


def _hang(exchange: Exchange) -> None:
    exchange.wait_until_gone()


def _ask(server: FakeServer, method: str) -> None:
    with Connection(server.url) as connection:
        connection.send(request(server.url, method, {}))
        assert connection.is_closed()


# The tools


class Blocking:
    """A server whose handlers may block."""

    lacks: Mapping[Feature, str] = {}
    is_async = False

    def sleep(self, call: Any, seconds: float) -> Any:
        return None

    def serve(self, app: sansmcp.App, **_: Any) -> Any:
        raise NotImplementedError

    def stdio_command(self, stdio: Any = True) -> list[str]:
        return []


class Call:
    """What a handler is given, as far as it is looked at."""

    input_responses: Mapping[str, Any] = {}

    def __init__(self, tool: str, answer: Any = None) -> None:
        self.params = {"name": tool}
        self._answer = answer

    def ask(self, method: str, params: Any) -> Any:
        return self._answer


def test_handlers_that_may_block_are_plain_functions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler = stdio_app(Blocking()).handlers["tools/call"]
    assert handler(Call("echo")) == {"echo": {}}
    assert handler(Call("ask", "Ada")) == {"answer": "Ada"}
    assert handler(Call("print")) == {"done": True}
    assert "printed" in capsys.readouterr().out
    with pytest.raises(ValueError, match="hunter2"):
        handler(Call("raise"))


def test_something_to_await_is_wrong_for_them() -> None:
    class Awaitable:
        def __await__(self) -> Any:
            yield

    handler = stdio_app(Blocking()).handlers["tools/call"]
    with pytest.raises(AssertionError, match="returned an awaitable"):
        handler(Call("ask", Awaitable()))
