"""Printing that does not fail when the reader closes the pipe (``sansmcp demo | head``)."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from typing import Any, Protocol, TextIO

from sansmcp.trace import Tracer
from sansmcp.types import escape_controls


class Commands(Protocol):
    """The collection to which commands are added."""

    def add_parser(self, name: str, **settings: Any) -> ArgumentParser:
        """Add a command, and return its parser."""
        ...


class UsageError(Exception):
    """The command was used wrongly."""


def print_line(line: str, file: TextIO | None = None) -> None:
    """Print one line to stdout, or to another file, at once; its control characters are escaped.

    It is one write, so that the lines of two threads do not mix.
    """
    try:
        print(escape_controls(line) + "\n", end="", file=file, flush=True)
    except BrokenPipeError:
        # The reader has closed the pipe. Later prints, and the flush at exit, must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), (file or sys.stdout).fileno())


def print_prompt(text: str) -> None:
    """Print a question to stderr, and stay in its last line. The caller has escaped it."""
    print(text, end="", file=sys.stderr, flush=True)


def print_error(error: Exception) -> None:
    """Print the text of an error to stderr, which may have several lines."""
    for line in f"sansmcp: {error}".split("\n"):
        print_line(line, sys.stderr)


def tracer(who: str) -> Tracer:
    """Return a tracer that prints the messages to stderr."""
    return Tracer(who, lambda line: print_line(line, sys.stderr))
