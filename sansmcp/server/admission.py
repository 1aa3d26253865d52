"""The bound on how many requests a client may send (the setting ``rate_limit``).

A client is its principal, or its address where there is no authentication. Only requests count:
responses, notifications and cancellations end what runs, so they are always taken.

Each instance counts what comes to it. If instances share a store, a request that passes there waits
until the store has counted it for all of them. If the store does not answer in time,
or fails, the count of the instance decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from ..codecs.jsonrpc import Batch
from ..effects import StoreTake
from ..errors import RemoteProtocolError
from ..messages import Message, Request, RequestId
from ..rates import RateLimit, TokenBuckets
from ..timers import Timer
from . import refusals
from .addresses import client_address, trusted_networks
from .core import ServerCore
from .exchange import ServerExchange

_PATIENCE = 1.0
"""Seconds to wait for the answer of the store."""
_MAX_WAITING = 1000
"""Questions to the store under way."""


_ADDRESS = "address "


@attrs.frozen(eq=False)
class _Waiting:
    """A POST that waits for the answer of the store."""

    exchange: ServerExchange
    request_id: RequestId | None
    handle: Callable[[], None]


class Admission:
    """Admits the requests of clients."""

    def __init__(self, core: ServerCore, limit: RateLimit) -> None:
        self._core = core
        self._buckets = TokenBuckets(limit, core.limits.max_rate_buckets)
        self._asked: dict[StoreTake, _Waiting | None] = {}
        """The questions to the store, oldest first; None if the POST does not wait any more."""

    def admit(
        self, exchange: ServerExchange, message: Message | Batch, handle: Callable[[], None]
    ) -> None:
        """Handle a POST if its client may send its requests now.

        This may be known later. A refusal is then the response of the exchange.

        Args:
            exchange: the exchange of the POST, whose request is complete.
            message: its content. Each request of a batch counts.
            handle: handles the message.

        Raises:
            RemoteProtocolError: the client may not (status 429); or what ``handle`` raises.
        """
        count = _requests_in(message)
        if count:
            core, name = self._core, client_of(self._core, exchange)
            id = message.id if isinstance(message, Request) else None
            self._check(self._buckets.take(name, count, core.now), id)
            if self._store_counts:
                effect = StoreTake(bucket=name, count=count, limit=self._buckets.limit)
                self._asked[effect] = _Waiting(exchange, id, handle)
                core.effects.append(effect)
                core.timers.set(Timer.STORE_TAKE, effect, core.now + _PATIENCE)
                return
        handle()

    @property
    def _store_counts(self) -> bool:
        """True if the store is to be asked: instances share one, and it answers in time."""
        core = self._core
        if not core.options.shared_store or core.store_health.is_down(core.now):
            return False
        is_overdue = bool(self._asked) and next(iter(self._asked.values())) is None
        return not is_overdue and len(self._asked) < _MAX_WAITING

    def on_taken(self, effect: StoreTake, wait: float) -> None:
        """Handle the POST for which the store was asked, or refuse it.

        ``wait``: the seconds until there are enough tokens; 0.0 if they were taken, or if the store
        has failed.
        """
        self._core.timers.stop(Timer.STORE_TAKE, effect)
        self._go_on(self._asked.pop(effect, None), wait)

    def on_overdue(self, effect: StoreTake) -> None:
        """Handle a POST, although the store has not answered."""
        waiting, self._asked[effect] = self._asked[effect], None
        self._go_on(waiting, 0.0)

    def _go_on(self, waiting: _Waiting | None, wait: float) -> None:
        if waiting is None or waiting.exchange.is_done:
            return
        try:
            self._check(wait, waiting.request_id)
            waiting.handle()
        except RemoteProtocolError as error:
            waiting.exchange.refuse(error)

    def shut_down(self) -> None:
        """Refuse what waits."""
        for effect, waiting in self._asked.items():
            self._core.timers.stop(Timer.STORE_TAKE, effect)
            if waiting is not None and not waiting.exchange.is_done:
                waiting.exchange.refuse(refusals.SHUTTING_DOWN(waiting.request_id))
        self._asked.clear()

    def _check(self, wait: float, request_id: RequestId | None) -> None:
        if wait > 0:
            raise refusals.rate_limited(request_id, self._buckets.limit, math.ceil(wait))


def _requests_in(message: Message | Batch) -> int:
    if isinstance(message, Batch):
        return sum(isinstance(item, Request) for item in message.items)
    return int(isinstance(message, Request))


def client_of(core: ServerCore, exchange: ServerExchange) -> str:
    """Return a name for the client of a request: its principal, or its address if it has none."""
    head = exchange.head
    assert head is not None
    if head.principal:
        return f"principal {head.principal}"
    connection = getattr(exchange.driver, "connection", None)
    peer = None if connection is None else connection.peer
    address = None if peer is None else peer[0]
    trusted = trusted_networks(tuple(core.options.trusted_proxies))
    return f"{_ADDRESS}{client_address(head, address, trusted)}"


def known_client_of(core: ServerCore, exchange: ServerExchange) -> str:
    """Return the name of the client of a request; empty if neither principal nor address is known.

    All clients of a Unix socket without authentication are of the latter kind.
    """
    name = client_of(core, exchange)
    return "" if name == _ADDRESS else name
