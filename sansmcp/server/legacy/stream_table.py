"""The streams of one instance, and their store operations in flight."""

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
    """Return the error for a request that failed because the store failed."""
    return RemoteProtocolError(
        "The store of this server has failed: send the request again later",
        reason="store_failed",
        http_status=503,
        jsonrpc_code=INTERNAL_ERROR,
    )


@attrs.define(eq=False, repr=False)
class StreamTable:
    """The streams that this instance writes or reads, and the store effects in flight."""

    core: ServerCore
    _streams: dict[StreamKey, ResumableStream] = attrs.field(
        factory=dict[StreamKey, "ResumableStream"], init=False
    )
    """The streams with a log that are not settled."""
    _waiting: dict[StoreEffect, StoreOperation] = attrs.field(
        factory=dict[StoreEffect, StoreOperation], init=False
    )

    late: Shares[tuple[str, str]] = attrs.field(factory=Shares[tuple[str, str]], init=False)
    """The number of cancellations of each session that wait to look for a mailbox again."""

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
        """Return a new stream, with a log if there is a store.

        It is added to ``siblings`` until it is settled.
        """
        if not self.core.options.resumable:
            return self.new_unstored()
        key = StreamKey(principal, session.reveal() if session else "", self.core.token())
        stream = self._streams[key] = ResumableStream(key, polling, self, siblings=siblings)
        siblings[stream] = None
        stream.refresh()
        return stream

    def new_unstored(self) -> ResumableStream:
        """Return a new stream that no client can resume."""
        return ResumableStream(key=None, polling=False, table=self, state=LogState.UNSTORED)

    def find(
        self, key: StreamKey, siblings: dict[ResumableStream, None], *, polling: bool
    ) -> ResumableStream:
        """Return the stream of a key. If this instance does not have it, it may be in the store."""
        stream = self._streams.get(key)
        if stream is None:
            stream = ResumableStream(key, polling, self, LogState.REMOTE, siblings)
            self._streams[key] = stream
            siblings[stream] = None
        return stream

    def take_over(
        self, key: StreamKey, seq: int, siblings: dict[ResumableStream, None], *, polling: bool
    ) -> ResumableStream:
        """Continue the log of a parked call after the entry of this sequence number."""
        stream = self.find(key, siblings, polling=polling)
        # The append that parked the call was reported as failed, but the store has done it.
        if stream.state is LogState.CLOSED:
            self.discard_settled(stream)
            stream = self.find(key, siblings, polling=polling)
        stream.take_over(seq)
        return stream

    def lose(self, key: StreamKey) -> None:
        """End the reader of a log that the store has evicted."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.drop_reader()

    def release_followers(self) -> None:
        """End the responses that follow logs of other instances; their clients resume there."""
        for stream in tuple(self._streams.values()):
            if stream.state is LogState.REMOTE:
                stream.detach_reader()

    def settle(self, operation: StoreOperation) -> None:
        """Forget the stream of a completed effect if it is settled, or poll it if it waits."""
        if isinstance(operation, ResumableStream):
            self.discard_settled(operation)
            if operation.is_waiting:
                deadline = self.core.now + self.limits.store_poll_interval
                self.core.timers.set(Timer.STORE_POLL, operation, deadline)

    def discard_settled(self, stream: ResumableStream) -> None:
        """Forget a stream if it is settled; the store has its log."""
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
        """Return the operation of an effect and forget it; None if it was reported before."""
        return self._waiting.pop(effect, None)
