"""Real HTTP proxies of companies: Squid and tinyproxy, which ask for a password."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import attrs
import pytest

from .ports import free_port

USER, PASSWORD = "ada", "s:cret@1"
_CREDENTIALS = "ada:s%3Acret%401"
_PASSWORDS = "ada:$apr1$abcdefgh$T2TCp40jevko2DxBK7Yuv/\n"
"""As ``openssl passwd -apr1`` writes it."""

INSIDE = "mcp.corp.test"
"""A name that only Squid knows: it leads to this machine, and nothing gets there without it."""

_SQUID = """
http_port 127.0.0.1:{port}
hosts_file {directory}/hosts
auth_param basic program /usr/lib/squid/basic_ncsa_auth {directory}/passwords
acl users proxy_auth REQUIRED
acl forbidden dstdomain forbidden.corp.test
http_access deny forbidden
http_access allow users
http_access deny all
cache deny all
access_log stdio:{directory}/access.log
cache_log {directory}/cache.log
pid_filename {directory}/squid.pid
coredump_dir {directory}
shutdown_lifetime 0 seconds
pinger_enable off
"""

_TINYPROXY = """
Port {port}
Listen 127.0.0.1
Timeout 60
MaxClients 50
BasicAuth {user} {password}
LogLevel Connect
LogFile "{directory}/access.log"
"""


@attrs.frozen
class ForwardProxy:
    """A running proxy."""

    port: int
    credentials: str
    """User and password, as a URL has them."""
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.credentials}@127.0.0.1:{self.port}"

    @property
    def url_without_password(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def _program(name: str) -> str:
    """The program; the test is skipped without it, or fails where it has to be there."""
    program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        reason = f"needs {name}: apt-get install {name}"
        if os.environ.get("SANSMCP_REQUIRE_PROXY"):
            pytest.fail(reason)
        pytest.skip(reason)
    return program


@contextmanager
def _running(
    name: str, arguments: tuple[str, ...], files: Mapping[str, str], credentials: str
) -> Generator[ForwardProxy, None, None]:
    program = _program(name)
    # Squid leaves the user root, who owns the directories of pytest alone.
    with tempfile.TemporaryDirectory(prefix="sansmcp-proxy-") as place:
        directory, port = Path(place), free_port()
        directory.chmod(0o777)
        for file, text in files.items():
            filled = text.format(port=port, directory=directory, user=USER, password="secret")
            (directory / file).write_text(filled, "utf-8")
        words = [program, *arguments, str(directory / "conf")]
        output = directory / "output"
        with (
            output.open("wb") as shown,
            subprocess.Popen(words, stdout=shown, stderr=shown, cwd="/") as process,
        ):
            try:
                _wait_for(port, process, output)
                yield ForwardProxy(port, credentials, directory / "access.log")
            finally:
                process.terminate()
                process.wait(timeout=20)


def _wait_for(port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, output.read_text("utf-8", "replace")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"Nothing listens on port {port}: {output.read_text('utf-8', 'replace')}")


def squid() -> AbstractContextManager[ForwardProxy]:
    """Run Squid."""
    files = {
        "conf": _SQUID,
        "passwords": _PASSWORDS,
        "hosts": f"127.0.0.1 {INSIDE} forbidden.corp.test\n",
    }
    return _running("squid", ("-N", "-f"), files, _CREDENTIALS)


def tinyproxy() -> AbstractContextManager[ForwardProxy]:
    """Run tinyproxy."""
    return _running("tinyproxy", ("-d", "-c"), {"conf": _TINYPROXY}, f"{USER}:secret")


PROXIES: dict[str, tuple[Callable[[], AbstractContextManager[ForwardProxy]], str]] = {
    "squid": (squid, INSIDE),
    # It has no names of its own; this one leads to this machine, and is no loopback name.
    "tinyproxy": (tinyproxy, socket.gethostname()),
}
"""Each with a name of this machine that it can resolve."""
