"""A server that is a process of ours: how it is started, watched and ended.

To end it, its input is closed; if it does not go by itself it is asked to (SIGTERM), and then made
to (SIGKILL); at last its whole process group goes, so that a wrapper leaves nothing behind. When
the process ends on its own, what it has written is still read, then all requests fail, with its
exit status and the last lines of its standard error.

Source: every revision, basic/transports: stdio; basic/lifecycle: Shutdown.
"""

from __future__ import annotations

from collections import deque

import attrs

from ..codecs.ndjson import NdjsonDecoder
from ..effects import CloseStdin, KillProcess, StartProcess, TerminateProcess
from ..errors import ProcessEnded, RemoteProtocolError, describe_noise
from ..states import PROCESS, ProcessEvent, ProcessState, advance
from ..types import Idle
from .outcomes import ProcessClosed, ProcessFinished, ProcessOutcome, ProcessStep, ProcessUseless

_OUTPUT_TIMEOUT = 1.0
"""Seconds for the rest of the output of a process that has ended: a child of it may hold it open.
"""

_LAST_LINES = 20
"""Lines of standard error that are kept to explain an end."""

_MAX_LOG_LINE_BYTES = 64 * 1024


@attrs.define(eq=False, repr=False)
class ChildProcess:
    """The server process, started once or twice."""

    command: tuple[str, ...]
    _step_timeout: float
    """Seconds for each step of its end."""
    state: ProcessState = attrs.field(default=ProcessState.NEW, init=False)
    output_ended: bool = attrs.field(default=False, init=False)
    """True if nothing more comes on its standard output."""
    log_ended: bool = attrs.field(default=False, init=False)
    """True if nothing more comes on its standard error."""
    _log: NdjsonDecoder = attrs.field(init=False)
    _last_lines: deque[str] = attrs.field(init=False)
    _noise: deque[str] = attrs.field(init=False)
    """The last lines of its output that are no messages."""
    _status: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._forget()

    @property
    def printed(self) -> tuple[str, ...]:
        """What the process has printed that is for people."""
        return *describe_noise(self._noise), *self._last_lines

    def start(self) -> StartProcess:
        """Start it, for the first time or again."""
        self._advance(ProcessEvent.START)
        self._forget()
        return StartProcess(self.command)

    def close(self) -> ProcessStep | None:
        """Ask it to end; None if it is about to, or has."""
        if self.state is not ProcessState.RUNNING:
            return None
        self._advance(ProcessEvent.CLOSE)
        return ProcessStep(CloseStdin(), self._step_timeout)

    def exited(self, status: int) -> ProcessStep:
        """Record that it has ended; what it wrote may still come."""
        self._status = status
        self._advance(ProcessEvent.EXITED)
        return ProcessStep(None, _OUTPUT_TIMEOUT)

    def failed(self, reason: str) -> ProcessClosed:
        """Record that it could not be started."""
        self._advance(ProcessEvent.EXITED)
        self._advance(ProcessEvent.OUTPUT_READ)
        text = f"{self.command[0]!r} could not be started: {reason}"
        return ProcessClosed(ProcessEnded(text, status=None, log=()))

    def noise(self, line: bytes) -> None:
        """Record a line of its output that is no message."""
        self._noise.append(line.decode("utf-8", "replace"))

    def log(self, data: bytes) -> list[str]:
        """Take bytes of its standard error, and return the lines that are complete."""
        self._log.receive_data(data)
        return self._read_log()

    def last_log(self) -> list[str]:
        """Return the rest of its standard error, once its output was read."""
        self._log.receive_eof()
        return self._read_log()

    def output_read(self, *, is_closing: bool) -> ProcessStep | ProcessFinished | None:
        """Conclude what follows the end of its output, when all of it was read; None: nothing yet.

        ``is_closing``: True if the client does not want to hear from it any more.
        """
        if self.state is ProcessState.EXITED:
            return ProcessFinished() if self.log_ended or is_closing else None
        if self.state is ProcessState.RUNNING:
            # It says nothing more, so it is of no use. Its status may tell why, if it comes soon.
            self._advance(ProcessEvent.CLOSE)
            return ProcessStep(CloseStdin(), _OUTPUT_TIMEOUT)
        return None

    def due(self, *, is_closing: bool, is_held: bool) -> ProcessOutcome:
        """Conclude what follows a step that took too long.

        Args:
            is_closing: True if the client does not want to hear from it any more.
            is_held: True if its output waits for the application to take events.
        """
        if self.state is ProcessState.EXITED:
            if is_held and not is_closing:
                return ProcessStep(None, self._step_timeout)
            return ProcessFinished()
        if self.state is ProcessState.CLOSING and not is_closing:
            return ProcessUseless(self._error(), self._step_timeout)
        self._advance(ProcessEvent.TIMEOUT)
        if self.state is ProcessState.TERMINATING:
            return ProcessStep(TerminateProcess(), self._step_timeout)
        if self.state is ProcessState.KILLING:
            return ProcessStep(KillProcess(), self._step_timeout)
        return ProcessClosed(self._error())  # not even that helped: it is left to the system

    def closed(self) -> ProcessClosed:
        """Record that all it wrote was read, or will not come."""
        self._advance(ProcessEvent.OUTPUT_READ)
        return ProcessClosed(self._error())

    def _forget(self) -> None:
        """Forget what a process before has said."""
        self._status, self.output_ended, self.log_ended = None, False, False
        self._log = NdjsonDecoder(_MAX_LOG_LINE_BYTES)
        self._last_lines = deque(maxlen=_LAST_LINES)
        self._noise = deque(maxlen=_LAST_LINES)

    def _read_log(self) -> list[str]:
        lines: list[str] = []
        while True:
            try:
                line = self._log.next_event()
            except RemoteProtocolError:
                continue  # its end was too far away; the next one follows
            if isinstance(line, Idle):
                self._last_lines.extend(lines)
                return lines
            lines.append(line.decode("utf-8", "replace"))

    def _error(self) -> ProcessEnded:
        if self._status is None:
            how = "has closed its output, but does not end"
        elif self._status < 0:
            how = f"has ended by signal {-self._status}"
        else:
            how = f"has ended with status {self._status}"
        text = f"The server process {self.command[0]!r} {how}"
        if self.printed:
            text += ":"
        return ProcessEnded(
            text, status=self._status, log=tuple(self._last_lines), output=tuple(self._noise)
        )

    def _advance(self, event: ProcessEvent) -> None:
        self.state = advance(PROCESS, self.state, event)
