"""The processes of the fleet: servers, HAProxy, Redis, and a network that cuts connections."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import attrs

from ..ports import free_port

_PROXY = """
global
    maxconn {connections}
    stats socket {socket} level admin
defaults
    mode http
    option abortonclose
    option http-no-delay
    option redispatch
    retries 2
    timeout connect 2s
    timeout http-request 10s
    timeout client 60s
    timeout server 60s
    maxconn {connections}
frontend mcp
    bind 127.0.0.1:{port}
    default_backend servers
backend servers
    balance roundrobin
    default-server check inter 500ms fall 2 rise 1
{servers}
"""
_REDIS = """
frontend redis
    mode tcp
    timeout client 1h
    bind 127.0.0.1:{listen}
    default_backend redis
backend redis
    mode tcp
    timeout server 1h
    server redis 127.0.0.1:{port}
"""


@attrs.frozen
class Version:
    """What a process of a server runs.

    Attributes:
        folder: a checkout of sansmcp; None for this one.
        module: of this folder of tests in that checkout.
    """

    folder: Path | None = None
    module: str = "server"

    def start(self, arguments: tuple[str, ...], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a process."""
        environment = dict(os.environ)
        if self.folder is not None:  # before the installed packages, which are those of this one
            environment["PYTHONPATH"] = f"{self.folder}{os.pathsep}{self.folder / 'adapters'}"
        return subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{self.module}", *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def mixed_versions(folder: Path, commit: str, count: int) -> list[Version]:
    """Return versions for so many servers, of which half are of an earlier commit.

    One of the others adds members to all that it stores.
    """
    folder.mkdir()
    archive = subprocess.run(
        ("git", "archive", commit, "sansmcp", "adapters", "tests"), check=True, capture_output=True
    )
    subprocess.run(("tar", "-x", "-C", str(folder)), check=True, input=archive.stdout)
    earlier = [Version(folder)] * (count // 2)
    later = [Version(module="later_server"), *[Version()] * count]
    return [*earlier, *later][:count]


@attrs.define(eq=False)
class Server:
    """A place of the fleet: one process after the other, at one port."""

    port: int
    _version: Version
    _arguments: tuple[str, ...]
    _log: Path
    process: subprocess.Popen[bytes] = attrs.field(init=False)

    def start(self) -> None:
        """Start a process."""
        with self._log.open("ab") as log:
            self.process = self._version.start((str(self.port), *self._arguments), log)

    @property
    def is_up(self) -> bool:
        """True if the process accepts connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> int:
        """Kill the process, and return its id."""
        self.process.kill()
        self.process.wait()
        return self.process.pid


@attrs.define(eq=False)
class Redis:
    """A Redis with a file, which may be stopped, killed and cut off."""

    folder: Path
    port: int = attrs.field(factory=free_port)
    process: subprocess.Popen[bytes] = attrs.field(init=False)

    def start(self) -> None:
        """Start Redis, and return when it has loaded its file."""
        program = _program("redis-server")
        settings = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
        where = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder))
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [program, *where, *settings, "--loglevel", "notice"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith(b"+PONG")
        except OSError:
            return False

    def kill(self) -> None:
        """Kill Redis."""
        self.process.kill()
        self.process.wait()

    def limit_memory(self, size: int) -> None:
        """Let Redis refuse what needs memory, if it has more than ``size`` bytes; 0: no limit."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(b"CONFIG SET maxmemory %d\r\n" % size)
            assert connection.recv(100).startswith(b"+OK")

    def stop(self) -> None:
        """Let Redis do nothing, with all its connections open."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End that."""
        self.process.send_signal(signal.SIGCONT)


@attrs.define(eq=False)
class Disk:
    """A small file system in memory, which can be filled. Only root can mount one."""

    folder: Path

    @classmethod
    @contextmanager
    def mounted(cls, folder: Path) -> Generator[Disk, None, None]:
        """Mount it, and unmount it at the end."""
        folder.mkdir()
        options = ("-t", "tmpfs", "-o", "size=256m,mode=700", "tmpfs", str(folder))
        if subprocess.run(("mount", *options), check=False).returncode:
            sys.exit("A full disk needs root, to mount a small file system in memory")
        try:
            yield cls(folder)
        finally:
            subprocess.run(("umount", "-l", str(folder)), check=True)

    def fill(self) -> None:
        """Take all the room that is left."""
        with (self.folder / "ballast").open("wb") as file, suppress(OSError):
            while True:
                file.write(bytes(2**16))
                file.flush()

    def clear(self) -> None:
        """Give it back."""
        (self.folder / "ballast").unlink(missing_ok=True)


@attrs.define(eq=False)
class Fleet:
    """All processes.

    Attributes:
        disk: of the store, if it is a file and the disk is to be full.
        url: of the proxy.
        cut_url: of a network before the proxy that cuts connections.
        deaths: the processes of servers that were killed, each with the time.
    """

    servers: list[Server]
    redis: Redis | None
    disk: Disk | None
    url: str
    cut_url: str
    _socket: Path
    deaths: dict[int, float] = attrs.field(factory=dict[int, float])

    def kill_one(self, draws: random.Random) -> None:
        """Kill a process that serves, and start the next one in its place.

        The last one is spared: where a start takes long, none would be left to tell anything.
        """
        serving = [server for server in self.servers if server.is_up]
        if len(serving) > 1:
            server = draws.choice(serving)
            self.deaths[server.kill()] = time.monotonic()
            server.start()

    def stop_one(self, draws: random.Random) -> Server:
        """Let a process stand still. It counts as dead from now on: others may take its calls."""
        server = draws.choice([server for server in self.servers if server.is_up])
        self.deaths.setdefault(server.process.pid, time.monotonic())
        server.process.send_signal(signal.SIGSTOP)
        return server

    def refuse_writes(self) -> None:
        """Let the store refuse writes while reads work."""
        if self.redis is not None:
            self.redis.limit_memory(1)
        elif self.disk is not None:
            self.disk.fill()

    def take_writes(self) -> None:
        """End that."""
        if self.redis is not None:
            self.redis.limit_memory(0)
        elif self.disk is not None:
            self.disk.clear()

    def start_ended(self) -> None:
        """Start a process where one has ended by itself, as when Redis was away at its start."""
        for server in self.servers:
            if server.process.poll() is not None:
                self.deaths[server.process.pid] = time.monotonic()
                server.start()

    def cut_redis_off(self) -> None:
        """Close all connections to Redis, and refuse new ones."""
        self._tell_proxy("set server redis/redis state maint")
        self._tell_proxy("shutdown sessions server redis/redis")

    def connect_redis(self) -> None:
        """End that."""
        self._tell_proxy("set server redis/redis state ready")

    def _tell_proxy(self, command: str) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket))
            connection.sendall(f"{command}\n".encode())
            while connection.recv(1000):
                pass


