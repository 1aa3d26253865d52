"""A conversation with one stream of messages in each direction: stdio, and HTTP+SSE.

What the client says comes in one after the other; everything for it goes to one outlet. What the
messages mean is the business of the eras: each takes what is its own.

Source: 2024-11-05 to 2026-07-28, basic/transports: stdio; 2024-11-05 basic/transports: HTTP with
SSE.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from ..codecs import jsonrpc
from ..codecs.jsonrpc import Batch
from ..effects import Wake
from ..errors import RemoteProtocolError
from ..events import BadRequest, Noise
from ..messages import Message, Request
from ..types import Driven
from . import refusals
from .core import Outlet, ServerCore


class Lines(Protocol):
    """What the messages of one era mean in a conversation."""

    @property
    def null_id(self) -> bool:
        """Whether an error that answers no request has an id, null."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether calls run."""
        ...

    def took(self, message: Message | Batch) -> bool:
        """Do what a message asks for; False if it is of another era.

        Raises RemoteProtocolError: the refusal.
        """
        ...

    def end(self, reason: str) -> None:
        """The conversation is over."""


@attrs.define(eq=False, repr=False)
class Channel:
    """The server's end of such a conversation."""

    _core: ServerCore
    _outlet: Outlet
    _eras: tuple[Lines, ...]
    """Each is asked in turn; the last one takes everything."""

    def __attrs_post_init__(self) -> None:
        self._core.outlets[self._outlet] = None

    @property
    def is_full(self) -> bool:
        """Whether the application must take events before more is received."""
        return self._core.is_full

    @property
    def is_busy(self) -> bool:
        """Whether calls run."""
        return any(era.is_busy for era in self._eras)

    def must_wait(self, driven: Driven) -> bool:
        """Whether that is so; whoever drives the channel is woken when it is no more."""
        if self._core.is_full:
            self._core.paused[driven] = None
        return self._core.is_full

    def wake(self, driven: Driven) -> None:
        """There is something to send."""
        self._core.effects.append(Wake(driven))

    def receive(self, data: bytes, *, now: float) -> None:
        """The bytes of one message, or of one batch.

        What is not allowed is answered with an error. Raises RemoteProtocolError if they are no
        message, or ask for answers while too many wait to be read.
        """
        self._core.now = now
        decoded = jsonrpc.decode(data, self._core.limits)
        if self._outlet.congested and isinstance(decoded, Request | Batch):
            raise refusals.NOT_READING(decoded.id if isinstance(decoded, Request) else None)
        try:
            any(era.took(decoded) for era in self._eras)
        except RemoteProtocolError as error:
            self.refuse(error, BadRequest(error))

    def refuse(self, error: RemoteProtocolError, event: BadRequest | Noise) -> None:
        """Answer with an error, and tell the application."""
        self._outlet.send(jsonrpc.encode(error.reply, null_id=self._eras[-1].null_id))
        self._core.events.append(event)

    def end(self, reason: str, *, now: float) -> None:
        """The channel is gone, and what was said on it with it."""
        self._core.now = now
        self._core.outlets.pop(self._outlet, None)
        for era in self._eras:
            era.end(reason)
