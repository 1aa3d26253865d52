"""The real standard input and output, out of the way of everybody else."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

_INPUT, _OUTPUT, _ERROR = 0, 1, 2


class StandardStreams:
    """Takes standard input and output for the protocol alone, as long as the block lasts.

    Meanwhile a ``print`` goes to standard error, and whoever reads standard input, a child process
    among them, finds it empty: neither can disturb the conversation.
    """

    input: int
    """The file descriptor to read from."""
    output: int
    """The file descriptor to write to."""

    def __enter__(self) -> Self:
        sys.stdout.flush()
        self.input, self.output = os.dup(_INPUT), os.dup(_OUTPUT)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, _INPUT)
        os.close(empty)
        os.dup2(_ERROR, _OUTPUT)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.stdout.flush()
        os.dup2(self.input, _INPUT)
        os.dup2(self.output, _OUTPUT)
        os.close(self.input)
        os.close(self.output)
