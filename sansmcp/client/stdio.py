"""stdio: a server that is a process of ours, one message per line.

The client starts the process and ends it. To end it, its input is closed; if it does not go by
itself it is asked to (SIGTERM), and then made to (SIGKILL); at last its whole process group goes,
so that a wrapper leaves nothing behind. When the process ends on its own, what it has written is
still read, then all requests fail, with its exit status and the last lines of its standard error.

What comes on its standard output and is no message is shown to the application and skipped.

Source: every revision, basic/transports: stdio; basic/lifecycle: Shutdown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from ..codecs import jsonrpc
from ..codecs.headers import Headers
from ..codecs.ndjson import NdjsonDecoder, encode_line
from ..effects import CloseInput, KillProcess, StartProcess, TerminateProcess, WriteInput
from ..errors import (
    CallError,
    LocalProtocolError,
    ProcessEnded,
    RemoteProtocolError,
    describe_noise,
)
from ..events import Noise, NotDelivered, ServerLogged
from ..messages import ErrorResponse, Message, Notification, Request, Response
from ..process import (
    ErrorEnd,
    ErrorOutput,
    Output,
    OutputEnd,
    ProcessExit,
    ProcessFailed,
    ProcessPart,
)
from ..states import PROCESS, ProcessEvent, ProcessState, advance
from ..timers import Timer
from ..types import STDIO, Idle, never
from .core import ClientCore
from .modern.requests import dress
from .transport import RequestOwner

if TYPE_CHECKING:
    from .conversation import Conversation

_DRAIN = 1.0
"""Seconds for the rest of the output of a process that has ended: a child of it may hold it open.
"""

_LAST_LINES = 20
"""Lines of standard error that are kept to explain an end."""

_LONGEST_LOG_LINE = 64 * 1024


def command_of(target: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command. Raises LocalProtocolError for what is none."""
    try:
        is_command = " ".join(target) != ""
    except TypeError:  # a path, or a word that is one
        is_command = False
    if not is_command:
        raise LocalProtocolError(
            "target must be a URL (str) or a command (sequence of str), "
            f"got {target!r}; for a path write str(path), to run a script ['python', 'server.py']"
        )
    return tuple(target)


