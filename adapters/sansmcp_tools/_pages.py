"""Pages of lists: a bounded number of entries each, and a cursor to the next.

Each entry has a number, which rises in the order of registration. A cursor is the number of the
last entry of a page, so entries that come and go between two pages make none appear twice.

Source: every revision, server/utilities/pagination.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from itertools import accumulate, islice
from typing import Any, Protocol, TypeVar

from sansmcp import JsonRpcError
from sansmcp.codecs.jsonrpc import INVALID_PARAMS

_PAGE_BYTES = 512 * 1024


class Numbered(Protocol):
    """An entry of a list."""

    @property
    def number(self) -> int:
        """The number of the entry, which is higher than those of earlier ones."""
        ...


_N = TypeVar("_N", bound=Numbered)


def page_of(
    entries: Iterable[_N], cursor: Any, size: int, weight: Callable[[_N], int] | None = None
) -> tuple[list[_N], str | None]:
    """Return the entries of a page, and the cursor of the next one, or None.

    Args:
        entries: all entries, in the order of their numbers.
        cursor: what a client sent, or None for the first page.
        size: the most entries of a page.
        weight: how many of the 512 KiB of a page an entry takes; None if entries are small.

    Raises:
        JsonRpcError: the cursor is not one of these.
    """
    after = -1 if cursor is None else _number_of(cursor)
    found = list(islice((entry for entry in entries if entry.number > after), size + 1))
    if weight is not None:
        taken = accumulate(map(weight, found))
        size = min(size, max(1, sum(total <= _PAGE_BYTES for total in taken)))
    if len(found) <= size:
        return found, None
    del found[size:]
    return found, base64.urlsafe_b64encode(b"after %d" % found[-1].number).decode()


def _number_of(cursor: Any) -> int:
    try:
        word, _, digits = base64.urlsafe_b64decode(cursor.encode()).partition(b" ")
        if word == b"after" and digits.isdigit() and len(digits) < 20:
            return int(digits)
    except (AttributeError, ValueError, binascii.Error):
        pass
    raise JsonRpcError(INVALID_PARAMS, "This cursor is not one of this list; start without one")
