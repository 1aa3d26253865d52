"""Find the owner of the largest share of something that has one bound for all owners.

If the bound is reached, the owner that uses most must give way first. Then an owner that uses
little keeps what it has, however much the others use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import attrs

Owner = TypeVar("Owner", bound=Hashable)


@attrs.define(eq=False)
class Shares(Generic[Owner]):
    """Amounts by owner. The time of each method does not depend on the number of owners.

    Owners are grouped by the number of bits of their amounts, which costs next to nothing. So
    :meth:`largest` is exact to within a factor of two, and within a group it returns the owner that
    came into the group first.
    """

    total: int = attrs.field(default=0, init=False)
    _amounts: dict[Owner, int] = attrs.field(factory=dict[Owner, int], init=False)
    _classes: dict[int, OrderedDict[Owner, None]] = attrs.field(
        factory=dict[int, "OrderedDict[Owner, None]"], init=False
    )
    """The owners by the number of bits of their amounts; also those numbers that had owners. An
    OrderedDict finds its first key at once; a dict has to skip the keys that were deleted before
    it.
    """

    @property
    def owners(self) -> int:
        """The number of owners that have something."""
        return len(self._amounts)

    def of(self, owner: Owner) -> int:
        """Return the amount of an owner."""
        return self._amounts.get(owner, 0)

    def change(self, owner: Owner, by: int) -> None:
        """Add to the amount of an owner, or take from it."""
        before = self._amounts.get(owner, 0)
        after = before + by
        self.total += by
        if after:
            self._amounts[owner] = after
        else:
            self._amounts.pop(owner, None)
        bits, bits_after = before.bit_length(), after.bit_length()
        if bits == bits_after:
            return
        if before:
            del self._classes[bits][owner]
        if after:
            if bits_after not in self._classes:
                self._classes[bits_after] = OrderedDict()
            self._classes[bits_after][owner] = None

    def largest(self) -> Owner:
        """Return an owner of which no other has twice the amount. There must be one."""
        return next(iter(self._classes[max(bits for bits in self._classes if self._classes[bits])]))
