"""A directory of files that belong to the user of the process, and to that user only.

A file is replaced by renaming a complete one over it, so that a crash leaves the old one or the new
one. A lock is one of the operating system on a file of its own: it ends with the process.

Each document of credentials has a file that names its server and account. The names of the files
are hashes, because a URL can be longer than a file name.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

from sansmcp.credentials import CredentialsKey
from sansmcp_local import check_private_file, check_private_folder

_OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR
_DIRECTORY = stat.S_IRWXU
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""A symbolic link is refused, and a pipe is not waited for."""


class Folder:
    """Private files, by the key of a document and a suffix. The methods raise OSError.

    Args:
        directory: the directory, made if it is missing; None for ``sansmcp/credentials`` in
            ``$XDG_CONFIG_HOME`` or ``~/.config`` (on Windows ``%APPDATA%``).
        suffix: that of the files which name a server and an account.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, suffix: str) -> None:
        self._directory = _default_directory() if directory is None else Path(directory)
        self._is_given = directory is not None
        self._suffix = suffix
        self._locks: dict[CredentialsKey, int] = {}

    def add(self, key: CredentialsKey) -> None:
        """Add the name of a document."""
        if not self._path(key, self._suffix).exists():
            self.write(key, self._suffix, f"{key.endpoint}\n{key.account}")

    def remove(self, key: CredentialsKey) -> bool:
        """Remove the name of a document. Return False if there is none."""
        return self.delete(key, self._suffix)

    def stored_keys(self) -> list[CredentialsKey]:
        """Return the names of all documents, in the order of their endpoints."""
        self._check()
        texts = [_read(path) for path in self._directory.glob(f"*.{self._suffix}")]
        pairs = sorted(text.partition("\n") for text in texts if text is not None)
        return [CredentialsKey(endpoint, account) for endpoint, _, account in pairs]

    def read(self, key: CredentialsKey, suffix: str) -> str | None:
        """Return the text of a file, or None if there is none."""
        self._check()
        return _read(self._path(key, suffix))

    def write(self, key: CredentialsKey, suffix: str, text: str) -> None:
        """Replace a file as a whole."""
        path = self._path(key, suffix)
        self._make_directory()
        temporary = path.with_suffix(f".{secrets.token_hex(8)}")
        try:
            descriptor = _create(temporary, os.O_WRONLY | os.O_EXCL)
            with open(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    def delete(self, key: CredentialsKey, suffix: str) -> bool:
        """Delete a file. Return False if there is none."""
        try:
            self._path(key, suffix).unlink()
        except FileNotFoundError:
            return False
        return True

    def try_lock(self, key: CredentialsKey) -> bool:
        """Lock a document. Return False at once if another client or process has locked it."""
        if key in self._locks:
            return False
        self._make_directory()
        path = self._path(key, "lock")
        descriptor = _create(path, os.O_RDWR)
        is_locked = False
        try:
            _check_file(path, descriptor)
            is_locked = _lock(descriptor)
        finally:
            if not is_locked:
                os.close(descriptor)
        if is_locked:
            self._locks[key] = descriptor
        return is_locked

    def unlock(self, key: CredentialsKey) -> None:
        """Release the lock of a document."""
        descriptor = self._locks.pop(key, None)
        if descriptor is not None:
            os.close(descriptor)

    def _path(self, key: CredentialsKey, suffix: str) -> Path:
        name = hashlib.sha256(f"{key.endpoint}\n{key.account}".encode()).hexdigest()[:32]
        return self._directory / f"{name}.{suffix}"

    def _make_directory(self) -> None:
        self._check()
        self._directory.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
        self._check()  # others may have made it meanwhile

    def _check(self) -> None:
        """Raise PermissionError if others could put files into the directory, or replace them.

        They could have the tokens of one server sent to another one, by the name of a file.
        """
        # On Windows, the default is in the folder that the system has for the files of this user,
        # and where a directory is decides, whether it is there or not.
        if self._is_given if sys.platform == "win32" else self._directory.exists():
            path = str(self._directory)
            advice = f"if it is yours, run: chmod 700 {path}; else use another one"
            check_private_folder(path, "the credentials", advice)


def _default_directory() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming"
    else:
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "sansmcp" / "credentials"


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return None
    with open(descriptor, encoding="utf-8", newline="") as file:
        _check_file(path, descriptor)
        return file.read()


def _create(path: Path, flags: int) -> int:
    """Open a file with the mode of its owner only from the beginning."""
    return os.open(path, flags | os.O_CREAT | _FLAGS, _OWNER_ONLY)


def _check_file(path: Path, descriptor: int) -> None:
    """Raise PermissionError for what is no plain file, or can be used by others."""
    check_private_file(str(path), os.fstat(descriptor), "The file of credentials")


if sys.platform == "win32":

    def _lock(descriptor: int) -> bool:
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _lock(descriptor: int) -> bool:
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
