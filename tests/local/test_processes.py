"""The process group of a server that was started: all of it is told, and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sansmcp_local import signal_group

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
        signal_group(process.pid, kill=True)


def test_all_of_a_group_is_told_and_made_to_end(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout is not None
    signal_group(parent.pid, kill=False)
    assert parent.wait(timeout=20) == -signal.SIGTERM
    assert parent.stdout.readline() == "child told\n"
    signal_group(parent.pid, kill=True)  # the group is there as long as anybody is in it
    assert parent.stdout.read() == ""


def test_a_group_that_is_gone(parent: subprocess.Popen[str]) -> None:
    signal_group(parent.pid, kill=True)
    assert parent.wait(timeout=20) == -signal.SIGKILL
    assert parent.stdout is not None
    assert parent.stdout.read() == ""
    for kill in (False, True):
        signal_group(parent.pid, kill=kill)
    assert os.getpgrp() != parent.pid
