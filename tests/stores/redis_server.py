"""Redis servers of the tests' own, and a network to them that can be broken."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ..ports import free_port

APPEND_ONLY = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")


def redis_program() -> str:
    """The program; the test is skipped without it, or fails where it has to be there."""
    program = shutil.which("redis-server", path=f"{os.environ['PATH']}:/usr/bin:/usr/local/bin")
    if program is None:
        reason = "needs Redis: apt-get install redis-server"
        if os.environ.get("SANSMCP_REQUIRE_REDIS"):
            pytest.fail(reason)
        pytest.skip(reason)
    return program


def redis_library() -> Any:
    """The client library, whose types are of no use to a strict check."""
    return pytest.importorskip("redis")


class RedisServer:
    """A process of Redis, which can be stopped and started again with what it has written."""

    def __init__(self, directory: Path, *settings: str, url: str = "") -> None:
        redis = redis_library()
        self._directory = directory
        self.settings = settings or APPEND_ONLY
        self._program = redis_program()
        self.port = free_port()
        self.url = url.format(port=self.port) or f"redis://127.0.0.1:{self.port}"
        self.client: Any = redis.Redis.from_url(self.url)
        """A client of the test, beside that of the store."""
        self.start()

    def start(self) -> None:
        """Start, and return when it answers and has loaded its file."""
        redis = redis_library()
        log = self._directory / "redis.log"
        where = ("--port", f"{self.port}", "--bind", "127.0.0.1", "--dir", str(self._directory))
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [self._program, *where, "--loglevel", "warning", *self.settings],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        give_up = time.monotonic() + 20
        while True:
            try:
                self.client.ping()
                return
            except redis.AuthenticationError:
                return
            except redis.ConnectionError as error:
                if self.process.poll() is not None or time.monotonic() > give_up:
                    self.kill()
                    raise RuntimeError(log.read_text("utf-8")) from error
                time.sleep(0.005)

    def stop(self) -> None:
        """Let it end in good order."""
        self.process.terminate()
        self.process.wait(20)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(20)

    @contextmanager
    def hanging(self) -> Generator[None, None, None]:
        """It does nothing, but its connections stay open."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def running(directory: Path, *settings: str, url: str = "") -> Generator[RedisServer, None, None]:
    """Run a server of one's own."""
    directory.mkdir(exist_ok=True)
    server = RedisServer(directory, *settings, url=url)
    try:
        yield server
    finally:
        server.client.close()
        if server.process.poll() is None:
            server.kill()


class Cable:
    """Passes connections on to a port, and breaks them when the test says so."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lose: bytes | None = None
        self.is_cut = False
        """New connections are closed at once."""
        self.connections = 0
        """How many have been accepted."""
        self._is_audible = threading.Event()
        self._is_audible.set()
        self.lost = threading.Event()
        """A reply has been lost."""
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_reply_to(self, request: bytes) -> None:
        """Close the next connection that sends this, instead of passing on the reply."""
        self.lost.clear()
        self._lose = request

    def cut(self) -> None:
        """Close all connections, and all new ones."""
        self.is_cut = True
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _close(*pair)

    def fall_silent(self) -> None:
        """Pass nothing on, and close nothing."""
        self._is_audible.clear()

    def mend(self) -> None:
        """Let new connections through, and what has been held back."""
        self.is_cut = False
        self._is_audible.set()

    def close(self) -> None:
        """End all."""
        self._is_audible.set()
        self.cut()
        _close(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.is_cut:
                _close(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _close(client)
                continue
            with self._lock:
                self._pairs.append((client, server))
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        loses = False
        other = {client: server, server: client}
        with suppress(OSError, ValueError):
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        _close(client, server)
                        return
                    if source is client and self._lose is not None and self._lose in data:
                        self._lose, loses = None, True
                    if source is server and loses:
                        self.lost.set()
                        _close(client, server)
                        return
                    self._is_audible.wait()
                    other[source].sendall(data)
        _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@contextmanager
def cable(port: int) -> Generator[Cable, None, None]:
    """A way to a port."""
    with closing(Cable(port)) as made:
        yield made


@contextmanager
def sentinel(directory: Path, port: int) -> Generator[int, None, None]:
    """Run a Sentinel that watches a server, which it calls ``main``. Gives its port."""
    redis = redis_library()
    own = free_port()
    file = directory / "sentinel.conf"
    lines = (
        f"port {own}",
        "bind 127.0.0.1",
        f"dir {directory}",
        f"sentinel monitor main 127.0.0.1 {port} 1",
        "sentinel down-after-milliseconds main 500",
        "sentinel failover-timeout main 2000",
    )
    file.write_text("\n".join(lines) + "\n", "utf-8")
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [redis_program(), str(file), "--sentinel"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        )
        stack.callback(process.kill)
        client = stack.enter_context(closing(redis.Redis(port=own)))
        give_up = time.monotonic() + 20
        while True:
            with suppress(redis.ConnectionError):
                client.ping()
                break
            assert time.monotonic() < give_up
            time.sleep(0.01)
        yield own
