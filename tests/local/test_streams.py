"""Standard input and output are the protocol's alone; whoever else uses them does no harm."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ..cli.conftest import environment

TAKING = """
import os, subprocess, sys
from sansmcp_local import StandardStreams

print("before")
with StandardStreams() as streams:
    {inside}
print("after", sys.stdin.readline().strip())
"""


def run(inside: str, redirection: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program that takes its streams; it is given two lines to read."""
    variables = environment()
    variables.pop("PYTHONUNBUFFERED", None)
    program = TAKING.replace("{inside}", inside.strip().replace("\n", "\n    "))
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", program],
        input="one\ntwo\n",
        capture_output=True,
        timeout=60,
        encoding="utf-8",
        check=False,
        env=variables,
    )


def test_the_protocol_has_them_and_gives_them_back() -> None:
    done = run('os.write(streams.output, os.read(streams.input, 4).upper() + b"\\n")')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["before", "ONE", "after", "two"]


def test_a_print_shows_on_standard_error_at_once() -> None:
    done = run('print("printed")\nos.write(2, b"end\\n")')
    assert done.stdout == "before\nafter one\n"
    assert done.stderr == "printed\nend\n"


def test_whoever_reads_finds_nothing() -> None:
    child = "import sys; print(repr(sys.stdin.read()))"
    done = run(
        "print(repr(sys.stdin.read()))\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    assert done.stderr == "''\n''\n"
    assert done.stdout == "before\nafter one\n"


def test_children_do_not_hold_them_open() -> None:
    child = "import os, sys; os.fstat(int(sys.argv[1]))"
    done = run(
        "for number in (streams.input, streams.output):\n"
        f"    command = [sys.executable, '-c', {child!r}, str(number)]\n"
        "    print(subprocess.run(command, close_fds=False, stderr=subprocess.DEVNULL).returncode)"
    )
    assert done.stderr == "1\n1\n"


def test_they_come_back_after_an_error() -> None:
    done = run("print('x')\nraise SystemExit(streams.input > 2 and streams.output > 2)")
    assert (done.returncode, done.stdout, done.stderr) == (1, "before\n", "x\n")


@pytest.mark.parametrize("redirection", ["<&-", ">&-"])
def test_a_process_that_was_started_without_one(redirection: str) -> None:
    done = run("pass", redirection)
    assert done.returncode == 1
    assert done.stderr.endswith("Standard input or output is closed\n")


def test_a_process_that_was_started_without_standard_error() -> None:
    done = run("print('lost')\nos.write(streams.output, b'kept ')", "2>&-")
    assert (done.returncode, done.stdout) == (0, "before\nkept after one\n")
