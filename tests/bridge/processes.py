"""Servers and bridges as processes of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from ..cli.conftest import ROOT, command, environment

STDIO = command("serve", "--stdio")
"""The example application on stdio."""


@contextmanager
def running(name: str, *words: str) -> Generator[str, None, None]:
    """Run ``sansmcp serve`` or ``sansmcp bridge`` on a free port, and give its URL."""
    with subprocess.Popen(
        command(name, "--http", "127.0.0.1:0", *words),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            assert process.wait(30) == 0
