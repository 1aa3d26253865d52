"""A directory of files that belong to the user of the process, and to that user only.

A file is replaced by renaming a complete one over it, so that a crash leaves the old one or the new
one. A lock is one of the operating system on a file of its own: it ends with the process.

Each document of credentials has a file that names its server and account. The names of the files
are hashes, because a URL can be longer than a file name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

from sansmcp.credentials import CredentialsKey

_OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR
_DIRECTORY = stat.S_IRWXU
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


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
        texts = [_read(path) for path in self._directory.glob(f"*.{self._suffix}")]
        pairs = sorted(text.partition("\n") for text in texts if text is not None)
        return [CredentialsKey(endpoint, account) for endpoint, _, account in pairs]

    def read(self, key: CredentialsKey, suffix: str) -> str | None:
        """Return the text of a file, or None if there is none."""
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
        descriptor = _create(self._path(key, "lock"), os.O_RDWR)
        is_locked = False
        try:
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
        if sys.platform == "win32" and self._is_given:
            _check_directory(self._directory)
        self._directory.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)


def _default_directory() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming"
    else:
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "sansmcp" / "credentials"


def _check_directory(path: Path) -> None:
    """Raise PermissionError for a directory outside the folder of the user.

    On Windows, access lists say who can use a file. They are not read here.
    """
    home = Path.home().resolve()
    if not path.resolve().is_relative_to(home):
        raise PermissionError(
            errno.EPERM,
            "The directory of credentials is outside the folder of its user, and others may be "
            f"able to use it; give one under {home}",
            str(path),
        )


def _read(path: Path) -> str | None:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    with open(descriptor, encoding="utf-8", newline="") as file:
        _check_private(path, os.fstat(descriptor))
        return file.read()


def _create(path: Path, flags: int) -> int:
    """Open a file with the mode of its owner only from the beginning."""
    further = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(path, flags | os.O_CREAT | further, _OWNER_ONLY)


def _check_private(path: Path, status: os.stat_result) -> None:
    """Raise PermissionError for a file that others can use; on Windows its directory decides."""
    if sys.platform == "win32":
        return
    if status.st_uid != os.geteuid():
        problem = f"belongs to the user {status.st_uid}"
    elif status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        problem = f"can be used by others (mode {mode:04o}); run: chmod 600 {path}"
    else:
        return
    raise PermissionError(errno.EPERM, f"The file of credentials {problem}", str(path))


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
