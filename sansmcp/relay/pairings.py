"""The calls of clients that a relay has passed on, each paired with its upstream call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count, islice

import attrs

from ..messages import Params, Request
from ..server_call import Peer, ServerCall, Session
from ..shares import Shares

_MOST_POSSIBLE = 64
"""Calls to which a message may belong that names none: it costs as much however many run."""


@attrs.define(eq=False)
class Pairing:
    """A call of a client, and the upstream call that was made for it."""

    number: int
    """The name of the pairing in the signed state of a client."""
    call: ServerCall
    """At 2026-07-28 each round of input is a call of its own: the latest."""
    handle: int
    client: Peer | None
    """What stands for its client: see :func:`client_of`."""
    share: Hashable
    """What it counts for in the bound of running calls."""
    params: Params | None
    """Those of the upstream call."""
    is_repeated: bool
    """True if this is the second upstream call, because the first one was not run."""
    progress: float | None = attrs.field(default=None, init=False)
    """The last progress that was reported."""
    questions: dict[int | str, Request] = attrs.field(factory=lambda: {}, init=False)
    """The open server requests of the upstream server, by what the client knows them by: what
    ``ask()`` returned, or at 2026-07-28 the name of the input request.
    """


@attrs.define(eq=False)
class Pairings:
    """Finds pairings, and counts them for each client."""

    _by_call: dict[ServerCall, Pairing] = attrs.field(factory=dict[ServerCall, Pairing], init=False)
    _by_handle: dict[int, Pairing] = attrs.field(factory=dict[int, Pairing], init=False)
    """The pairings whose upstream call is running."""
    _held: Shares[Hashable] = attrs.field(factory=Shares[Hashable], init=False)
    """How many of them each client has."""
    _working: Shares[Peer | None] = attrs.field(factory=Shares["Peer | None"], init=False)
    """The same, but at 2026-07-28 each call counts as a client."""
    _full: set[ServerCall] = attrs.field(factory=set[ServerCall], init=False)
    """The running calls that were above high water."""
    _left: dict[Peer | None, float] = attrs.field(factory=dict["Peer | None", float], init=False)
    """The clients of the two upstream calls that were given up last, and until when the upstream
    server may still be working on them.
    """
    _numbers: count[int] = attrs.field(factory=lambda: count(1), init=False)

    @property
    def running(self) -> int:
        """How many calls the upstream server is working on for clients."""
        return len(self._by_handle)

    @property
    def only_behind(self) -> ServerCall | None:
        """A call above high water, if only one client has running calls; else None."""
        if self._working.owners > 1:
            return None
        return next((call for call in self._full if call.is_above_high_water), None)

    def share_of(self, call: ServerCall) -> int:
        """Return how many running calls the client of a call has."""
        return self._held.of(_share_of(call))

    def pair(
        self, call: ServerCall, handle: int, params: Params | None, *, is_repeated: bool
    ) -> None:
        """Record the upstream call that was made for the call of a client."""
        client, share = client_of(call), _share_of(call)
        pairing = Pairing(
            next(self._numbers), call, handle, client, share, params, is_repeated=is_repeated
        )
        self._by_call[call] = self._by_handle[handle] = pairing
        self._held.change(share, 1)
        self._working.change(client, 1)

    def of_call(self, call: ServerCall) -> Pairing | None:
        """Return the pairing of a call of a client; None if the call has ended."""
        return self._by_call.get(call)

    def of_handle(self, handle: int) -> Pairing | None:
        """Return the pairing of a running upstream call; None if it is of no client."""
        return self._by_handle.get(handle)

    def resume(self, pairing: Pairing, call: ServerCall) -> None:
        """Continue a pairing with the next call of its client."""
        pairing.call = call
        self._by_call[call] = pairing

    def leave(self, call: ServerCall) -> Pairing | None:
        """Forget the call of a client, and return its pairing if there is one."""
        self._full.discard(call)
        return self._by_call.pop(call, None)

    def stop(self, pairing: Pairing) -> None:
        """Record that the upstream call has ended; a second time has no effect."""
        if self._by_handle.get(pairing.handle) is pairing:  # another client has the same handles
            del self._by_handle[pairing.handle]
            self._held.change(pairing.share, -1)
            self._working.change(pairing.client, -1)

    def note_full(self, call: ServerCall) -> None:
        """Record whether the client of a call is behind."""
        if call.is_above_high_water:
            self._full.add(call)

    def note_left(self, pairing: Pairing, until: float) -> None:
        """Record that the upstream server may still be working on a call that was given up."""
        client = pairing.client
        self._left.pop(client, None)
        if len(self._left) > 1:
            del self._left[next(iter(self._left))]
        self._left[client] = until

    def forget_left(self) -> None:
        """Record that a new upstream session works on no call of an earlier one."""
        self._left.clear()

    def of_only_client(self, now: float) -> Sequence[Pairing]:
        """Return the running calls of the only client that can have caused what names no call.

        Those with a connection come first, then the later ones: a client that has lost a response
        without an event id makes its call again, and never reads the stream of the first one.

        Returns:
            The calls, at most the 64 latest; none if the upstream server may also be working for
            another client, whose call it was told to stop.
        """
        if self._working.owners > 1:
            return ()
        latest = list(islice(reversed(self._by_handle.values()), _MOST_POSSIBLE))
        clients = {pairing.client for pairing in latest}
        clients.update(client for client, until in self._left.items() if until > now)
        if len(clients) != 1:
            return ()
        return sorted(latest, key=lambda pairing: not pairing.call.is_connected)


def client_of(call: ServerCall) -> Peer | None:
    """Return what stands for the client of a call: its session; None on stdio, where it is alone.

    At 2026-07-28 nothing says which calls over HTTP are of one client, so each counts as one.
    """
    return call.peer if call.headers or isinstance(call.peer, Session) else None


def _share_of(call: ServerCall) -> Hashable:
    """Return what stands for a client in the bound of running calls."""
    return call.client or client_of(call)
