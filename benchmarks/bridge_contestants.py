"""Bridges that are compared: how each is started, and what it cannot do.

``mcp-remote`` and ``supergateway`` are packages of npm (``node/package.json``). ``mcp-proxy`` needs
another version of the official SDK than the other benchmarks, so it gets an environment of its own,
in ``build``.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import attrs

from .measuring import Process, Skipped

HOST = "127.0.0.1"
_PACKAGES = Path(__file__).parent / "node"
_MCP_PROXY = "mcp-proxy==0.13.0"
_ENVIRONMENT = Path(__file__).parent.parent / "build" / "mcp-proxy"
_PATIENCE = 60.0
"""Seconds until a bridge must accept connections."""

_SERVER = b"benchmarks.bridge_peers"

ToHttp: TypeAlias = Callable[[Sequence[str], int], list[str]]
ToStdio: TypeAlias = Callable[[str], list[str]]


@attrs.frozen
class Bridge:
    """A bridge. Each way is a function that returns its command, or why it has none."""

    to_http: ToHttp | str
    """From the command of a server, and the port to serve at."""
    to_stdio: ToStdio | str
    """From the URL of a server."""
    sessions: str = ""
    """Why it cannot have many sessions at a time; empty if it can."""


def _ours(*options: str) -> list[str]:
    return [sys.executable, "-m", "sansmcp_cli", "bridge", *options]


def _ours_to_http(command: Sequence[str], port: int) -> list[str]:
    return _ours("--http", f"{HOST}:{port}", "--", *command)


def _ours_shared_to_http(command: Sequence[str], port: int) -> list[str]:
    return _ours("--shared", "--http", f"{HOST}:{port}", "--", *command)


def _supergateway_to_http(command: Sequence[str], port: int) -> list[str]:
    server = ["--stdio", shlex.join(command), "--port", str(port)]
    quiet = ["--logLevel", "none"]
    return _node(
        "supergateway", *server, "--outputTransport", "streamableHttp", "--stateful", *quiet
    )


def _supergateway_to_stdio(url: str) -> list[str]:
    return _node("supergateway", "--streamableHttp", url, "--logLevel", "none")


def _mcp_remote_to_stdio(url: str) -> list[str]:
    return _node("mcp-remote", url, "--transport", "http-only")


def _mcp_proxy_to_http(command: Sequence[str], port: int) -> list[str]:
    return [_mcp_proxy(), "--port", str(port), "--log-level", "ERROR", "--", *command]


def _mcp_proxy_to_stdio(url: str) -> list[str]:
    return [_mcp_proxy(), "--transport", "streamablehttp", "--log-level", "ERROR", url]


BRIDGES: dict[str, Bridge] = {
    "sansmcp bridge": Bridge(
        _ours_to_http,
        lambda url: _ours(url),
        sessions="at most 100 servers at a time; see --shared",
    ),
    "sansmcp bridge --shared": Bridge(_ours_shared_to_http, "one client is all that stdio has"),
    "mcp-remote": Bridge("it serves on stdio only", _mcp_remote_to_stdio),
    "supergateway": Bridge(_supergateway_to_http, _supergateway_to_stdio),
    "mcp-proxy": Bridge(_mcp_proxy_to_http, _mcp_proxy_to_stdio),
}


def _node(package: str, *arguments: str) -> list[str]:
    """The command of a package of npm, which is installed first. Raises Skipped."""
    try:
        from tests import node

        node.install(_PACKAGES)
    except (ImportError, OSError, RuntimeError, subprocess.SubprocessError) as reason:
        raise Skipped(str(reason)) from reason
    main = {"mcp-remote": "dist/proxy.js", "supergateway": "dist/index.js"}[package]
    return [node.NODE, str(_PACKAGES / "node_modules" / package / main), *arguments]


def _mcp_proxy() -> str:
    """The program of mcp-proxy, which is installed first. Raises Skipped."""
    program = _ENVIRONMENT / "bin" / "mcp-proxy"
    if not program.exists():
        python = str(_ENVIRONMENT / "bin" / "python")
        for command in (
            [sys.executable, "-m", "venv", str(_ENVIRONMENT)],
            [python, "-m", "pip", "install", "--quiet", _MCP_PROXY],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Skipped(f"{shlex.join(command)}: {done.stderr.strip()[-200:]}")
    return str(program)


def prepare_environment(directory: Path) -> None:
    """Let ``mcp-remote`` keep what it stores in a folder of its own, as it has no option for it."""
    os.environ["MCP_REMOTE_CONFIG_DIR"] = str(directory)


@contextmanager
def serving_http(to_http: ToHttp, server: Sequence[str]) -> Generator[tuple[int, str]]:
    """A bridge that serves over HTTP; gives its pid and URL. Raises Skipped."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
    null = subprocess.DEVNULL
    with subprocess.Popen(
        to_http(server, port), stdin=null, stdout=null, stderr=null, start_new_session=True
    ) as process:
        try:
            _wait_for(process, port)
            yield process.pid, f"http://{HOST}:{port}/mcp"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _wait_for(process: Process, port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            socket.create_connection((HOST, port)).close()
        except OSError as error:
            if process.poll() is not None:
                raise Skipped(f"it ended with status {process.returncode}") from error
            if time.monotonic() > end:
                raise Skipped("it accepts no connections") from error
            time.sleep(0.05)
        else:
            return


# Processes


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def children() -> dict[int, list[int]]:
    """The processes that each process has started and that run."""
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found.setdefault(int(fields[1]), []).append(int(path.parent.name))
    return found


def tree_of(pid: int, *, with_servers: bool = False) -> list[int]:
    """A process and all that it has started; the servers behind a bridge only if so asked."""
    parents, found, left = children(), list[int](), [pid]
    while left:
        each = left.pop()
        if with_servers or _SERVER not in _command_of(each).split(b"\0")[:3]:
            found.append(each)
        left += parents.get(each, ())
    return found


def cpu_of(pids: Sequence[int]) -> float:
    """Seconds of processor time that processes have taken so far."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)  # as clock_getcpuclockid() has it


def memory_of(pids: Sequence[int]) -> float:
    """MiB that processes take; what several share counts once."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:  # it has ended
            continue
        total += int(text.partition("\nPss:")[2].split()[0])
    return total / 1024
