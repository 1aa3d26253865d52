"""Printing to whatever standard output is.

It may be of any encoding, closed from the beginning, closed by its reader (``sansmcp demo |
head``), or on a full disk.
"""

from __future__ import annotations

import argparse
import codecs
import io
import os
import shutil
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import Any, Protocol, TextIO

from sansmcp.errors import CallError
from sansmcp.trace import Tracer
from sansmcp.types import escape_controls, escaped


class Commands(Protocol):
    """The collection to which commands are added."""

    def add_parser(self, name: str, **settings: Any) -> ArgumentParser:
        """Add a command, and return its parser."""
        ...


class Formatter(argparse.HelpFormatter):
    """Formats the help of a command; examples keep their lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLES):
            return text
        return super()._fill_text(text, width, indent)


EXAMPLES = "examples:\n"
"""The beginning of a text with a line for each example."""


def examples(*commands: str) -> str:
    """Return the end of the help of a command: examples, without the name of this program."""
    return EXAMPLES + "\n".join(f"  sansmcp {each}" for each in commands)


class Options(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **settings: Any) -> Any:
        """Add an option."""
        ...

    def set_defaults(self, **defaults: Any) -> None:
        """Set the values of options that are not given."""
        ...


_COMMAND = ": sansmcp "
"""What precedes a command of this program in a text, and its first word."""


class UsageError(Exception):
    """The command was used wrongly."""


def print_line(line: str, file: TextIO | None = None) -> None:
    """Print one line to stdout, or to another file, at once; its control characters are escaped.

    It is one write, so that the lines of two threads do not mix.
    """
    try:
        print(escape_controls(line) + "\n", end="", file=file, flush=True)
    except OSError as error:
        # Later prints, and the flush at exit, must not fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), (file or sys.stdout).fileno())
        if not isinstance(error, BrokenPipeError):  # else the reader has what it wanted
            raise


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout, past its encoding."""
    left = memoryview(data)
    try:
        sys.stdout.flush()
        while left:
            left = left[os.write(sys.stdout.fileno(), left) :]
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare_streams() -> None:
    r"""Make the standard streams of this process fit to be printed to.

    What their encoding lacks is written like control characters, as ``\uXXXX``, so that JSON means
    the same. Streams that are closed are replaced, because the next file or socket would get their
    number.
    """
    codecs.register_error(_ESCAPE, _escape_unencodable)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream: object = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and mode == "w":
            stream.reconfigure(errors=_ESCAPE)


_ESCAPE = "sansmcp-escape"


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(escaped, error.object[error.start : error.end])), error.end


def print_prompt(text: str) -> None:
    """Print a question to stderr, and stay in its last line. The caller has escaped it."""
    print(text, end="", file=sys.stderr, flush=True)


def print_error(error: Exception) -> None:
    """Print the text of an error to stderr.

    That of a CallError has several lines, of which each is escaped already. Any other is one line:
    a line break in it is of a name that a server has chosen. Lines after the first are indented, so
    that none looks like one of this command.
    """
    text = str(error)
    first, *others = text.split("\n") if isinstance(error, CallError) else [text]
    print_wrapped(f"sansmcp: {first}")
    for line in others:
        print_wrapped(f"  {line}")


def print_wrapped(line: str) -> None:
    """Print a line to stderr; at a terminal it is broken between words, if it is too long.

    A command at its end stays whole: in a shell to which it is copied a line break would end it,
    and what follows, such as a scope that a server has named, would be a command of its own.
    """
    parts = [line]
    if sys.stderr.isatty():
        width = width_of_terminal()
        text, with_command, words = escape_controls(line).partition(_COMMAND)
        if with_command:
            text += ":"
        parts = broken(text, width)
        if with_command:
            command = f"sansmcp {words}"
            if columns_of(parts[-1]) + 1 + columns_of(command) <= width:
                parts[-1] += f" {command}"
            else:
                parts.append(f"  {command}")
    for part in parts:
        print_line(part, sys.stderr)


def width_of_terminal() -> int:
    """Return the columns of the terminal, and at least 20."""
    return max(shutil.get_terminal_size().columns, 20)


def broken(line: str, width: int) -> list[str]:
    """Return a line, broken between words where it is too long; what follows a break is indented.

    One without spaces says little, and may be a URL that a person copies: it stays whole.
    """
    if line.isascii() and " " not in line:
        return [line]
    parts, columns = [""], 0
    for char in line:
        needed = columns_of(char)
        while columns + needed > width:
            head, _, word = parts[-1].rpartition(" ")
            if head.strip():
                parts[-1:] = [head, f"  {word}"]
            else:  # the word alone is as long as the line
                parts.append("  ")
            columns = columns_of(parts[-1])
        parts[-1] += char
        columns += needed
    return parts


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes at most.

    Which characters take two changes with each version of Unicode, and a terminal may have a newer
    one than Python; below U+1100 there are none.
    """
    return sum(1 if char < "\u1100" else 2 for char in text)


def add_trace(parser: Options, what: str) -> None:
    """Add the option that shows a conversation; ``what`` is that for the help."""
    parser.add_argument(
        "--trace",
        action="store_const",
        const="short",
        help=f"show {what} on stderr; --trace=full cuts nothing",
    )
    parser.add_argument(_FULL, action="store_const", const="full", dest="trace", help=SUPPRESS)


_FULL = "--trace-full"


def without_value_of_trace(word: str) -> str:
    """Return an option that the parser takes for ``--trace=full``.

    It has no options whose value can be left out and is never the next word.
    """
    return _FULL if word == "--trace=full" else word


def tracer(options: Namespace, who: str) -> Tracer | None:
    """Return a tracer that prints the messages to stderr; None without ``--trace``."""
    if not options.trace:
        return None
    is_full = options.trace == "full"
    return Tracer(who, lambda line: print_line(line, sys.stderr), is_full=is_full)
