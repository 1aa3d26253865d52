"""The parts that a driver reads from a server process on stdio.

The driver starts the process, reads from it, and feeds these parts to
:meth:`sansmcp.Client.receive_process_part`. They correspond to the parts of HTTP messages.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from .types import Value, elide


@attrs.frozen(eq=False, repr=False)
class StdoutData(Value):
    """Bytes of the process's standard output."""

    data: bytes = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class StdoutClosed(Value):
    """The process has closed its standard output."""


@attrs.frozen(eq=False, repr=False)
class StderrData(Value):
    """Bytes of the process's standard error."""

    data: bytes = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class StderrClosed(Value):
    """The process has closed its standard error."""


@attrs.frozen(eq=False, repr=False)
class ProcessExited(Value):
    """The process has ended.

    ``status``: its exit status; the negative number of the signal that ended it.
    """

    status: int


@attrs.frozen(eq=False, repr=False)
class ProcessStartFailed(Value):
    """The process could not be started. ``reason`` is a text for the user."""

    reason: str


ProcessPart: TypeAlias = (
    StdoutData | StdoutClosed | StderrData | StderrClosed | ProcessExited | ProcessStartFailed
)
