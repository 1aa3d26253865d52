"""The files of a store, which belong to the user of the process, and to that user only."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat

from sansmcp import LocalProtocolError

_OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR


def create_private(path: str) -> None:
    """Create a file that is its owner's only, unless it is there, and is that already."""
    try:
        # SQLite gives the same mode to the files that it creates beside this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY))
    except FileExistsError:
        # Do not open it to look: to close it again would give up the locks that this process has.
        for each in (path, path + "-wal", path + "-shm", path + "-journal"):
            if os.path.lexists(each):
                _check_private(each, os.lstat(each))


def _check_private(path: str, status: os.stat_result) -> None:
    """Raise PermissionError for what is no plain file of this user, or can be used by others."""
    if stat.S_ISLNK(status.st_mode):
        problem = "is a symbolic link; give the path of the file itself"
    elif not stat.S_ISREG(status.st_mode):
        problem = "is no regular file"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to the user {status.st_uid}, and this process is {os.geteuid()}"
    elif status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        problem = f"can be used by others (mode {mode:04o}); run: chmod 600 {path}"
    else:
        return
    raise PermissionError(errno.EPERM, f"The store file {problem}", path)


def shared_key(path: str) -> bytes:
    """32 random bytes in a file of their own, made by the process that locks the file first."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, _OWNER_ONLY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            _check_private(path, os.lstat(path))
        raise
    with open(descriptor, "r+b", buffering=0) as file:
        _check_private(path, os.fstat(descriptor))
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # until it is closed
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
