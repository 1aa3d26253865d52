"""Authorize the exchanges of a client: hold them until they may be sent, and with which headers.

An exchange is held until it is admitted, while a flow runs, and while its DPoP proof is signed. The
client sends it when the flow has a token. Tokens are added here and nowhere else, and only to
requests to the origin of the MCP server.

Source: 2025-03-26 to 2026-07-28, basic/authorization: Access Token Usage.
"""

from __future__ import annotations

from collections import deque

import attrs

from ..auth.flow import Flow
from ..auth.urls import origin_of
from ..codecs.headers import Headers
from ..effects import SignJwt
from .exchange import Exchange


@attrs.frozen
class SendNow:
    """Send the request with these further headers."""

    headers: Headers


@attrs.frozen
class Hold:
    """Hold the exchange until the flow ends."""


@attrs.frozen
class SignFirst:
    """Hold the exchange until ``effect`` is completed."""

    effect: SignJwt


Admission = SendNow | Hold | SignFirst


@attrs.define(eq=False, repr=False)
class Authorizing:
    """The flow of a client, and the exchanges that wait for it."""

    flow: Flow
    exchange: int = attrs.field(default=0, init=False)
    """The number of the flow's own exchange; 0 if there is none."""
    arrived: deque[int] = attrs.field(factory=deque[int], init=False)
    """The exchanges that were opened and not yet admitted, oldest first."""
    held: dict[int, None] = attrs.field(factory=dict[int, None], init=False)
    """The exchanges that wait for the flow, in the order in which to send them."""
    _signing: dict[SignJwt, int] = attrs.field(factory=dict[SignJwt, int], init=False)
    """The exchanges whose proofs are being signed."""

    def admit(self, number: int, exchange: Exchange, now: float) -> Admission:
        """Return how to send the request of an exchange."""
        url = str(exchange.request.url)
        if origin_of(url) != origin_of(self.flow.endpoint):
            return SendNow(())
        if not self.flow.prepare(now):
            self.held[number] = None
            return Hold()
        proof = self.flow.proof(exchange.request.method, url)
        if proof is not None:
            self._signing[proof] = number
            return SignFirst(proof)
        return SendNow(self.flow.headers(None))

    def signed(self, effect: SignJwt) -> int | None:
        """Return the exchange for which a proof was signed; None if it belongs to the flow."""
        return self._signing.pop(effect, None)

    def release(self) -> tuple[int, ...]:
        """Return the exchanges that waited for the flow; they are no longer held."""
        held = tuple(self.held)
        self.held.clear()
        return held
