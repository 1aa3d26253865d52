"""Pipes as sockets, where an event loop can wait for sockets only: threads copy between them.

Nothing on Windows waits for pipes as ``select()`` waits for sockets, and some event loops of other
systems start no processes. A socket pair holds a bounded number of bytes, and a thread copies no
more than fits: what is not taken from the socket is not taken from the pipe either.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

_SOME = 65536


def from_pipe(pipe: int) -> socket.socket:
    """Return a socket that receives what is read from a pipe, and its end.

    Args:
        pipe: a file descriptor. A thread reads a copy of it, and closes that at the end; the
            caller may close the original at any time.
    """
    ours, theirs = socket.socketpair()
    threading.Thread(target=_read, args=(os.dup(pipe), theirs), daemon=True).start()
    return ours


def to_pipe(pipe: int) -> tuple[socket.socket, threading.Thread]:
    """Return a socket, and the thread that writes to a pipe what the socket is sent.

    Args:
        pipe: a file descriptor, as of :func:`from_pipe`.

    Once the socket is closed, the thread writes what is left, and ends.
    """
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=_write, args=(os.dup(pipe), theirs), daemon=True)
    thread.start()
    return ours, thread


def _read(pipe: int, to: socket.socket) -> None:
    with to, suppress(OSError):  # the pipe is broken, or our socket is closed
        try:
            while data := os.read(pipe, _SOME):
                to.sendall(data)
        finally:
            os.close(pipe)


def _write(pipe: int, taken_from: socket.socket) -> None:
    with (
        taken_from,
        suppress(OSError),
    ):  # the reader of the pipe is gone; closing the socket tells its sender
        try:
            while data := memoryview(taken_from.recv(_SOME)):
                while data:
                    data = data[os.write(pipe, data) :]
        finally:
            os.close(pipe)
