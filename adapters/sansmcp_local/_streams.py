"""The real standard input and output, out of the way of everybody else."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from types import TracebackType

from sansmcp.types import Self

_INPUT, _OUTPUT, _ERROR = 0, 1, 2


class StandardStreams:
    """Takes standard input and output for the protocol alone, as long as the block lasts.

    Meanwhile a ``print`` goes to standard error, line by line, and whoever reads standard input, a
    child process among them, finds it empty: neither can disturb the conversation.

    Raises OSError if this process was started without one of the two.
    """

    input: int
    """The file descriptor to read from."""
    output: int
    """The file descriptor to write to."""

    def __enter__(self) -> Self:
        if sys.__stdin__ is None or sys.__stdout__ is None:
            # Their numbers may be somebody else's by now.
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
        with contextlib.suppress(OSError):  # nobody reads standard error
            sys.stdout.flush()
            _buffer_lines(wanted=self._was_line_buffered)
        os.dup2(self.input, _INPUT)
        os.dup2(self.output, _OUTPUT)
        os.close(self.input)
        os.close(self.output)


def _buffer_lines(*, wanted: bool) -> bool:
    """Let a ``print`` show at once, or not; returns what it did before."""
    before = bool(sys.stdout.line_buffering)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=wanted)
    return before
