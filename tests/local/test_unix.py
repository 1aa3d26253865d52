"""Unix sockets of servers: who may use them, and what stands at their path before and after."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import sansmcp
from sansmcp import PeerCredentials
from sansmcp_local import (
    client_parts,
    connect_unix,
    connection_info,
    listen_unix,
    principal_of,
    serve_plan,
)

APP = sansmcp.App("app", "1")


@pytest.fixture
def path() -> Generator[str, None, None]:
    with tempfile.TemporaryDirectory() as directory:  # shorter than tmp_path
        yield os.path.join(directory, "s")


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def leave_dead_socket(path: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
    with socket.socket(socket.AF_UNIX, kind) as dead:
        dead.bind(path)


# The file


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_only_the_user_can_connect(path: str, umask: int) -> None:
    before = os.umask(umask)
    try:
        with listen_unix(path):
            assert mode_of(path) == 0o600
            connect_unix(path).close()
    finally:
        os.umask(before)
    assert not os.path.lexists(path)


def test_others_can_connect_at_no_moment(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux the mode is right at once; elsewhere before the socket listens."""
    seen: list[int] = []
    chmod = os.chmod

    def look(at: str, mode: int) -> None:
        seen.append(mode_of(at))
        with pytest.raises(ConnectionRefusedError):
            connect_unix(at)
        chmod(at, mode)

    def elsewhere(descriptor: int, mode: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "chmod", look)
    with listen_unix(path):
        assert sys.platform != "linux" or seen == [0o600]
    monkeypatch.setattr(os, "fchmod", elsewhere)
    with listen_unix(path):
        assert len(seen) == 2
        assert mode_of(path) == 0o600


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_the_socket_of_a_dead_program_is_replaced(path: str, kind: socket.SocketKind) -> None:
    leave_dead_socket(path, kind)
    with listen_unix(path):
        connect_unix(path).close()
    assert not os.path.lexists(path)


def test_the_socket_of_a_server_that_runs_is_not(path: str) -> None:
    with listen_unix(path) as first:
        with pytest.raises(OSError, match="A server that runs has this path"), listen_unix(path):
            pass
        first.accept()[0].close()
        connect_unix(path).close()


