"""A file in which processes that may be killed at any time record what they execute.

Each record is one ``write`` to a file opened with ``O_APPEND``, so records of several processes do
not mix, and what a process has written survives it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast

import attrs

Mark = Literal["begin", "end", "cancelled", "failed"]


@attrs.frozen
class Record:
    """One line of the journal.

    Attributes:
        time: seconds on the monotonic clock of the machine, which all processes share.
        mark: what happened to the execution.
        process: the id of the process.
        call: the name of the call.
        round: the number of the handler's run within the call, from 0.
    """

    time: float
    mark: Mark
    process: int
    call: str
    round: int


class Journal:
    """Appends records to the file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process = os.getpid()

    def add(self, mark: Mark, call: str, round: int) -> None:
        """Append a record of this process."""
        line = f"{time.monotonic():.6f} {mark} {self._process} {call} {round}\n"
        os.write(self._file, line.encode())


def read_journal(path: Path) -> Iterator[Record]:
    """Read all records, in the order in which they were appended."""
    if not path.exists():
        return
    for line in path.read_text("ascii").splitlines():
        at, mark, process, call, round = line.split(" ")
        yield Record(float(at), cast(Mark, mark), int(process), call, int(round))
