"""Pipes as sockets: no byte is lost, reading waits for the receiver, closing ends both."""

from __future__ import annotations

import os
import select
import socket

import pytest

from sansmcp_local import from_pipe, to_pipe

from ..trio.programs import PATIENCE

MUCH = 5_000_000 * b"x"  # more than a pipe and two sockets hold


def received(connected: socket.socket) -> bytes:
    """All that comes until the end."""
    connected.settimeout(PATIENCE)
    data = b""
    while some := connected.recv(65536):
        data += some
    return data


def read(descriptor: int) -> bytes:
    """All that comes until the end."""
    data = b""
    while some := os.read(descriptor, 65536):
        data += some
    return data


def test_all_that_is_written_arrives_in_order() -> None:
    (near, far), (taken, given) = os.pipe(), os.pipe()
    from_end, (to_end, writing) = from_pipe(near), to_pipe(given)
    os.close(near)
    os.close(given)
    to_end.sendall(b"first ")
    to_end.close()
    assert read(taken) == b"first "
    writing.join(PATIENCE)
    assert not writing.is_alive()
    os.write(far, b"a line")
    os.close(far)
    assert received(from_end) == b"a line"
    from_end.close()
    os.close(taken)


def test_what_nobody_takes_is_not_read() -> None:
    near, far = os.pipe()
    from_end = from_pipe(near)
    os.close(near)
    written = 0
    while select.select([], [far], [], 0.2)[1]:
        written += os.write(far, MUCH[: select.PIPE_BUF])
        assert written < len(MUCH)
    os.close(far)
    assert len(received(from_end)) == written
    from_end.close()


def test_who_writes_is_told_that_nobody_reads() -> None:
    near, far = os.pipe()
    to_end, writing = to_pipe(far)
    os.close(far)
    os.close(near)
    to_end.settimeout(PATIENCE)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        while True:
            to_end.sendall(MUCH)
    writing.join(PATIENCE)
    assert not writing.is_alive()
    to_end.close()
