"""Whether something has come on a socket, without waiting for it."""

from __future__ import annotations

import socket

from sansmcp_local import is_readable


def test_what_has_come_and_the_end_are_seen() -> None:
    one, other = socket.socketpair()
    with one:
        assert not is_readable(one.fileno())
        other.send(b"x")
        assert is_readable(one.fileno())
        one.recv(1)
        assert not is_readable(one.fileno())
        other.close()
        assert is_readable(one.fileno())