@contextmanager
def running_fleet(
    folder: Path,
    *,
    servers: int,
    mixed: str,
    calls: int,
    store: str,
    lease: float,
    seed: int,
    cut: float,
    trace: bool,
    has_small_disk: bool,
) -> Generator[Fleet, None, None]:
    """Start all processes, and kill them at the end.

    ``mixed``: the commit of half of the servers; "" for this one.
    """
    with ExitStack() as stack:
        redis, disk, listen = None, None, free_port()
        place = str(folder / "store.db")
        if has_small_disk and store == "sqlite":
            disk = stack.enter_context(Disk.mounted(folder / "disk"))
            place = str(disk.folder / "store.db")
        if store == "redis":
            redis = Redis(folder)
            redis.start()
            stack.callback(lambda: redis.kill())
            place = f"redis://127.0.0.1:{listen}"
        arguments = (
            place,
            str(folder / "journal"),
            str(lease),
            str(folder / "trace") if trace else "",
        )
        versions = [Version()] * servers
        if mixed:
            versions = mixed_versions(folder / "earlier", mixed, servers)
        fleet = [
            Server(free_port(), version, arguments, folder / f"server-{number}.log")
            for number, version in enumerate(versions)
        ]
        port = free_port()
        lines = "\n".join(
            f"    server s{number} 127.0.0.1:{server.port}" for number, server in enumerate(fleet)
        )
        configuration = _PROXY.format(
            connections=4 * calls + 500, socket=folder / "proxy", port=port, servers=lines
        )
        if redis is not None:
            configuration += _REDIS.format(listen=listen, port=redis.port)
        (folder / "haproxy.cfg").write_text(configuration, "utf-8")
        _start(stack, folder / "haproxy.log", _program("haproxy"), "-db", "-f", "haproxy.cfg")
        for server in fleet:
            server.start()
            stack.callback(server.kill)
        cut_port = free_port()
        _start(
            stack,
            folder / "cuts.log",
            *(sys.executable, "-m", "sansmcp_cli", "chaos", "--cut", f"{cut}s"),
            *("--listen", f"127.0.0.1:{cut_port}", "--upstream", f"http://127.0.0.1:{port}/mcp"),
            *("--seed", str(seed)),
        )
        wait_until(lambda: all(server.is_up for server in fleet))
        url, cut_url = (f"http://127.0.0.1:{each}/mcp" for each in (port, cut_port))
        yield Fleet(fleet, redis, disk, url, cut_url, folder / "proxy")


def _start(stack: ExitStack, log: Path, *command: str) -> None:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    stack.callback(process.wait)
    stack.callback(process.kill)


def _program(name: str) -> str:
    program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/bin:/usr/sbin:/usr/local/bin")
    if program is None:
        sys.exit(f"needs {name}: apt-get install {name}")
    return program


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until a function returns True; exit after 60 seconds."""
    give_up = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > give_up:
            sys.exit("A process does not start")
        time.sleep(0.02)
