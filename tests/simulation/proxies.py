"""A proxy before the servers of a world that answers by itself, or delivers a request twice.

What may happen to a request is drawn when it is sent: the proxy refuses it, or passes it on and
loses what comes back, or waits too long for it; in place of the server's response comes one of the
proxy's own, with a status of 502 to 504 or an HTML page with status 200.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from sansmcp.effects import OpenExchange

if TYPE_CHECKING:
    from .network import Wire

_OPENS = re.compile(rb'"method":"(initialize|server/discover|notifications/initialized)"')
_CALL = re.compile(rb'"arguments":{"call":"([^"]+)"}')
_PAGE = b"<!doctype html><title>Sorry</title><p>Something is wrong; come back later.</p>"
_REASONS = {200: b"OK", 502: b"Bad Gateway", 503: b"Service Unavailable", 504: b"Gateway Timeout"}
_WAYS = ("refuses", "refuses", "loses the response", "waits too long", "shows a page")


@attrs.define(eq=False)
class Proxy:
    """What a proxy does with the requests of one connection."""

    wire: Wire
    _replaces: Callable[[], None] | None = attrs.field(default=None, init=False)
    """What it does when the response of the server comes."""
    _has_responded: bool = attrs.field(default=False, init=False)
    """Whether the server has sent something for the latest request."""

    def sends(self, effect: OpenExchange, data: bytes, name: str) -> None:
        """Take a request; what the proxy does not answer by itself goes to the server."""
        wire, world = self.wire, self.wire.world
        self._replaces, self._has_responded = None, False
        assert wire.owner is not None
        is_opening = not wire.owner.version or _OPENS.search(effect.body)
        if is_opening or "bad gateway" not in world.features or not world.strikes(name, 0.2):
            wire.send(data)
            return
        way = world.fates.pick(f"{name} way", _WAYS)
        status = world.fates.pick(f"{name} status", (502, 503, 504))
        world.tell(f"the proxy of {wire.name} {way}")
        world.reach(f"proxy {way}")
        wire.blame("page" if way == "shows a page" else "gateway")
        match way:
            case "refuses":
                self._respond(status)
            case "shows a page":
                self._respond(200)
            case "loses the response":
                self._replaces = lambda: self._respond(502)
                wire.send(data)
            case _:
                wire.send(data)
                patience = world.fates.pick(f"{name} waits", (0.5, 3.0))
                world.clock.call_later(patience, self._give_up)

    def takes_response(self) -> bool:
        """Something of a response has come; True if the proxy takes it and answers itself."""
        self._has_responded = True
        replaces, self._replaces = self._replaces, None
        if replaces is None:
            return False
        replaces()
        return True

    def _give_up(self) -> None:
        if not self._has_responded and not self.wire.swallows:
            self._respond(504)

    def _respond(self, status: int) -> None:
        """Answer in place of the server, and close both connections."""
        lines = [
            b"HTTP/1.1 %d %b" % (status, _REASONS[status]),
            b"content-type: text/html",
            b"content-length: %d" % len(_PAGE),
            b"connection: close",
        ]
        if status == 503:
            lines.append(b"retry-after: 1")
        self.wire.answer(b"\r\n".join(lines) + b"\r\n\r\n" + _PAGE)


def call_in(effect: OpenExchange) -> str:
    """Return the name of the call that a request makes; empty if it makes none."""
    found = _CALL.search(effect.body)
    is_call = found is not None and b'"method":"tools/call"' in effect.body
    return found[1].decode() if is_call and found is not None else ""
