"""Where the credentials of clients are kept: the interface of a storage, and one in memory.

A document holds what one client has of one server: registered clients and tokens. It is read,
written and locked as a whole, by the effects of :mod:`sansmcp.effects`.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from .types import hide_secrets


@attrs.frozen
class CredentialsKey:
    """The name of a document of credentials: the URL of an endpoint, and an account there."""

    endpoint: str = attrs.field(repr=lambda url: repr(hide_secrets(url)))
    account: str = ""


class CredentialStorage(Protocol):
    """Keeps documents of credentials. The methods raise if they fail.

    They are quick. A storage whose methods may wait, such as for a person, has an attribute
    ``may_block = True``: clients in an event loop then call them in threads, one at a time.
    """

    def load(self, key: CredentialsKey) -> str | None:
        """Return a document, or None if there is none."""
        ...

    def save(self, key: CredentialsKey, document: str) -> None:
        """Replace a document as a whole."""
        ...

    def try_lock(self, key: CredentialsKey) -> bool:
        """Lock a document. Return False at once if another one has locked it."""
        ...

    def unlock(self, key: CredentialsKey) -> None:
        """Release the lock of a document."""
        ...


@attrs.define(eq=False, repr=False)
class MemoryCredentials:
    """Keeps documents of credentials in memory, for the clients of one process."""

    _documents: dict[CredentialsKey, str] = attrs.field(
        factory=dict[CredentialsKey, str], init=False
    )
    _locked: set[CredentialsKey] = attrs.field(factory=set[CredentialsKey], init=False)

    def load(self, key: CredentialsKey) -> str | None:
        """Return a document, or None if there is none."""
        return self._documents.get(key)

    def save(self, key: CredentialsKey, document: str) -> None:
        """Replace a document as a whole."""
        self._documents[key] = document

    def try_lock(self, key: CredentialsKey) -> bool:
        """Lock a document. Return False at once if another client has locked it."""
        if key in self._locked:
            return False
        self._locked.add(key)
        return True

    def unlock(self, key: CredentialsKey) -> None:
        """Release the lock of a document."""
        self._locked.discard(key)
