"""Whether something has come on a socket, without waiting for it."""

from __future__ import annotations

import os
import select
import socket
import struct

import pytest

from sansmcp import PeerCredentials
from sansmcp_local import connection_info, is_readable


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


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the platform does not tell")
def test_the_process_at_the_other_end_of_a_unix_domain_socket() -> None:
    """``authenticate`` is told what the kernel knows of the client."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        info = connection_info(ours.fileno())
    me = PeerCredentials(os.getpid(), os.getuid(), os.getgid())
    assert (info.peer, info.is_tls, info.certificate, info.credentials) == (None, False, None, me)


def test_a_connection_that_is_gone_has_no_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connected = socket.create_connection(listener.getsockname())
        accepted, address = listener.accept()
        with accepted:
            assert connection_info(accepted.fileno()).peer == address
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connected.close()
            select.select([accepted], [], [])
            assert connection_info(accepted.fileno()).peer is None
