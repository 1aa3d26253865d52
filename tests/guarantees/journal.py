"""What handlers have done: one line for each step, in a file that all processes append to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import attrs

STARTED, ENDED, CANCELLED = "started", "ended", "cancelled"


@attrs.frozen
class Journal:
    """The steps of the handlers of all calls."""

    path: Path

    def write(self, call: str, step: str) -> None:
        """Append a line, in one write, so that lines of several processes never mix."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{call} {step}\n".encode())
        finally:
            os.close(file)

    def steps(self, call: str) -> list[str]:
        """The steps of one call, in order."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [step for name, step in map(str.split, lines) if name == call]

    def calls(self, step: str) -> list[str]:
        """The calls that have done a step, each as often as it did."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [name for name, done in map(str.split, lines) if done == step]

    def wait_for(self, call: str, *steps: str) -> None:
        """Wait until the journal has one of these steps; raises TimeoutError after 30 seconds."""
        deadline = time.monotonic() + 30
        while not set(steps) & set(self.steps(call)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"Call {call} has only {self.steps(call)}")
            time.sleep(0.01)