@attrs.define(eq=False, repr=False)
class Stdio:
    """The transport of one process."""

    _core: ClientCore
    _conversation: Conversation
    command: tuple[str, ...]
    name: str = attrs.field(default=STDIO, init=False)
    speaks_modern: bool = attrs.field(default=True, init=False)
    is_one_stream: bool = attrs.field(default=True, init=False)
    state: ProcessState = attrs.field(default=ProcessState.NEW, init=False)
    _decoder: NdjsonDecoder = attrs.field(init=False)
    _log: NdjsonDecoder = attrs.field(init=False)
    _last_lines: deque[str] = attrs.field(init=False)
    _noise: deque[str] = attrs.field(init=False)
    """The last lines of its output that are no messages."""
    _status: int | None = attrs.field(init=False)
    _output_ended: bool = attrs.field(init=False)
    _log_ended: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        """Forget what a process before has said."""
        self._status, self._output_ended, self._log_ended = None, False, False
        self._decoder = NdjsonDecoder(self._core.limits.max_message_bytes)
        self._log = NdjsonDecoder(_LONGEST_LOG_LINE)
        self._last_lines = deque(maxlen=_LAST_LINES)
        self._noise = deque(maxlen=_LAST_LINES)

    @property
    def printed(self) -> tuple[str, ...]:
        """What the process has printed that is for people."""
        return *describe_noise(self._noise), *self._last_lines

    # What the conversation wants

    def connect(self) -> None:
        """Start the process; it takes messages from the beginning."""
        self._advance(ProcessEvent.START)
        self._core.effects.append(StartProcess(self.command))
        self._conversation.reachable()

    def carrier(self, owner: RequestOwner, call: int | None) -> _Line:
        """A request is a line."""
        return _Line(self)

    def post(self, message: Notification | Response | ErrorResponse) -> None:
        """A line."""
        if self.state is ProcessState.RUNNING:
            self.write(message)
            self._conversation.delivered(message)
        else:
            self._core.events.append(NotDelivered(message, "the server process ends"))

    def write(self, message: Message) -> None:
        """Send a message."""
        if self.state is ProcessState.RUNNING:
            line = encode_line(jsonrpc.encode(dress(self._core, message)))
            self._core.effects.append(WriteInput(line))

    def listen(self) -> None:
        """Everything comes on the one stream."""

    def leave(self) -> None:
        """Nothing is under way."""

    def farewell(self, error: CallError | None) -> bool:
        """Close the input and wait for the process to end."""
        if self.state in (ProcessState.NEW, ProcessState.ENDED):
            return False
        if self.state is ProcessState.RUNNING:
            self._close(self._core.close_timeout)
        return True

    def time_out(self) -> None:
        """The process took too long for a step of its end."""
        if self.state is ProcessState.EXITED:
            if self._core.is_full and not self._conversation.is_closed:
                self._wait()
            else:
                self._end()
            return
        if self.state is ProcessState.CLOSING and not self._conversation.is_closed:
            self._wait()
            self._conversation.fail(self._error())
            return
        self._advance(ProcessEvent.TIMEOUT)
        match self.state:
            case ProcessState.TERMINATING:
                self._core.effects.append(TerminateProcess())
                self._wait()
            case ProcessState.KILLING:
                self._core.effects.append(KillProcess())
                self._wait()
            case _:  # not even that helped: it is the operating system's now
                self._gone(self._error())

    # What comes of the process

    def receive(self, part: ProcessPart) -> None:
        """Something from the process."""
        if self.state is ProcessState.ENDED:
            return  # from what it has left behind
        match part:
            case Output(data):
                if not self._conversation.is_closed:  # nobody will read it
                    self._decoder.receive_data(data)
                    self.go_on()
            case OutputEnd():
                self._output_ended = True
                self._decoder.receive_eof()
                self.go_on()
            case ErrorOutput(data):
                self._log.receive_data(data)
                self._read_log()
            case ErrorEnd():
                self._log_ended = True
                self.go_on()
            case ProcessExit(status):
                self._exited(status)
            case ProcessFailed(reason):
                self._advance(ProcessEvent.EXITED)
                self._advance(ProcessEvent.DRAINED)
                text = f"{self.command[0]!r} could not be started: {reason}"
                self._gone(ProcessEnded(text, status=None, log=()))
            case _ as impossible:
                never(impossible)

    def go_on(self) -> None:
        """Take the lines that have arrived, as long as the application keeps up and wants them."""
        while not self._conversation.is_closed:
            if self._core.is_full:
                return
            line = b""
            try:
                next_line = self._decoder.next_event()
                if isinstance(next_line, Idle):
                    break
                line = next_line
                self._conversation.inbox.hear(line)
            except RemoteProtocolError as error:
                noise = Noise(line, error)
                self._noise.append(noise.line.decode("utf-8", "replace"))
                self._core.events.append(noise)
        if self._output_ended:
            self._hung_up()

    def _read_log(self) -> None:
        while True:
            try:
                line = self._log.next_event()
            except RemoteProtocolError:
                continue  # its end was too far away; the next one follows
            if isinstance(line, Idle):
                return
            text = line.decode("utf-8", "replace")
            self._last_lines.append(text)
            if not self._core.is_full:  # an application that does not look misses only this
                self._core.events.append(ServerLogged(text))

    def _hung_up(self) -> None:
        """There will be no more output."""
        if self.state is ProcessState.EXITED:
            if self._log_ended or self._conversation.is_closed:
                self._end()
        elif self.state is ProcessState.RUNNING:
            # It says nothing more, so it is of no use. Its status may tell why, if it comes soon.
            self._close(_DRAIN)

    def _close(self, patience: float) -> None:
        self._advance(ProcessEvent.CLOSE)
        self._core.effects.append(CloseInput())
        self._core.timers.set(Timer.PROCESS, self, self._core.now + patience)

    def _exited(self, status: int) -> None:
        self._status = status
        self._advance(ProcessEvent.EXITED)
        self._core.timers.set(Timer.PROCESS, self, self._core.now + _DRAIN)
        self.go_on()

    def _end(self) -> None:
        """The process has ended, and all it wrote was read."""
        self._log.receive_eof()
        self._read_log()
        self._core.effects.append(KillProcess())  # what it has left behind
        self._core.timers.stop(Timer.PROCESS, self)
        if self._conversation.dies_of_questions():
            self._renew()
            self.connect()
        else:
            self._advance(ProcessEvent.DRAINED)
            self._gone(self._error())

    def _gone(self, error: ProcessEnded) -> None:
        self._core.timers.stop(Timer.PROCESS, self)
        if self._conversation.is_closed:
            self._conversation.closed()
        else:
            self._conversation.fail(error)

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

    def _wait(self) -> None:
        self._core.timers.set(Timer.PROCESS, self, self._core.now + self._core.close_timeout)

    def _advance(self, event: ProcessEvent) -> None:
        self.state = advance(PROCESS, self.state, event)


@attrs.define(eq=False, repr=False)
class _Line:
    """A request that is a line; its answer comes like any other."""

    _stdio: Stdio

    def post(self, request: Request) -> None:
        """Send it."""
        self._stdio.write(request)

    def close(self, *, complete: bool = False) -> None:
        """Nothing is held."""

    @property
    def response_headers(self) -> Headers:
        """There are none."""
        return ()
