"""The bound on how many requests a client may send (the setting ``rate_limit``).

A client is its principal, or its address where there is no authentication. Only requests count:
responses, notifications and cancellations end what runs, so they are always taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..codecs.jsonrpc import Batch
from ..messages import Message, Request
from . import refusals
from .addresses import client_address
from .core import ServerCore
from .exchange import ServerExchange


def admit(
    core: ServerCore, exchange: ServerExchange, message: Message | Batch, then: Callable[[], None]
) -> None:
    """Call ``then`` if the client of a POST may send its requests now.

    Args:
        core: the server.
        exchange: the exchange of the POST, whose request is complete.
        message: its content. Each request of a batch counts.
        then: handles the message.

    Raises:
        RemoteProtocolError: it may not (status 429); or what ``then`` raises.
    """
    count = 0 if core.buckets is None else _requests_in(message)
    if count:
        assert core.buckets is not None, "else nothing is counted"
        wait = core.buckets.take(_client_of(core, exchange), count, core.now)
        if wait > 0:
            id = message.id if isinstance(message, Request) else None
            raise refusals.rate_limited(id, core.buckets.limit, math.ceil(wait))
    then()


def _requests_in(message: Message | Batch) -> int:
    if isinstance(message, Batch):
        return sum(isinstance(item, Request) for item in message.items)
    return int(isinstance(message, Request))


def _client_of(core: ServerCore, exchange: ServerExchange) -> str:
    """Return the name of the bucket of a request."""
    head = exchange.head
    assert head is not None
    if head.principal:
        return f"principal {head.principal}"
    connection = getattr(exchange.driver, "connection", None)
    peer = None if connection is None else connection.peer
    address = None if peer is None else peer[0]
    return f"address {client_address(head, address, core.trusted_proxies)}"
