"""Server processes: the environment that they get, and the end of their process group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sansmcp import LocalProtocolError
from sansmcp_local import ProcessGroup, environment_of, start_failure
from sansmcp_local._processes import check_batch_arguments

PARENT = """
import os, signal, sys
if os.fork() == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.write(1, b"\\n")
    signal.sigwait([signal.SIGTERM])
    os.write(1, b"child told")
os.write(1, b"\\n")
while True:
    signal.pause()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, with a child that SIGTERM does not end."""
    with subprocess.Popen(
        [sys.executable, "-IS", "-c", PARENT],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["\n", "\n"]
        yield process
        ProcessGroup(process.pid).signal(kill=True)


def test_all_of_a_group_is_told_and_made_to_end(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout is not None
    group = ProcessGroup(parent.pid)
    group.signal(kill=False)
    assert parent.wait(timeout=20) == -signal.SIGTERM
    assert parent.stdout.readline() == "child told\n"
    group.signal(kill=True)  # the group is there as long as anybody is in it
    assert parent.stdout.read() == ""


def test_a_group_that_is_gone(parent: subprocess.Popen[str]) -> None:
    group = ProcessGroup(parent.pid)
    group.signal(kill=True)
    assert parent.wait(timeout=20) == -signal.SIGKILL
    assert parent.stdout is not None
    assert parent.stdout.read() == ""
    for kill in (False, True):
        group.signal(kill=kill)
    assert os.getpgrp() != parent.pid


# Processes that are not started


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            NotImplementedError(),
            "the event loop of this program cannot start processes; use another one, such as "
            "asyncio's default (on Windows ProactorEventLoop, not SelectorEventLoop)",
        ),
        (RuntimeError("not in this thread"), "not in this thread"),
        (ValueError(), "ValueError"),
        (
            FileNotFoundError(2, "No such file or directory", "serve --key secret"),
            "[Errno 2] No such file or directory: 'serve ...'",
        ),
    ],
)
def test_the_reason_why_a_process_is_not_started(error: Exception, reason: str) -> None:
    assert start_failure(error).reason == reason


# The environment


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with secrets."""
    for name in tuple(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("HOME", "/home/a")
    monkeypatch.setenv("TERM", "() { :; }; echo attack")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.mark.usefixtures("ours")
def test_a_server_inherits_few_variables() -> None:
    """It inherited the whole environment."""
    few = {"PATH": "/bin", "HOME": "/home/a"}
    assert environment_of(None, inherit_env=False) == few
    assert environment_of({"A": "b"}, inherit_env=False) == {**few, "A": "b"}
    assert environment_of({"HOME": "/"}, inherit_env=False) == {"PATH": "/bin", "HOME": "/"}


@pytest.mark.usefixtures("ours")
def test_a_server_inherits_all_if_that_is_wanted() -> None:
    assert environment_of(None, inherit_env=True) == dict(os.environ)
    assert environment_of({"A": "b"}, inherit_env=True) == {**os.environ, "A": "b"}


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (["A=secret"], "env must be Mapping, and is list"),
        ({"A": 5}, r"env\['A'\] must be str, and is int"),
        ({"A": b"secret"}, r"env\['A'\] must be str, and is bytes"),
        ({5: "secret"}, "a name in env must be str, and is int"),
    ],
)
def test_an_environment_that_is_none(env: Any, message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message) as caught:
        environment_of(env, inherit_env=False)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("program", [r"C:\\nodejs\\npx.cmd", "run.BAT"])
@pytest.mark.parametrize("character", list('&|<>^%!"\r\n'))
def test_arguments_that_cmd_would_read_are_refused(program: str, character: str) -> None:
    with pytest.raises(LocalProtocolError, match=r"its argument 2 has .* cmd\.exe") as caught:
        check_batch_arguments(program, ["fine", f"secret{character}b"])
    assert "secret" not in str(caught.value)
    check_batch_arguments("node.exe", [f"a{character}b"])
    check_batch_arguments(program, ["-y", "@scope/server", "C:\\a folder", "x=y;z,(1)"])
