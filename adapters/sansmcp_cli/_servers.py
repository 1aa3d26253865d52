"""Server processes of the demonstration, and the counts of their tools' runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs

import sansmcp
from sansmcp_local import APART, ki_protected

from .example import EXECUTION_LOG


@attrs.frozen
class Servers:
    """Several server processes of one application."""

    ports: list[int]
    _log: Path

    def executions(self) -> Counter[str]:
        """The number of started runs of a tool, for each value of its argument ``call``.

        The tools log their runs to a file that all processes share.
        """
        lines = self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else ()
        return Counter(str(json.loads(line)["arguments"].get("call")) for line in lines)


@contextmanager
def started(
    adapter: str, reference: str | None = None, count: int = 1
) -> Generator[Servers, None, None]:
    """Start servers that share a store, and kill them at the end.

    ``reference``: the application as ``module:app``, or None for the example.
    """
    with TemporaryDirectory() as directory, ExitStack() as stack:
        log = Path(directory) / "executions.jsonl"
        store = str(Path(directory) / "store.db")
        command = (
            *(sys.executable, "-m", "sansmcp_cli", "serve", "--multi-turn"),
            *(() if reference is None else (reference,)),
            *("--http", "127.0.0.1:0", "--store", store, "--adapter", adapter),
            "--stop-on-stdin-eof",  # ends when this process ends, for any reason
        )
        environment = {**os.environ, EXECUTION_LOG: str(log)}
        processes = [stack.enter_context(_started(command, environment)) for _ in range(count)]
        yield Servers([_port_of(process) for process in processes], log)


@contextmanager
def _started(
    command: tuple[str, ...], environment: dict[str, str]
) -> Generator[subprocess.Popen[str], None, None]:
    with ExitStack() as stack:
        # An interrupt during the start must not leave the process running.
        with ki_protected(threading.RLock()):
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                **APART,
            )
            stack.enter_context(process)
            stack.callback(process.kill)  # its state is only in the file, which is deleted, too
        yield process


def _port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return sansmcp.Url.parse(process.stdout.readline().strip()).port
