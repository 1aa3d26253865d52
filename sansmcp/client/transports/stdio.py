"""The server process of a client, and the messages on its pipes: one per line.

A line that is not a message is reported, and the next line is read. The effects and the timer of
the process are set here; the client is told what concerns its calls: the log, and the end.

Source: every revision, basic/transports: stdio; basic/lifecycle: Shutdown.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

import attrs

from ...codecs.jsonrpc import Batch
from ...codecs.ndjson import NdjsonDecoder, encode_line
from ...effects import ClientEffect, KillProcess, WriteStdin
from ...errors import RemoteProtocolError
from ...events import MessageUndelivered
from ...messages import ErrorResponse, Notification, Request, Response
from ...process import (
    ProcessExited,
    ProcessPart,
    ProcessStartFailed,
    StderrClosed,
    StderrData,
    StdoutClosed,
    StdoutData,
)
from ...states import ProcessState
from ...timers import Timer, TimerTable
from ...types import Idle, assert_never, hide_program
from ..child_process import ChildProcess
from ..event_queue import EventQueue
from ..message_decoder import MessageDecoder, items_of
from ..message_encoder import MessageEncoder
from ..outcomes import (
    Delivered,
    Invalid,
    LineOutcome,
    ProcessClosed,
    ProcessFinished,
    ProcessLogged,
    ProcessOutcome,
    ProcessStep,
    ProcessUseless,
)
from ..request import PendingRequest

_JOINED = 65536
"""Bytes of a write to a process that are enough: further messages are not joined to it."""

StdioOutcome: TypeAlias = ProcessLogged | ProcessUseless | ProcessFinished | ProcessClosed


@attrs.define(eq=False, repr=False)
class Stdio:
    """The process, started once or twice, and what it has written that was not pulled yet."""

    process: ChildProcess
    _messages: MessageDecoder
    _effects: deque[ClientEffect]
    """The client's queue."""
    _timers: TimerTable
    _encoder: MessageEncoder
    _events: EventQueue
    _decoder: NdjsonDecoder = attrs.field(init=False)
    _next: deque[LineOutcome] = attrs.field(init=False)
    """Decoded outcomes that were not pulled yet: the rest of a batch."""

    def __attrs_post_init__(self) -> None:
        self._forget()

    @property
    def shown(self) -> str:
        """The command without what may be secret."""
        return hide_program(self.process.command[0])

    @property
    def has_ended(self) -> bool:
        """True if the process has ended, or was given up."""
        return self.process.state is ProcessState.ENDED

    def start(self) -> None:
        """Start the process, for the first time or again."""
        self._effects.append(self.process.start())
        self._forget()

    @property
    def is_shared(self) -> bool:
        """True: all messages of the server arrive on its output."""
        return True

    @property
    def is_http_sse(self) -> bool:
        """False."""
        return False

    @property
    def is_full(self) -> bool:
        """False: all messages are written at once."""
        return False

    def send(self, request: PendingRequest, now: float) -> None:
        """Write a request, unless the process is not running."""
        self._write(self._encoder.request(request))

    def post(
        self, message: Request | Notification | Response | ErrorResponse, now: float
    ) -> tuple[None, Delivered] | None:
        """Write a message. Report that it is undelivered if the process is not running."""
        if self._write(self._encoder.message(message)):
            return None, Delivered(message)
        self._events.append(MessageUndelivered(message, "the server process ends"))
        return None

    def leave(self, request: PendingRequest, now: float, *, complete: bool) -> None:
        """Do nothing: no stream belongs to one request."""

    def holds(self, request: PendingRequest) -> bool:
        """Return False: no request waits for authorization."""
        return False

    def break_off(self, request: PendingRequest) -> None:
        """Do nothing: the next line is another message."""

    def _write(self, message: bytes) -> bool:
        """Write a message. Return False, with nothing written, if the process is not running."""
        if self.process.state is not ProcessState.RUNNING:
            return False
        line = encode_line(message)
        latest = self._effects[-1] if self._effects else None
        if isinstance(latest, WriteStdin) and len(latest.data) < _JOINED:
            self._effects[-1] = WriteStdin(latest.data + line)
        else:
            self._effects.append(WriteStdin(line))
        return True

    def close(self, now: float) -> bool:
        """Start the shutdown sequence. Return False if there is no process to shut down.

        Unless it returns False, ``ProcessClosed`` follows, from another method.
        """
        if self.process.state in (ProcessState.NEW, ProcessState.ENDED):
            return False
        self._act(self.process.close(), now)
        return True

    def receive(self, part: ProcessPart, now: float, *, is_closing: bool) -> StdioOutcome | None:
        """Receive a part of the process.

        Args:
            part: the part.
            now: the current time in seconds, on the machine's clock.
            is_closing: True if the client is closing. Output is then discarded.

        Returns:
            None if it is for :meth:`next_outcome`, which is to be pulled.
        """
        match part:
            case StdoutData(data):
                if not is_closing:
                    self._decoder.receive_data(data)
            case StdoutClosed():
                self.process.output_ended = True
                self._decoder.receive_eof()  # bytes after the last line end count as a line
            case StderrData(data):
                return ProcessLogged(self.process.log(data))
            case StderrClosed():
                self.process.log_ended = True
            case ProcessExited(status):
                self._act(self.process.exited(status), now)
            case ProcessStartFailed(reason):
                return self._act(self.process.failed(reason), now)
            case _ as impossible:
                assert_never(impossible)
        return None

    def next_outcome(self) -> LineOutcome | None:
        """Return the next message of the process, or what was wrong with it; None for none yet."""
        while not self._next:  # batches can be empty
            line = b""
            try:
                next_line = self._decoder.next_event()
                if isinstance(next_line, Idle):
                    return None
                line = next_line
                decoded = self._messages.decode(line)
            except RemoteProtocolError as error:
                if not line:  # it is too long to be read
                    error = self._messages.unreadable(self._decoder.skipped, error)
                return Invalid(error, is_fatal=True, line=line)
            if not isinstance(decoded, Batch):
                return decoded
            self._next.extend(items_of(decoded))
        return self._next.popleft()

    def output_read(self, now: float, *, is_closing: bool) -> StdioOutcome | None:
        """Return what follows after all output was pulled, to its end; None for nothing."""
        return self._act(self.process.output_read(is_closing=is_closing), now)

    def due(self, now: float, *, is_closing: bool, is_held: bool) -> StdioOutcome | None:
        """Return what follows after ``Timer.PROCESS``; None for nothing.

        Args:
            now: the current time in seconds, on the machine's clock.
            is_closing: True if the client is closing.
            is_held: True if outcomes are not pulled because the event queue is full.
        """
        return self._act(self.process.due(is_closing=is_closing, is_held=is_held), now)

    def closed(self, now: float) -> StdioOutcome | None:
        """Return the end of a process that has finished and is not started again."""
        return self._act(self.process.closed(), now)

    def _forget(self) -> None:
        self._decoder = NdjsonDecoder(self._messages.limits.max_message_bytes)
        self._next = deque()

    def _act(self, outcome: ProcessOutcome | None, now: float) -> StdioOutcome | None:
        """Set effect and timer of an outcome; return it if the client has to act on it."""
        match outcome:
            case None:
                return None
            case ProcessStep(effect, wait):
                if effect is not None:
                    self._effects.append(effect)
                self._timers.set(Timer.PROCESS, 0, now + wait)
                return None
            case ProcessUseless(_, wait):
                self._timers.set(Timer.PROCESS, 0, now + wait)
            case ProcessFinished():
                self._effects.append(KillProcess())  # its children may still run
                self._timers.stop(Timer.PROCESS, 0)
            case ProcessClosed():
                self._timers.stop(Timer.PROCESS, 0)
            case _ as impossible:
                assert_never(impossible)
        return outcome
