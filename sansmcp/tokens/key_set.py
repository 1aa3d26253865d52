"""The keys of an authorization server, and when to load them again.

The keys change: a token may name one that is not known yet. Anybody can send such tokens, so the
keys are loaded at most once in ``_INTERVAL`` seconds, by one caller for all.

Source: RFC 7517 section 5; RFC 8414 section 2, jwks_uri.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from ..codecs import json
from .claims import TokenRejected, Undecided
from .jwt import JwtHeader, find_key

_AGE = 600.0
"""Seconds after which the keys are loaded again."""

_LONGEST_AGE = 3600.0
"""Seconds for which old keys serve while loading fails: a withdrawn key counts no longer."""

_INTERVAL = 30.0
"""Seconds between two loads, unless there are no keys."""

_FIRST_INTERVAL = 5.0
"""The same while there are no keys."""


@attrs.define(eq=False, repr=False)
class KeySet:
    """The keys, and the times at which they were loaded. Times are in seconds since 1970.

    ``find()`` a key. If ``begin_load()`` returns True, load the keys and report it with
    ``loaded()`` or ``load_failed()``.
    """

    is_loading: bool = attrs.field(default=False, init=False)
    """True from ``begin_load()`` to the report of its outcome."""
    _keys: tuple[Mapping[str, Any], ...] = attrs.field(default=(), init=False)
    _loaded_at: float = attrs.field(default=-math.inf, init=False)
    _tried_at: float = attrs.field(default=-math.inf, init=False)
    _failure: str | None = attrs.field(default=None, init=False)
    """Why the last load failed; None if it did not."""

    def is_empty(self, now: float) -> bool:
        """True if there are no keys that are recent enough."""
        return now >= self._loaded_at + _LONGEST_AGE

    def find(self, header: JwtHeader, now: float) -> Mapping[str, Any] | None:
        """Return the key of a token; None if it is unknown."""
        return None if self.is_empty(now) else find_key(self._keys, header)

    def begin_load(self, now: float, *, is_unknown: bool) -> bool:
        """Return True if the caller is to load the keys now.

        ``is_unknown``: a key was not found.
        """
        interval = _FIRST_INTERVAL if self.is_empty(now) else _INTERVAL
        is_due = is_unknown or now >= self._loaded_at + _AGE
        if not is_due or self.is_loading or now < self._tried_at + interval:
            return False
        self._tried_at, self.is_loading = now, True
        return True

    def loaded(self, document: Mapping[str, Any], now: float) -> None:
        """Report the document with the keys."""
        self.is_loading = False
        keys = document.get("keys")
        if not json.is_array(keys):
            self._failure = "the document has no keys"
            return
        self._keys = tuple(key for key in keys if json.is_object(key))
        self._loaded_at, self._failure = now, None

    def load_failed(self, reason: str) -> None:
        """Report that the keys could not be loaded."""
        self.is_loading, self._failure = False, reason

    def not_found(self, header: JwtHeader) -> TokenRejected | Undecided:
        """Return the error for a token whose key was not found."""
        if self.is_loading:
            return Undecided("the keys are being loaded")
        if self._failure is not None:
            return Undecided(f"the keys could not be loaded: {self._failure}")
        return TokenRejected(f"no key of its issuer has the id (kid) {header.key_id!r}")
