"""The credentials that one client uses, and their copy in the storage.

Several processes may share the storage. What changes the stored document is done under its lock,
and begins with reading the document again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import cast

import attrs

from ..credentials import CredentialsKey
from ..effects import LoadCredentials, LockCredentials, SaveCredentials, UnlockCredentials
from ..errors import AuthorizationFailed
from ..states import AuthorizationEvent
from .saved import Saved
from .steps import Pause, Steps
from .tokens import Tokens

_LOCK_INTERVAL = 0.1
"""Seconds between two attempts to lock the storage."""

_LOCK_TIMEOUT = 45.0
"""Seconds after which a lock counts as stuck; its holder needs at most four requests' time."""


@attrs.define(eq=False, repr=False)
class StoredCredentials:
    """The tokens and clients of one endpoint and account."""

    _key: CredentialsKey
    wall_clock: Callable[[], float]
    """Seconds since 1970: tokens and clients expire by it."""
    saved: Saved = attrs.field(factory=Saved, init=False)
    resource: str | None = attrs.field(default=None, init=False)
    """``resource`` of the metadata that were found last; stored with what is stored next."""
    requested: tuple[str, ...] = attrs.field(default=(), init=False)
    """The scopes that were requested for the last token."""
    generation: int = attrs.field(default=0, init=False)
    """Grows with each new token."""
    logins: int = attrs.field(default=0, init=False)
    """How often tokens were obtained otherwise than by a refresh: they may be of another user."""
    _lock: UnlockCredentials | None = attrs.field(default=None, init=False)
    """What releases the lock of the storage; None while it is not held."""

    @property
    def tokens(self) -> Tokens | None:
        """The tokens in use; None if there are none."""
        return self.saved.tokens

    def is_expired(self, tokens: Tokens) -> bool:
        """Return whether tokens have expired."""
        return tokens.is_expired(self.wall_clock())

    def to_refresh(self) -> Tokens | None:
        """Return the tokens in use if they have expired and can be refreshed."""
        tokens = self.tokens
        if tokens is None or tokens.refresh_token is None:
            return None
        return tokens if tokens.is_expired(self.wall_clock()) else None

    def use(self, tokens: Tokens | None) -> None:
        """Use these tokens from now on."""
        self.saved.tokens = tokens
        if tokens is not None:
            self.requested = tokens.requested
        self.generation += 1

    def reload(self) -> Steps[Tokens | None]:
        """Read the stored credentials again, and return the tokens."""
        document = cast("str | None", (yield LoadCredentials(self._key)))
        stored = Saved.parse(document)
        if stored.may_overwrite:
            self.saved = stored
        else:  # of a newer release: this client keeps its credentials in memory
            self.saved.may_overwrite = False
        return self.saved.tokens

    def save(self) -> Steps[None]:
        """Write the credentials; those of a newer release stay."""
        if self.resource is not None:
            self.saved.resource = self.resource
        if self.saved.may_overwrite:
            yield SaveCredentials(self._key, self.saved.encode())

    def store(self, tokens: Tokens) -> Steps[None]:
        """Store tokens, then use them. A rotated refresh token must not be lost in a crash."""
        before, self.saved.tokens = self.saved.tokens, tokens
        try:
            yield from self.save()
        except AuthorizationFailed:
            self.saved.tokens = before
            raise
        self.use(tokens)
        yield AuthorizationEvent.OBTAINED

    def lock(self) -> Steps[None]:
        """Lock the storage; it is released at the end of the flow, or by :meth:`unlock`."""
        for _ in range(int(_LOCK_TIMEOUT / _LOCK_INTERVAL)):
            if (yield LockCredentials(self._key)):
                self._lock = UnlockCredentials(self._key)
                return
            yield Pause(_LOCK_INTERVAL)
        text = "Authorization failed: another process has locked the stored credentials"
        raise AuthorizationFailed(f"{text} for {_LOCK_TIMEOUT:g} s", reason="lock_held")

    def unlock(self) -> Generator[UnlockCredentials, None, None]:
        """Yield the effect that releases the lock, if it is held; there is nothing to wait for."""
        lock, self._lock = self._lock, None
        if lock is not None:
            yield lock
