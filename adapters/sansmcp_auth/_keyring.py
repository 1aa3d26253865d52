"""Credentials in the keyring of the system."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, ClassVar

from sansmcp.credentials import CredentialsKey

from ._folder import Folder

_SERVICE = "sansmcp"


class KeyringCredentials:
    """Keeps credentials in the keyring of the system, which is encrypted. Needs the extra.

    A keyring has no locks, and cannot tell what is in it. So the directory has a file to lock for
    each document, and one with the URL of the server; documents are in the keyring only.

    A keyring that is locked asks the user for its password. Until then the call blocks, so clients
    in an event loop make it in a thread. The keyring of Windows has too little room for most
    tokens.

    Args:
        directory: where these files are, as for :class:`FileCredentials`. Both may share it.

    The methods raise OSError: the system has no keyring, or it fails. :meth:`stored_keys` and the
    locks do without it.
    """

    may_block: ClassVar[bool] = True

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._folder = Folder(directory, "keyring")

    def load(self, key: CredentialsKey) -> str | None:
        """Return a document, or None if there is none."""
        keyring = self._keyring
        try:
            document: str | None = keyring.get_password(_SERVICE, _name(key))
        except Exception as error:
            raise _failed(error) from error
        return document

    def save(self, key: CredentialsKey, document: str) -> None:
        """Replace a document as a whole."""
        keyring = self._keyring
        try:
            keyring.set_password(_SERVICE, _name(key), document)
        except Exception as error:
            raise _failed(error) from error
        self._folder.add(key)

    def try_lock(self, key: CredentialsKey) -> bool:
        """Lock a document. Return False at once if another client or process has locked it."""
        return self._folder.try_lock(key)

    def unlock(self, key: CredentialsKey) -> None:
        """Release the lock of a document."""
        self._folder.unlock(key)

    def delete(self, key: CredentialsKey) -> bool:
        """Delete a document. Return False if there is none."""
        is_there = self.load(key) is not None
        if is_there:
            try:
                self._keyring.delete_password(_SERVICE, _name(key))
            except Exception as error:
                raise _failed(error) from error
        self._folder.remove(key)
        return is_there

    def stored_keys(self) -> list[CredentialsKey]:
        """Return the servers and accounts of which there are documents."""
        return self._folder.stored_keys()

    @cached_property
    def _keyring(self) -> Any:  # the package has types for some methods only
        try:
            import keyring
            from keyring.backends import fail
        except ModuleNotFoundError as error:
            text = "KeyringCredentials needs the extra: pip install 'sansmcp[keyring]'"
            raise OSError(text) from error
        found = keyring.get_keyring()
        if isinstance(found, fail.Keyring):
            raise OSError("This system has no keyring, or none that runs")
        return found


def _name(key: CredentialsKey) -> str:
    """Return the user name under which the keyring has a document."""
    return f"{key.endpoint} {key.account}".rstrip()


def _failed(error: Exception) -> OSError:
    """Return the error of a method. Backends raise many kinds, also of the libraries they use."""
    return OSError(f"The keyring of the system failed: {error}")
