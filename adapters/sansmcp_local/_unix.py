"""Unix sockets: HTTP without a port, for the processes of one user."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

import sansmcp

from ._listening import BACKLOG

_OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR

_MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103
"""The systems have room for this many bytes of a path, and a zero."""

_LOCK_ATTEMPTS, _LOCK_INTERVAL = 100, 0.01
"""Tries, and seconds between them, to lock the directory of a socket. Another server holds the lock
for less than a millisecond; but any process that can read the directory can take it.
"""

UNIX_DELAYS = (0.01, 0.03, 0.1, 0.3, 0.5)
"""Seconds to wait before each further attempt of :func:`connect_unix`, while the server has not
accepted the connections that wait already: nothing tells when there is room.
"""


def check_unix_sockets() -> None:
    """Raise LocalProtocolError if Python has no Unix sockets here."""
    if not hasattr(socket, "AF_UNIX"):
        raise sansmcp.LocalProtocolError(
            f"Python has no Unix sockets on {sys.platform}; use http and a port of 127.0.0.1"
        )


def connect_unix(path: str) -> socket.socket:
    """Return a non-blocking socket that is connected to the server at a path.

    This does not wait: the system connects at once, or fails.

    Raises:
        BlockingIOError: the server has not accepted the connections that wait; :data:`UNIX_DELAYS`
            says when to try again.
        OSError: no server listens there.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    connecting = socket.socket(socket.AF_UNIX)
    connecting.settimeout(0)
    try:
        connecting.connect(path)
    except BlockingIOError as error:
        connecting.close()
        raise OSError(error.errno, "The server has too many connections waiting", path) from None
    except OSError as error:
        connecting.close()
        raise OSError(error.errno, error.strerror or str(error), path) from None
    return connecting


@contextmanager
def listen_unix(path: str) -> Generator[socket.socket, None, None]:
    """Listen at a path until the block ends.

    Only the user of this process, and root, can connect (mode 0600). The file that a dead server
    has left there is replaced. At the end the file is removed, unless another server has replaced
    it.

    Args:
        path: an absolute path.

    Yields:
        A non-blocking socket.

    Raises:
        OSError: the path is too long, or is taken by a server that runs or by another file; or the
            file cannot be created there.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    size = len(os.fsencode(path))
    if size > _MAX_PATH_BYTES:
        raise OSError(
            errno.ENAMETOOLONG,
            f"The path of a Unix socket may have {_MAX_PATH_BYTES} bytes, and this one has {size}",
            path,
        )
    with socket.socket(socket.AF_UNIX) as listener:
        with _locked(os.path.dirname(path)):
            _remove_stale(path)
            _bind_private(listener, path)
            ours = _identity(path)
        try:
            yield listener
        finally:
            with suppress(OSError), _locked(os.path.dirname(path)):
                if _identity(path) == ours:
                    os.unlink(path)


def _bind_private(listener: socket.socket, path: str) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    listener.settimeout(0)
    with suppress(OSError):
        os.fchmod(listener.fileno(), _OWNER_ONLY)  # on Linux the file has this mode from the start
    try:
        listener.bind(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), path) from None
    os.chmod(path, _OWNER_ONLY)  # elsewhere from here on; before listen() no one can connect
    listener.listen(BACKLOG)


def _remove_stale(path: str) -> None:
    """Remove the socket of a dead server. Raises OSError for anything else at the path."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        kind = "symbolic link" if stat.S_ISLNK(mode) else "file that is no socket"
        raise OSError(errno.EEXIST, f"A {kind} has this path; remove it, or use another path", path)
    try:
        connect_unix(path).close()
    except ConnectionRefusedError:
        os.unlink(path)
        return
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EPROTOTYPE):
            raise
    text = "A server that runs has this path; stop that server, or use another path"
    raise OSError(errno.EADDRINUSE, text, path)


def _identity(path: str) -> tuple[int, int, int]:
    # The number alone may be that of a later file: file systems use numbers of removed files again.
    status = os.lstat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns


@contextmanager
def _locked(directory: str) -> Generator[None, None, None]:
    """Lock a directory, so that of two servers none removes the new socket of the other.

    Raises:
        OSError: the directory cannot be read, or another process keeps it locked.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: str) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    import fcntl

    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_INTERVAL)
        except OSError:
            return  # a file system without such locks, such as NFS
        else:
            return
    seconds = _LOCK_ATTEMPTS * _LOCK_INTERVAL
    text = f"Another process has locked the directory of the socket for {seconds:g} s"
    raise OSError(errno.EAGAIN, text, directory)
