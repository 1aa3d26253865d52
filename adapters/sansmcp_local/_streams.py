"""Exclusive use of the real standard input and output."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from types import TracebackType

from sansmcp.types import Self

_INPUT, _OUTPUT, _ERROR = 0, 1, 2


class StandardStreams:
    """A context manager that takes standard input and output for the protocol alone.

    Within the block, a ``print`` goes to standard error, line by line, and other code that reads
    standard input finds it empty. Child processes inherit both replacements. So neither can disturb
    the protocol.

    Entering the block raises OSError if this process was started without one of the two.
    """

    input: int
    """The file descriptor to read from."""
    output: int
    """The file descriptor to write to."""

    def __enter__(self) -> Self:
        if sys.__stdin__ is None or sys.__stdout__ is None:
            # Descriptors 0 and 1 may be in use for other files by now.
            raise OSError(errno.EBADF, "Standard input or output is closed")
        self._was_line_buffered = _buffer_lines(wanted=True)
        sys.stdout.flush()
        self.input, self.output = os.dup(_INPUT), os.dup(_OUTPUT)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, _INPUT)
        os.dup2(nothing if sys.__stderr__ is None else _ERROR, _OUTPUT)
        os.close(nothing)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):  # standard error may be a pipe that is closed
            sys.stdout.flush()
            _buffer_lines(wanted=self._was_line_buffered)
        os.dup2(self.input, _INPUT)
        os.dup2(self.output, _OUTPUT)
        os.close(self.input)
        os.close(self.output)


def _buffer_lines(*, wanted: bool) -> bool:
    """Turn line buffering of ``sys.stdout`` on or off. Return whether it was on before."""
    before = bool(sys.stdout.line_buffering)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=wanted)
    return before
