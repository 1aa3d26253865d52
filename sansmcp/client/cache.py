"""A cache of lists and resources, within the time to live that the server sets.

If the application repeats a request within that time, it gets the cached result, unless the server
has sent a notification of a change. A cache belongs to one client, so a result is only returned to
the client that fetched it, and ``cacheScope`` is not needed.

Source: 2026-07-28 server/utilities/caching; SEP-2549.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, TypeAlias

import attrs

from ..codecs import json
from ..errors import LocalProtocolError
from ..input_required import ROUND_PARAMS
from ..limits import Limits
from ..messages import Notification, Params
from ..meta_keys import CHANGED_LISTS, UPDATED

_CACHEABLE = frozenset(("resources/read", *itertools.chain(*CHANGED_LISTS.values())))
"""The methods whose results are cached. ``server/discover`` is left out, although the specification
allows it: applications call it to check that the server responds.
"""


_FOREVER = 10**15
"""Milliseconds. An integer from a server can be too large for a float."""
_Key: TypeAlias = tuple[str, bytes]
"""Method and parameters."""


@attrs.frozen
class _CacheEntry:
    """A cached result."""

    data: bytes
    """The encoded result, so that each caller gets a copy of its own."""
    uri: Any
    """The URI of the resource; None for a list."""
    expires: float
    size: int
    """The bytes of the result and the parameters."""

    def is_changed_by(self, uri: Any) -> bool:
        """Return whether the result is of the changed resource, or of one that contains it."""
        if not (isinstance(uri, str) and isinstance(self.uri, str)):
            return False
        return uri == self.uri or uri.startswith(self.uri.rstrip("/") + "/")


@attrs.define(eq=False, repr=False)
class Cache:
    """The cached results of one client; the least recently used is evicted first."""

    _limits: Limits
    _entries: OrderedDict[_Key, _CacheEntry] = attrs.field(
        factory=OrderedDict["_Key", _CacheEntry], init=False
    )
    _bytes: int = attrs.field(default=0, init=False)
    generation: int = attrs.field(default=0, init=False)
    """The number of invalidations so far. A result that was requested before the latest one, and
    arrives after it, may be stale.
    """

    def lookup(self, method: str, params: Params, now: float) -> Any:
        """Return the cached result; None if there is none, or it has expired."""
        key = _key(method, params) if self._entries else None
        kept = self._entries.get(key) if key is not None else None
        if key is None or kept is None:
            return None
        if now >= kept.expires:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return json.decode(kept.data, self._limits.max_response_depth)

    def insert(self, method: str, params: Params, result: Any, now: float) -> None:
        """Cache a result for its time to live, if it has one."""
        limits = self._limits
        key = _key(method, params)
        seconds = min(_seconds(result), limits.max_cached_age)
        if key is None or not seconds:
            return
        try:
            data = json.encode(result)
        except LocalProtocolError:  # NaN, which JSON does not have
            return
        kept = _CacheEntry(data, params.get("uri"), now + seconds, len(key[1]) + len(data))
        if kept.size > limits.max_cached_bytes:
            return
        self._drop(key)
        self._entries[key] = kept
        self._bytes += kept.size
        while (
            self._bytes > limits.max_cached_bytes or len(self._entries) > limits.max_cached_results
        ):
            self._drop(next(iter(self._entries)))

    def invalidate(self, notification: Notification) -> None:
        """Discard the results that a notification declares to be changed."""
        if notification.method == UPDATED:
            uri = (notification.params or {}).get("uri")
            self._forget(key for key, kept in self._entries.items() if kept.is_changed_by(uri))
        for method in CHANGED_LISTS.get(notification.method, ()):
            self.discard(method)

    def discard(self, method: str) -> None:
        """Discard all results of a method."""
        self._forget(key for key in self._entries if key[0] == method)

    def clear(self) -> None:
        """Discard all results."""
        self._forget(self._entries)

    def _forget(self, keys: Iterable[_Key]) -> None:
        self.generation += 1
        for key in tuple(keys):
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        kept = self._entries.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size


def _key(method: str, params: Params) -> _Key | None:
    """Return the key of a request; None if its result must not be cached."""
    if method not in _CACHEABLE or any(name in params for name in ROUND_PARAMS):
        return None
    return method, json.encode_sorted({k: v for k, v in params.items() if k != "_meta"})


def _seconds(result: Any) -> float:
    """Return the time to live of a result, in seconds; 0 if it has none or an invalid one."""
    milliseconds = (json.as_object(result) or {}).get("ttlMs")
    if type(milliseconds) is not int or milliseconds <= 0:
        return 0.0
    return min(milliseconds, _FOREVER) / 1000
