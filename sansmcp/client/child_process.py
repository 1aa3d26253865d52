"""The server process of a client: start, output and shutdown.

The shutdown sequence closes the standard input of the process. If the process does not exit, it
sends SIGTERM and then SIGKILL. Finally it kills the whole process group, so that the children of a
wrapper script end, too. If the process exits by itself, the rest of its output is read. Then all
requests fail with its exit status and the last lines of its standard error.

Source: every revision, basic/transports: stdio; basic/lifecycle: Shutdown.
"""

from __future__ import annotations

from collections import deque

import attrs

from ..codecs.ndjson import NdjsonDecoder
from ..effects import CloseStdin, KillProcess, StartProcess, TerminateProcess
from ..errors import ProcessEnded, RemoteProtocolError, describe_noise
from ..states import PROCESS, ProcessEvent, ProcessState, advance
from ..types import Idle, hide_program
from .outcomes import ProcessClosed, ProcessFinished, ProcessOutcome, ProcessStep, ProcessUseless

_OUTPUT_TIMEOUT = 1.0
"""Seconds to wait for the rest of the output after the exit. A child of the process may hold the
pipe open.
"""

_UNUSED_TIMEOUT = 1.0
"""Seconds for each step of the shutdown of a process that has opened no session, at most."""

_LAST_LINES = 20
"""The number of lines of standard error, and of invalid output, that are kept for an error."""

_MAX_LOG_LINE_BYTES = 64 * 1024


@attrs.define(eq=False, repr=False)
class ChildProcess:
    """The server process, started once or twice."""

    command: tuple[str, ...]
    _step_timeout: float
    """Seconds for each step of the shutdown sequence."""
    state: ProcessState = attrs.field(default=ProcessState.NEW, init=False)
    output_ended: bool = attrs.field(default=False, init=False)
    """True if its standard output was closed."""
    has_served: bool = attrs.field(default=False, init=False)
    """True if it has opened a session; set by the client."""
    log_ended: bool = attrs.field(default=False, init=False)
    """True if its standard error was closed."""
    _log: NdjsonDecoder = attrs.field(init=False)
    _last_lines: deque[str] = attrs.field(init=False)
    _noise: deque[str] = attrs.field(init=False)
    """The last lines of its output that are not messages."""
    _status: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._forget()

    @property
    def printed(self) -> tuple[str, ...]:
        """The last lines of its output and standard error that are not messages."""
        return *describe_noise(self._noise), *self._last_lines

    def start(self) -> StartProcess:
        """Start the process, for the first time or again."""
        self._advance(ProcessEvent.START)
        self._forget()
        return StartProcess(self.command)

    def close(self) -> ProcessStep | None:
        """Start the shutdown sequence; None if the process is not running, or ends already.

        A process that has opened no session has nothing to finish, and gets little time.
        """
        if self.state is not ProcessState.RUNNING:
            return None
        if not self.has_served:
            self._step_timeout = min(self._step_timeout, _UNUSED_TIMEOUT)
        self._advance(ProcessEvent.CLOSE)
        return ProcessStep(CloseStdin(), self._step_timeout)

    def exited(self, status: int) -> ProcessStep:
        """Record that the process has exited; the rest of its output may still arrive."""
        self._status = status
        self._advance(ProcessEvent.EXITED)
        return ProcessStep(None, _OUTPUT_TIMEOUT)

    def failed(self, reason: str) -> ProcessClosed:
        """Record that the process could not be started."""
        self._advance(ProcessEvent.EXITED)
        self._advance(ProcessEvent.OUTPUT_READ)
        program = self.command[0]
        text = f"{hide_program(program)!r} could not be started: {reason}"
        if hide_program(program) != program:
            text += "; write the program and its arguments as words of their own"
        elif program.endswith(".py"):
            text += "; to run a script write python before it"
        return ProcessClosed(ProcessEnded(text, status=None, log=()))

    def noise(self, line: bytes) -> None:
        """Record a line of its output that is not a message."""
        self._noise.append(line.decode("utf-8", "replace"))

    def log(self, data: bytes) -> list[str]:
        """Receive bytes of its standard error, and return the complete lines."""
        self._log.receive_data(data)
        return self._read_log()

    def output_read(self, *, is_closing: bool) -> ProcessStep | ProcessFinished | None:
        """Return the next step after all of its output was read; None to wait.

        ``is_closing``: True if the client is closing.
        """
        if self.state is ProcessState.EXITED:
            return ProcessFinished(self._last_log()) if self.log_ended or is_closing else None
        if self.state is ProcessState.RUNNING:
            # A process without output is of no use. Wait a moment for its exit status, which the
            # error contains.
            self._advance(ProcessEvent.CLOSE)
            return ProcessStep(CloseStdin(), _OUTPUT_TIMEOUT)
        return None

    def due(self, *, is_closing: bool, is_held: bool) -> ProcessOutcome:
        """Return the next step after the time of one has passed.

        Args:
            is_closing: True if the client is closing.
            is_held: True if its output is not read because the event queue is full.
        """
        if self.state is ProcessState.EXITED:
            if is_held and not is_closing:
                return ProcessStep(None, self._step_timeout)
            return ProcessFinished(self._last_log())
        if self.state is ProcessState.CLOSING and not is_closing:
            return ProcessUseless(self._error(), self._step_timeout)
        self._advance(ProcessEvent.TIMEOUT)
        if self.state is ProcessState.TERMINATING:
            return ProcessStep(TerminateProcess(), self._step_timeout)
        if self.state is ProcessState.KILLING:
            return ProcessStep(KillProcess(), self._step_timeout)
        return ProcessClosed(self._error())  # it has not exited after SIGKILL: give up

    def closed(self) -> ProcessClosed:
        """Record that its output was read, or is no longer needed."""
        self._advance(ProcessEvent.OUTPUT_READ)
        return ProcessClosed(self._error())

    def _forget(self) -> None:
        """Discard the output and status of the process before."""
        self._status, self.output_ended, self.log_ended = None, False, False
        self._log = NdjsonDecoder(_MAX_LOG_LINE_BYTES)
        self._last_lines = deque(maxlen=_LAST_LINES)
        self._noise = deque(maxlen=_LAST_LINES)

    def _last_log(self) -> list[str]:
        """Return the rest of its standard error, after its output was read."""
        self._log.receive_eof()
        return self._read_log()

    def _read_log(self) -> list[str]:
        lines: list[str] = []
        while True:
            try:
                line = self._log.next_event()
            except RemoteProtocolError:
                continue  # the line was too long and was dropped; the next one follows
            if isinstance(line, Idle):
                self._last_lines.extend(lines)
                return lines
            lines.append(line.decode("utf-8", "replace"))

    def _error(self) -> ProcessEnded:
        if self._status is None:
            how = "has closed its output, but has not exited"
        elif self._status < 0:
            how = f"has ended by signal {-self._status}"
        else:
            how = f"has ended with status {self._status}"
        text = f"The server process {hide_program(self.command[0])!r} {how}"
        if self.printed:
            text += ":"
        return ProcessEnded(
            text, status=self._status, log=tuple(self._last_lines), output=tuple(self._noise)
        )

    def _advance(self, event: ProcessEvent) -> None:
        self.state = advance(PROCESS, self.state, event)
