"""Every choice of a simulated world, from one seed.

A choice has a name, and depends on the seed and on that name only. So a world in which one accident
is left out makes all other choices as before, which is what makes shrinking possible.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs

_T = TypeVar("_T")


@attrs.define
class Fates:
    """The choices of the world of a seed, but for those accidents that are left out."""

    seed: int
    without: frozenset[str] = frozenset()
    """Names of accidents and features that are left out."""
    struck: list[str] = attrs.field(factory=list[str], init=False)
    """Those that the world has, in the order in which they were drawn."""

    def number(self, name: str) -> float:
        """From 0 to below 1."""
        digest = hashlib.blake2b(b"%d/%b" % (self.seed, name.encode()), digest_size=6).digest()
        return int.from_bytes(digest, "big") / 2**48

    def pick(self, name: str, options: Sequence[_T]) -> _T:
        """One of them."""
        return options[int(self.number(name) * len(options))]

    def between(self, name: str, low: float, high: float) -> float:
        """A number of that range."""
        return low + (high - low) * self.number(name)

    def strikes(self, name: str, rate: float) -> bool:
        """Whether something happens that could be left out."""
        if rate <= 0.0 or self.number(name) >= rate or name in self.without:
            return False
        self.struck.append(name)
        return True

    def stream(self, name: str) -> Callable[[], float]:
        """A source of numbers from 0 to below 1, as ``random.random`` is one."""
        count = iter(range(1_000_000_000))
        return lambda: self.number(f"{name} {next(count)}")
