"""The files of a store, which belong to the user of the process, and to that user only."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress

from sansmcp import LocalProtocolError
from sansmcp_local import check_private_file, check_private_folder

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def create_private(path: str) -> None:
    """Create a file that is its owner's only, unless it is there, and is that already."""
    _check_folder(os.path.dirname(path))
    try:
        # SQLite gives the same mode to the files that it creates beside this one.
        os.close(os.open(path, _FLAGS | os.O_EXCL, _OWNER_ONLY))
    except FileExistsError:
        check_private_files(path)


def check_private_files(path: str) -> None:
    """Raise PermissionError if others could write or read a store, or have put a file there.

    SQLite opens the files beside the store by their names whenever they are there, so call this
    after it has opened them. As others cannot change the folder, they are those files still.
    """
    _check_folder(os.path.dirname(path))
    # Do not open them to look: to close them again would give up the locks that this process has.
    for each in (path, path + "-wal", path + "-shm", path + "-journal"):
        with suppress(FileNotFoundError):  # another process may have closed the store
            _check_private(each, os.lstat(each))


def _check_folder(path: str) -> None:
    advice = f"give the store a folder of its own: mkdir -m 700 {os.path.join(path, 'mcp-data')}"
    check_private_folder(path, "the store", advice)


def _check_private(path: str, status: os.stat_result) -> None:
    check_private_file(path, status, "The store file")


if sys.platform == "win32":

    def _lock(descriptor: int) -> None:
        """Wait for the lock of a file, and hold it until the file is closed."""
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

else:

    def _lock(descriptor: int) -> None:
        """Wait for the lock of a file, and hold it until the file is closed."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def shared_key(path: str) -> bytes:
    """32 random bytes in a file of their own, made by the process that locks the file first."""
    flags = _FLAGS | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, _OWNER_ONLY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            _check_private(path, os.lstat(path))
        raise
    with open(descriptor, "r+b", buffering=0) as file:
        _check_private(path, os.fstat(descriptor))
        _lock(descriptor)
        key = file.read(33)
        if not key:
            key = secrets.token_bytes(32)
            file.write(key)
            os.fsync(descriptor)
    if len(key) != 32:
        raise LocalProtocolError(
            f"The key file must hold 32 bytes, got {len(key)}; remove {path} to make a new key"
        )
    return key