def test_nor_is_that_of_a_server_that_is_too_busy(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(path)
        busy.listen(0)
        waiting = connect_unix(path)
        with pytest.raises(OSError, match="too many connections waiting"):
            connect_unix(path)
        with pytest.raises(OSError, match="A server that runs has this path"), listen_unix(path):
            pass
        waiting.close()


def test_nor_is_a_socket_of_another_kind_that_is_used(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as logger:
        logger.bind(path)
        with pytest.raises(OSError, match="A server that runs has this path"), listen_unix(path):
            pass


def test_other_files_are_refused_and_kept(path: str) -> None:
    Path(path).write_text("mine")
    os.symlink(path, f"{path}-link")
    os.symlink("nowhere", f"{path}-broken")
    os.mkdir(f"{path}-directory")
    for end, kind in (
        ("", "file that is no socket"),
        ("-link", "symbolic link"),
        ("-broken", "symbolic link"),
        ("-directory", "file that is no socket"),
    ):
        with (
            pytest.raises(FileExistsError, match=f"A {kind} has this path"),
            listen_unix(path + end),
        ):
            pass
    assert Path(path).read_text() == "mine"


def test_a_link_to_the_socket_of_a_dead_server_is_refused(path: str) -> None:
    leave_dead_socket(path)
    os.symlink(path, f"{path}-link")
    with pytest.raises(FileExistsError, match="symbolic link"), listen_unix(f"{path}-link"):
        pass
    assert os.path.lexists(path)


def test_a_path_has_a_greatest_length(path: str) -> None:
    room = (107 if sys.platform == "linux" else 103) - len(path)
    with listen_unix(path + room * "x"):
        pass
    with (
        pytest.raises(OSError, match=r"may have 10[37] bytes") as caught,
        listen_unix(path + (room - 1) * "x" + "ä"),
    ):
        pass
    assert caught.value.errno == errno.ENAMETOOLONG


def test_a_directory_that_is_missing_is_named(path: str) -> None:
    with pytest.raises(FileNotFoundError, match=path), listen_unix(f"{path}/s"):
        pass


class Racer:
    """A server that starts together with others, and stops when all of them have."""

    def __init__(self, path: str, begin: threading.Barrier, end: threading.Barrier) -> None:
        self._path, self._begin, self._end = path, begin, end
        self.number: int | None = None
        """That of the error; 0 if a client has reached this server at the end."""
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self._begin.wait()
        try:
            with listen_unix(self._path) as listener:
                self._end.wait()
                connect_unix(self._path).close()
                listener.accept()[0].close()
                self.number = 0
        except OSError as error:
            self.number = error.errno
            if error.errno == errno.EADDRINUSE:
                self._end.wait()


def test_of_many_servers_that_start_one_serves(path: str) -> None:
    """Without the lock, one removes the new socket of another for a dead one."""
    for _ in range(20):
        leave_dead_socket(path)
        begin, end = threading.Barrier(4, timeout=60), threading.Barrier(4, timeout=60)
        racers = [Racer(path, begin, end) for _ in range(4)]
        for racer in racers:
            racer.thread.join()
        assert sorted(map(str, (racer.number for racer in racers))) == [
            "0",
            *3 * [str(errno.EADDRINUSE)],
        ]
        assert not os.path.lexists(path)


def test_a_directory_that_others_keep_locked(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp_local._unix._LOCK_INTERVAL", 0.0)
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="has locked the directory"), listen_unix(path):
            pass
    finally:
        os.close(descriptor)
    assert not os.path.lexists(path)


def test_a_file_system_without_locks(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with listen_unix(path):
        connect_unix(path).close()
    assert not os.path.lexists(path)


def test_the_socket_of_a_successor_stays(path: str) -> None:
    """It may even have the number of ours, which is free once our listener is closed."""
    with listen_unix(path) as listener:
        listener.close()
        os.unlink(path)
        leave_dead_socket(path)
    assert os.path.lexists(path)


def test_a_socket_whose_mode_was_changed_is_removed_too(path: str) -> None:
    with listen_unix(path):
        os.chmod(path, 0o666)
    assert not os.path.lexists(path)


def test_a_socket_that_was_removed_already(path: str) -> None:
    with listen_unix(path):
        os.unlink(path)


# Its users


@pytest.mark.skipif(sys.platform != "linux", reason="tests the way of Linux")
def test_the_user_of_a_client_is_its_principal(path: str) -> None:
    with listen_unix(path) as listener, connect_unix(path), listener.accept()[0] as accepted:
        assert principal_of(accepted) == f"uid:{os.getuid()}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        with client, server.accept()[0] as accepted:
            assert principal_of(accepted) == ""


def test_the_user_of_a_client_on_macos_and_freebsd(monkeypatch: pytest.MonkeyPatch) -> None:
    """``struct xucred``: version, user, number of groups and the groups."""
    packed = struct.pack("IIh16I", 0, 501, 2, 20, 12, *14 * [0])

    def getsockopt(connected: socket.socket, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (0, 1)
        assert size >= len(packed)
        return packed

    ours, theirs = socket.socketpair()
    with ours, theirs, monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "darwin")
        elsewhere.setattr(socket.socket, "getsockopt", getsockopt, raising=False)
        elsewhere.setattr(socket, "LOCAL_PEERCRED", 1, raising=False)
        assert connection_info(ours.fileno()).credentials == PeerCredentials(None, 501, 20)
        assert principal_of(ours) == "uid:501"
        elsewhere.delattr(socket, "LOCAL_PEERCRED")
        assert connection_info(ours.fileno()).credentials is None
        assert principal_of(ours) == ""


@pytest.fixture
def nobody(path: str) -> Generator[None, None, None]:
    """This process is that of another user for a while, who has not made the directory."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    os.seteuid(65534)
    yield
    os.seteuid(0)


@pytest.fixture
def served(path: str) -> Generator[str, None, None]:
    """The path of a server of ours in a directory that all can write, such as /tmp."""
    os.chmod(os.path.dirname(path), 0o1777)
    leave_dead_socket(f"{path}-dead")
    os.chmod(f"{path}-dead", 0o666)
    with listen_unix(path):
        yield path


@pytest.mark.usefixtures("served", "nobody")
def test_another_user_can_neither_connect_nor_take_the_place(path: str) -> None:
    with pytest.raises(PermissionError):
        connect_unix(path)
    for place in (path, f"{path}-dead"):
        with pytest.raises(PermissionError), listen_unix(place):
            pass
        assert os.path.lexists(place)


@pytest.mark.usefixtures("nobody")
def test_a_directory_that_the_user_cannot_write(path: str) -> None:
    with pytest.raises(PermissionError), listen_unix(path):
        pass


# The settings


def test_a_relative_path_is_made_absolute(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(path))
    with serve_plan(APP, unix=Path("s")).open() as endpoint:
        assert endpoint.url == str(sansmcp.Url.of_socket(os.path.realpath(path), "/mcp"))
        assert os.path.lexists(path)


def test_a_port_and_a_socket(path: str) -> None:
    with serve_plan(APP, http=("127.0.0.1", 0), unix=path, state_file=f"{path}-state").open() as at:
        port, unix = at.urls
        assert at.url == port
        assert port.startswith("http://127.0.0.1:")
        assert unix == str(sansmcp.Url.of_socket(path, "/mcp"))
        families = [listener.family for listener, _ in at.listeners]
        assert families == [socket.AF_INET, socket.AF_UNIX]
        assert f'"unix": "{path}"' in Path(f"{path}-state").read_text()


def test_a_server_that_cannot_be_opened_leaves_no_socket(path: str) -> None:
    plan = serve_plan(APP, unix=path, state_file=f"{path}/state")
    with pytest.raises(NotADirectoryError), plan.open():
        pass
    assert not os.path.lexists(path)


@pytest.mark.parametrize("unix", ["", "a\0b", b"bytes", 7])
def test_what_is_no_path(unix: Any) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="unix is the path of a Unix socket"):
        serve_plan(APP, unix=unix)


def test_tls_is_for_ports(path: str) -> None:
    import ssl

    with pytest.raises(sansmcp.LocalProtocolError, match="ssl_context is for http"):
        serve_plan(APP, unix=path, ssl_context=ssl.create_default_context())


def test_systems_without_unix_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(sansmcp.LocalProtocolError, match="Python has no Unix sockets"):
        serve_plan(APP, unix="s")
    with pytest.raises(sansmcp.LocalProtocolError, match="Python has no Unix sockets"):
        client_parts("http+unix://%2Fs/mcp")
    client_parts("http://localhost/mcp")
