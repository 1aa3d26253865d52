"""The logs of a server, and its way to the store that keeps them."""

from __future__ import annotations

import attrs

from ...codecs.jsonrpc import INTERNAL_ERROR
from ...effects import StoreAppend, StoreEffect, StoreRead
from ...errors import RemoteProtocolError
from ...limits import Limits
from ...shares import Shares
from ...states import LogState
from ...store import StreamKey
from ...timers import Timer
from ...types import Secret
from ..core import ServerCore
from ..store_completions import StoreOperation
from .streams import ResumableStream


def store_failed() -> RemoteProtocolError:
    """The store did not do what was asked of it."""
    return RemoteProtocolError(
        "The store of this server does not work: try again later",
        reason="store_failed",
        http_status=503,
        jsonrpc_code=INTERNAL_ERROR,
    )


@attrs.define(eq=False, repr=False)
class StreamTable:
    """The streams that are written or read here, and the store effects that are under way."""

    core: ServerCore
    _streams: dict[StreamKey, ResumableStream] = attrs.field(
        factory=dict[StreamKey, "ResumableStream"], init=False
    )
    """Those with a log that are not settled."""
    _waiting: dict[StoreEffect, StoreOperation] = attrs.field(
        factory=dict[StoreEffect, StoreOperation], init=False
    )

    late: Shares[tuple[str, str]] = attrs.field(factory=Shares[tuple[str, str]], init=False)
    """How many cancellations of each session wait for their call to be known."""

    @property
    def limits(self) -> Limits:
        return self.core.limits

    def new(
        self,
        principal: str,
        session: Secret | None,
        siblings: dict[ResumableStream, None],
        *,
        polling: bool,
    ) -> ResumableStream:
        """A new stream: with a log if there is a store, registered so that readers find it.

        It is added to its siblings, for as long as it is not settled.
        """
        if not self.core.options.resumable:
            return self.new_unstored()
        key = StreamKey(principal, session.reveal() if session else "", self.core.token())
        stream = self._streams[key] = ResumableStream(key, polling, self, siblings=siblings)
        siblings[stream] = None
        stream.refresh()
        return stream

    def new_unstored(self) -> ResumableStream:
        """A new stream that no client can resume."""
        return ResumableStream(key=None, polling=False, table=self, state=LogState.UNSTORED)

    def find(
        self, key: StreamKey, siblings: dict[ResumableStream, None], *, polling: bool
    ) -> ResumableStream:
        """The stream of that name; one that nobody here knows may be in the store."""
        stream = self._streams.get(key)
        if stream is None:
            stream = ResumableStream(key, polling, self, LogState.REMOTE, siblings)
            self._streams[key] = stream
            siblings[stream] = None
        return stream

    def take_over(
        self, key: StreamKey, seq: int, siblings: dict[ResumableStream, None], *, polling: bool
    ) -> ResumableStream:
        """Go on with the log of a parked call after the entry of that number."""
        stream = self.find(key, siblings, polling=polling)
        if (
            stream.state is LogState.CLOSED
        ):  # the append that parked it seemed to fail, and was done
            self.discard_settled(stream)
            stream = self.find(key, siblings, polling=polling)
        stream.take_over(seq)
        return stream

    def lose(self, key: StreamKey) -> None:
        """Break off whoever reads a log that the store does not have any more."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.drop_reader()

    def release_followers(self) -> None:
        """End the responses that follow what others write: their clients read on elsewhere."""
        for stream in tuple(self._streams.values()):
            if stream.state is LogState.REMOTE:
                stream.detach_reader()

    def settle(self, operation: StoreOperation) -> None:
        """Whose effect is completed: a stream may be done with, or is to be looked at again."""
        if isinstance(operation, ResumableStream):
            self.discard_settled(operation)
            if operation.is_waiting:
                deadline = self.core.now + self.limits.store_poll_interval
                self.core.timers.set(Timer.STORE_POLL, operation, deadline)

    def discard_settled(self, stream: ResumableStream) -> None:
        """Let go of a stream that is settled: what there is to know of it is in the store."""
        if stream.is_settled and stream.key is not None:
            self.core.timers.stop(Timer.STORE_POLL, stream)
            self.core.timers.stop(Timer.STORED, stream)
            self._streams.pop(stream.key, None)
            stream.siblings.pop(stream, None)

    def start_operation(self, effect: StoreAppend | StoreRead, operation: StoreOperation) -> None:
        """Queue a store effect; ``pop_operation()`` returns its operation when it is completed."""
        self._waiting[effect] = operation
        self.core.effects.append(effect)

    def pop_operation(self, effect: StoreEffect) -> StoreOperation | None:
        """Whose effect has been completed; None for one that was reported before."""
        return self._waiting.pop(effect, None)
