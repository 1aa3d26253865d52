"""Printing that survives a reader who has seen enough (``sansmcp demo | head``)."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def say(line: str, file: TextIO | None = None) -> None:
    """Print a line to stdout, or to another file, at once."""
    try:
        print(line, file=file, flush=True)
    except BrokenPipeError:
        # Nobody reads any more. What follows, and the flush at exit, must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), (file or sys.stdout).fileno())
