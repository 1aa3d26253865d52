"""The files of a store, which belong to the user of the process, and to that user only.

On Windows, access lists say who can use a file. They are not read here: a store has to be in the
folder of its user, which Windows keeps from other users.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

from sansmcp import LocalProtocolError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl
    import grp
    import pwd

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


if sys.platform == "win32":

    def _check_folder(path: str) -> None:
        """Raise PermissionError for a folder outside the folder of the user."""
        home, folder = Path.home().resolve(), Path(path).resolve()
        if not folder.is_relative_to(home):
            raise PermissionError(
                errno.EPERM,
                "The folder of the store is outside the folder of its user, and others may be able "
                f"to use it; put the store under {home}",
                path,
            )

    def _check_private(path: str, status: os.stat_result) -> None:
        """Raise PermissionError for what is no plain file."""
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EPERM, "The store file is no regular file", path)

    def _lock(descriptor: int) -> None:
        """Wait for the lock of a file, and hold it until the file is closed."""
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

else:

    def _check_folder(path: str) -> None:
        """Raise PermissionError for a folder where others could put the files of a store.

        The sticky bit only keeps others from removing files.
        """
        status = os.stat(path)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid not in (os.geteuid(), 0):
            problem = f"belongs to the user {status.st_uid}, and this process is {os.geteuid()}"
        elif mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_alone_in(status.st_gid)):
            problem = f"can be written by others (mode {mode:04o}), who could put files there"
        else:
            return
        advice = (
            f"give the store a folder of its own: mkdir -m 700 {os.path.join(path, 'mcp-data')}"
        )
        raise PermissionError(errno.EPERM, f"The folder of the store {problem}; {advice}", path)

    def _is_alone_in(group: int) -> bool:
        """Return True for the group that many systems give to each user alone."""
        try:
            user, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
        except KeyError:
            return False
        same = user.pw_gid == group and user.pw_name == members.gr_name
        return same and set(members.gr_mem) <= {user.pw_name}

    def _check_private(path: str, status: os.stat_result) -> None:
        """Raise PermissionError for what is no plain file, or can be used by others."""
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
