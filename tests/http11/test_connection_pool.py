"""Which connections of a client are used again, and which are closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sansmcp import Client, ClientConnection, ConnectionPool, Limits, LocalProtocolError
from sansmcp.addresses import AddressClass, AddressPolicy
from sansmcp.codecs.headers import Headers
from sansmcp.effects import OpenExchange
from sansmcp.http import RequestHead

from . import harness
from .test_client_connection import response

GIVEN_UP = 4.0


class Stream:
    """What a host has below a connection."""

    is_readable = False
    is_closed = False

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class PoolHarness:
    """A pool, and exchanges that go as the test says."""

    def __init__(self) -> None:
        limits = Limits(idle_connection_timeout=GIVEN_UP, max_idle_connections=2)
        client = Client(
            "http://localhost/mcp", jitter=lambda: 0.5, limits=limits, http11=harness.HTTP11
        )
        self.pool = ConnectionPool(client)
        self.now = 0.0
        self._count = 0

    def begin(
        self, policy: AddressPolicy | None = None, headers: Headers = ()
    ) -> tuple[int, ClientConnection]:
        self._count += 1
        head = RequestHead(method=b"POST", target=b"/mcp", headers=headers)
        url = "http://localhost/mcp"
        effect = OpenExchange(
            exchange=self._count, url=url, head=head, body=b"{}", address_policy=policy
        )
        connection, request = self.pool.begin(effect, now=self.now)
        assert request.startswith(b"POST /mcp HTTP/1.1\r\n")
        assert self.pool.in_use[self._count] is connection
        if connection.driver is None:
            connection.driver = Stream()
        return self._count, connection

    def finish(self, exchange: int, connection: ClientConnection) -> None:
        connection.receive_data(response(), now=self.now)
        self.release(exchange)

    def release(self, exchange: int) -> None:
        self.pool.release(exchange, now=self.now)
        assert exchange not in self.pool.in_use


@pytest.fixture
def idle() -> tuple[PoolHarness, ClientConnection]:
    """A pool with one idle connection."""
    harness = PoolHarness()
    exchange, connection = harness.begin()
    harness.finish(exchange, connection)
    return harness, connection


def test_an_idle_connection_is_used_again(idle: tuple[PoolHarness, ClientConnection]) -> None:
    harness, connection = idle
    _, again = harness.begin()
    _, another = harness.begin()
    assert again is connection
    assert another is not connection
    assert not connection.driver.is_closed


def test_a_request_that_closes_its_connection_has_a_new_one(
    idle: tuple[PoolHarness, ClientConnection],
) -> None:
    harness, connection = idle
    exchange, another = harness.begin(headers=((b"connection", b"close"),))
    assert another is not connection
    harness.finish(exchange, another)
    assert another.driver.is_closed
    assert harness.begin()[1] is connection


def _age(harness: PoolHarness, connection: ClientConnection) -> None:
    harness.now += GIVEN_UP


def _say_something(harness: PoolHarness, connection: ClientConnection) -> None:
    connection.driver.is_readable = True


@pytest.mark.parametrize("spoil", [_age, _say_something])
def test_a_connection_that_may_be_closed_is_not_used_again(
    idle: tuple[PoolHarness, ClientConnection],
    spoil: Callable[[PoolHarness, ClientConnection], None],
) -> None:
    harness, connection = idle
    spoil(harness, connection)
    _, another = harness.begin()
    assert another is not connection
    assert connection.driver.is_closed


def test_an_exchange_that_is_broken_off_closes_its_connection() -> None:
    harness = PoolHarness()
    exchange, connection = harness.begin()
    harness.release(exchange)
    harness.release(exchange)
    assert connection.driver.is_closed


def test_a_connection_that_was_never_opened_is_forgotten() -> None:
    harness = PoolHarness()
    exchange, connection = harness.begin()
    connection.driver = None
    harness.release(exchange)
    _, another = harness.begin()
    assert another is not connection


def test_one_too_many_pushes_out_what_was_idle_for_longest() -> None:
    harness = PoolHarness()
    begun = [harness.begin() for _ in range(3)]
    for exchange, connection in begun:
        harness.finish(exchange, connection)
    assert [connection.driver.is_closed for _, connection in begun] == [True, False, False]
    assert harness.begin()[1] is begun[2][1]
    assert harness.begin()[1] is begun[1][1]


def test_what_was_idle_for_too_long_is_closed_when_another_one_becomes_idle() -> None:
    harness = PoolHarness()
    begun = [harness.begin() for _ in range(2)]
    harness.finish(*begun[0])
    harness.now += GIVEN_UP
    harness.finish(*begun[1])
    assert [connection.driver.is_closed for _, connection in begun] == [True, False]


def test_a_request_that_cannot_be_made_leaves_nothing_behind() -> None:
    pool = PoolHarness().pool
    head = RequestHead(method=b"POST", target=b"/mcp", headers=((b"x", b"a\nb"),))
    effect = OpenExchange(exchange=1, url="http://localhost/mcp", head=head, body=b"")
    with pytest.raises(LocalProtocolError, match="contains CR, LF or NUL"):
        pool.begin(effect, now=0)
    assert pool.in_use == {}


def test_closing_closes_all(idle: tuple[PoolHarness, ClientConnection]) -> None:
    harness, first = idle
    used = [harness.begin()[1] for _ in range(3)]
    exchange, opening = harness.begin()
    opening.driver = None
    harness.finish(*harness.begin())
    harness.pool.close()
    assert all(connection.driver.is_closed for connection in used)
    harness.release(exchange)
    assert harness.begin()[1] not in (first, *used)


def test_requests_of_the_authorization_share_no_connection(
    idle: tuple[PoolHarness, ClientConnection],
) -> None:
    harness, connection = idle
    exchange, own = harness.begin(AddressPolicy(AddressClass.PUBLIC))
    assert own is not connection
    harness.finish(exchange, own)
    assert own.driver.is_closed
    _, again = harness.begin()
    assert again is connection
