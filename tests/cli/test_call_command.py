"""``sansmcp call TOOL -- COMMAND``: a server is started for the one call, and ends with it."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from pathlib import Path

import pytest

from .conftest import command, environment, failed, run, run_in_process, started, text_of

SERVER = ("--", *command("serve", "--stdio"))


def shell(script: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script)


def test_the_result_is_on_stdout() -> None:
    called = run("call", "echo", '{"text": "Grüße"}', *SERVER)
    assert (called.status, called.err) == (0, "")
    assert text_of(called.out) == "Grüße"


def test_options_of_the_server_are_not_ours() -> None:
    called = run_in_process("call", "--timeout", "20", "echo", '{"text": "a"}', *SERVER, "--trace")
    assert text_of(called.out) == "a"
    assert "client <" not in called.err


def test_progress_is_told_on_stderr() -> None:
    called = run_in_process("call", "slow", '{"steps": 3, "delay": 0.01}', *SERVER)
    assert text_of(called.out) == "3 steps done"
    assert called.err.count("progress") == 3


def test_what_the_server_logs_is_told_on_stderr() -> None:
    called = run_in_process("call", "echo", '{"text": "a"}', *SERVER, "--trace")
    assert text_of(called.out) == "a"
    assert re.search(r'^server: server < .*"tools/call"', called.err, re.MULTILINE)


def test_the_trace_shows_the_process_and_its_end() -> None:
    called = run_in_process("call", "--trace", "echo", '{"text": "a"}', *SERVER)
    shown = called.err.splitlines()
    assert shown[0].startswith(f"client > starts {sys.executable} -m sansmcp_cli serve --stdio")
    assert "client > end of input" in shown
    assert "client < exit status 0" in shown


def test_a_tool_that_fails() -> None:
    called = run_in_process("call", "fail", '{"reason": "no paper"}', *SERVER)
    assert (called.status, text_of(called.out)) == (1, "no paper")


def test_noise_on_its_stdout_does_no_harm() -> None:
    noisy = shell(f"echo hello; {' '.join(SERVER[1:])}")
    called = run_in_process("call", "echo", '{"text": "a"}', *noisy)
    assert text_of(called.out) == "a"


def test_nothing_of_the_server_is_left_behind(tmp_path: Path) -> None:
    """A child of the server holds a pipe open as long as it lives."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = f"exec 9> {pipe}; sleep 600 & exec 9>&-; {' '.join(SERVER[1:])}"
    assert run("call", "echo", '{"text": "a"}', *shell(script)).status == 0
    ended, _, _ = select.select([held], [], [], 20)  # what was killed takes a moment to be gone
    assert ended
    assert os.read(held, 1) == b""  # nobody holds it any more
    os.close(held)


NO_SERVER = (
    "The command must start an MCP server that reads messages from its standard input and writes "
    "nothing else to its standard output"
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("nosuch", *SERVER),
            "There is no tool 'nosuch'; there are echo, add, slow, big, ask, fail",
        ),
        (
            ("echo", "--", "true"),
            f"The server process 'true' has ended with status 0\nsansmcp: {NO_SERVER}",
        ),
        (
            ("echo", *shell("kill -9 $$")),
            "The server process 'sh' has ended by signal 9",
        ),
        (
            ("echo", *shell("echo hello; echo no config >&2; exit 3")),
            "The server process 'sh' has ended with status 3:\n"
            f"  (stdout, not an MCP message) hello\n  no config\nsansmcp: {NO_SERVER}",
        ),
        (
            ("echo", "--", "./nosuch"),
            "'./nosuch' could not be started: [Errno 2] No such file or directory: './nosuch'",
        ),
        (
            ("echo", "--", "./nosuch --key secret"),
            "'./nosuch ...' could not be started: [Errno 2] No such file or directory: "
            "'./nosuch ...'; write the program and its arguments as words of their own",
        ),
        (
            ("echo", "--", "no_such.py"),
            "'no_such.py' could not be started: [Errno 2] No such file or directory: 'no_such.py'; "
            "to run a script write python before it",
        ),
        (
            ("echo", "--timeout", "0.2", *shell("cat > /dev/null")),
            "initialize got no response from the server process within 0.2 s (connect_timeout)",
        ),
        (("echo", "--state-file", "x", *SERVER), "Either a command or --state-file, not both"),
    ],
)
def test_errors_tell_what_to_do(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])  # for the server
    assert failed(run_in_process("call", *arguments)) == said


@pytest.mark.parametrize("adapter", ["asyncio", "blocking"])
def test_an_interrupt_cancels_the_call(adapter: str) -> None:
    server = command("serve", "--stdio", "--adapter", adapter)
    arguments = '{"steps": 1000000}'
    options = ("--adapter", adapter, "--trace")
    with started("call", "slow", arguments, *options, "--", *server) as calling:
        assert calling.stderr is not None
        assert any("progress 1 of" in line for line in calling.stderr)
        calling.send_signal(signal.SIGINT)
        out, err = calling.communicate(timeout=20)
    assert (calling.returncode, out) == (130, "")
    assert "notifications/cancelled" in err
    assert "Traceback" not in err
