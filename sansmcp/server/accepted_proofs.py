"""Accept each DPoP proof once, by its name (``jti``), with a fair share of memory for each user.

A name is kept until no clock accepts its proof any more. If all ``Limits.max_dpop_proofs`` are
taken, the principal that has most of them loses its oldest one. From then on none of its proofs is
accepted that may be as old as the lost one, so none can be used again. A principal that uses little
keeps all of its names, however many the others make. One whose share is used up within a minute has
to wait.

Source: RFC 9449, 11.1.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from hashlib import sha256
from itertools import islice

import attrs

from ..authentication import DpopProof
from ..shares import Shares
from . import refusals

_SLACK = 60.0
"""Seconds for which a name is kept in addition: a request may wait for a thread, and for the loop,
after its proof was compared with the clock.
"""


@attrs.define(eq=False, repr=False)
class _Name:
    """The name of a proof that was accepted."""

    hash: bytes
    principal: str
    made: float
    """When the proof was made, on the machine's clock."""
    kept_until: float
    next: _Name | None = attrs.field(default=None, init=False)
    """The one that the principal used next."""


@attrs.define(eq=False, repr=False)
class _Owner:
    """The names of a principal, of which there is at least one."""

    oldest: _Name
    newest: _Name
    accepts_after: float = attrs.field(default=-math.inf, init=False)
    """Proofs that were made before may have lost their names, and are refused.

    It need not outlive the names: they were accepted later than those that were lost.
    """


@attrs.define(eq=False, repr=False)
class AcceptedProofs:
    """The names of the proofs that one server has accepted.

    Attributes:
        max_names: how many are kept.
        max_age: seconds by which the time of a proof and the clock may differ.
    """

    max_names: int
    max_age: float
    _names: OrderedDict[bytes, _Name] = attrs.field(factory=OrderedDict[bytes, _Name], init=False)
    """By a hash of key and name, oldest first."""
    _owners: dict[str, _Owner] = attrs.field(factory=dict[str, _Owner], init=False)
    _shares: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """How many names each principal has."""

    def __len__(self) -> int:
        return len(self._names)

    @staticmethod
    def longest_age(kept: float) -> float:
        """Return the ``max_age`` for a store that keeps names for ``kept`` seconds."""
        return max(0.0, (kept - _SLACK) / 2)

    def take(self, principal: str, proof: DpopProof, now: float) -> str | None:
        """Keep the name of a proof. Returns a hash of it; None if it was used before.

        Raises:
            RemoteProtocolError: the principal has made too many proofs.
        """
        for name in tuple(islice(self._names.values(), 2)):  # bounds the work of one request
            if name.kept_until <= now:
                self._forget_oldest(name.principal)
        digest = sha256(f"{proof.thumbprint} {proof.id}".encode()).digest()[:16]
        if digest in self._names:
            return None
        if len(self._names) >= self.max_names:
            self._make_room(now)
        made, owner = now - proof.age, self._owners.get(principal)
        if owner is not None and made <= owner.accepts_after:
            raise refusals.too_many_proofs(math.ceil(owner.accepts_after - made) or 1)
        name = _Name(digest, principal, made, now + 2 * self.max_age + _SLACK)
        if owner is None:
            self._owners[principal] = _Owner(name, name)
        else:
            owner.newest.next = owner.newest = name
        self._names[digest] = name
        self._shares.change(principal, 1)
        return digest.hex()

    def _make_room(self, now: float) -> None:
        """Forget a name of a principal that has most of them, to within a factor of two.

        Raises RemoteProtocolError if all names are of different principals.
        """
        largest = self._shares.largest()
        if self._shares.of(largest) == 1:
            oldest = next(iter(self._names.values()))
            raise refusals.too_many_proofs(math.ceil(oldest.kept_until - now))
        owner = self._owners[largest]
        owner.accepts_after = max(owner.accepts_after, owner.oldest.made + _SLACK)
        self._forget_oldest(largest)

    def _forget_oldest(self, principal: str) -> None:
        owner = self._owners[principal]
        del self._names[owner.oldest.hash]
        self._shares.change(principal, -1)
        if owner.oldest.next is None:
            del self._owners[principal]
        else:
            owner.oldest = owner.oldest.next
