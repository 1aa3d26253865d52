"""Credentials in private files."""

from __future__ import annotations

import os

from sansmcp.credentials import CredentialsKey

from ._folder import Folder


class FileCredentials:
    """Keeps credentials in a directory, in files that only the user can read.

    Args:
        directory: the directory, made if it is missing; None for ``sansmcp/credentials`` in
            ``$XDG_CONFIG_HOME`` or ``~/.config`` (on Windows ``%APPDATA%``).

    The methods raise OSError. A file that other users can read is refused, and so is a directory
    that they can write, or on Windows a ``directory`` outside the folder of the user.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._folder = Folder(directory, "login")

    def load(self, key: CredentialsKey) -> str | None:
        """Return a document, or None if there is none."""
        return self._folder.read(key, "json")

    def save(self, key: CredentialsKey, document: str) -> None:
        """Replace a document as a whole."""
        self._folder.add(key)
        self._folder.write(key, "json", document)

    def try_lock(self, key: CredentialsKey) -> bool:
        """Lock a document. Return False at once if another client or process has locked it."""
        return self._folder.try_lock(key)

    def unlock(self, key: CredentialsKey) -> None:
        """Release the lock of a document."""
        self._folder.unlock(key)

    def delete(self, key: CredentialsKey) -> bool:
        """Delete a document. Return False if there is none."""
        self._folder.remove(key)
        return self._folder.delete(key, "json")

    def stored_keys(self) -> list[CredentialsKey]:
        """Return the servers and accounts of which there are documents."""
        return self._folder.stored_keys()
