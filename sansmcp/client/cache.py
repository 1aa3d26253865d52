"""Results that a client keeps for as long as the server has said that they hold.

Lists and resources come with a time to live. An application that asks for one again within that
time gets what is kept, unless the server has told that it has changed. A cache belongs to one
client, so whoever may have a result is whoever has fetched it: ``cacheScope`` is not needed.

Source: 2026-07-28 server/utilities/caching; SEP-2549.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from ..codecs import json
from ..input_required import ROUND_PARAMS
from ..limits import Limits
from ..messages import Notification, Params

_CHANGES: Mapping[str, tuple[str, ...]] = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
"""The lists that a notification is about."""
_UPDATED = "notifications/resources/updated"
_CACHEABLE = frozenset(("resources/read", *itertools.chain(*_CHANGES.values())))
"""``server/discover`` may be kept, too, but whoever asks that wants to know whether it answers."""


_FOREVER = 10**15
"""Milliseconds; the numbers of a server may be larger than any float."""
_Key: TypeAlias = tuple[str, bytes]
"""Method and parameters."""


@attrs.frozen
class _CacheEntry:
    """A result that is kept."""

    data: bytes
    """Encoded, so that nobody who gets it can change it for the others."""
    uri: Any
    """Of the resource, if it is one."""
    expires: float
    size: int
    """Bytes, with those of the key."""

    def is_changed_by(self, uri: Any) -> bool:
        """Whether it is of the resource that has changed, or of one around it."""
        if not (isinstance(uri, str) and isinstance(self.uri, str)):
            return False
        return uri == self.uri or uri.startswith(self.uri.rstrip("/") + "/")


@attrs.define(eq=False, repr=False)
class Cache:
    """The results that are kept; those that were used last are kept longest."""

    _limits: Limits
    _is_on: bool
    _entries: OrderedDict[_Key, _CacheEntry] = attrs.field(
        factory=OrderedDict["_Key", _CacheEntry], init=False
    )
    _bytes: int = attrs.field(default=0, init=False)
    generation: int = attrs.field(default=0, init=False)
    """How often something has changed, perhaps. A result that was asked for before a change, and
    comes after it, may be of the time before.
    """

    def lookup(self, method: str, params: Params, now: float) -> Any:
        """The result that is kept; None if there is none that still holds."""
        key = _key(method, params) if self._entries else None
        kept = self._entries.get(key) if key is not None else None
        if key is None or kept is None:
            return None
        if now >= kept.expires:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return json.decode(kept.data, self._limits.max_json_depth)

    def insert(self, method: str, params: Params, result: Any, now: float) -> None:
        """Keep a result for as long as it says."""
        limits = self._limits
        key = _key(method, params) if self._is_on else None
        seconds = min(_seconds(result), limits.max_cached_age)
        if key is None or not seconds:
            return
        data = json.encode(result)
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
        """The server tells something; perhaps that what is kept has changed."""
        if notification.method == _UPDATED:
            uri = (notification.params or {}).get("uri")
            self._forget(key for key, kept in self._entries.items() if kept.is_changed_by(uri))
        for method in _CHANGES.get(notification.method, ()):
            self.discard(method)

    def discard(self, method: str) -> None:
        """Nothing that this method has given holds any more."""
        self._forget(key for key in self._entries if key[0] == method)

    def clear(self) -> None:
        """Nothing holds any more."""
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
    """What tells requests apart; None for one whose result is not to be kept."""
    if method not in _CACHEABLE or any(name in params for name in ROUND_PARAMS):
        return None
    return method, json.encode_sorted({k: v for k, v in params.items() if k != "_meta"})


def _seconds(result: Any) -> float:
    """How long a result holds; what is no such number means not at all."""
    milliseconds = (json.as_object(result) or {}).get("ttlMs")
    if type(milliseconds) is not int or milliseconds <= 0:
        return 0.0
    return min(milliseconds, _FOREVER) / 1000
