"""The streams of one instance."""

from __future__ import annotations

from typing import Protocol

import attrs

from ...limits import Limits
from ...shares import Shares
from ...states import LogState
from ...store import StreamKey
from ...types import Secret
from ..core import ServerCore
from ..leases import Lease
from ..logs import Logs
from .streams import ResumableStream


class Writers(Protocol):
    """The other instances whose streams have readers here."""

    def follow(self, stream: ResumableStream) -> None:
        """Notice if the instance that writes a stream dies."""

    def leave(self, stream: ResumableStream) -> None:
        """Follow the writer of a stream no more, and forget it."""

    def note(self, stream: ResumableStream, instance: str) -> None:
        """Note the instance that writes a stream."""


class Publications(Protocol):
    """The log of publications, which this instance follows."""

    @property
    def cursor(self) -> int | None:
        """The number of the last publication that was passed on; None if it is not known."""
        ...

    def catch_up(self, key: StreamKey, place: int) -> None:
        """Pass the publications after a number on to the session of a stream."""


@attrs.define(eq=False, repr=False)
class StreamTable:
    """The streams that this instance writes or reads."""

    core: ServerCore
    logs: Logs
    lease: Lease | None
    """The lease of this instance; None if no other shares the store."""
    _streams: dict[StreamKey, ResumableStream] = attrs.field(
        factory=dict[StreamKey, "ResumableStream"], init=False
    )
    """The streams with a log that are not settled."""
    _by_session: dict[tuple[str, str], dict[ResumableStream, None]] = attrs.field(
        factory=dict[tuple[str, str], "dict[ResumableStream, None]"], init=False
    )
    """The same by principal and session, oldest first."""
    late: Shares[tuple[str, str]] = attrs.field(factory=Shares[tuple[str, str]], init=False)
    """The number of messages of each session that wait to look for a mailbox again."""

    writers: Writers | None = attrs.field(default=None, init=False)
    """The other instances whose streams have readers here; None if there are none."""

    publications: Publications | None = attrs.field(default=None, init=False)
    """The log of publications; None if there are no other instances."""

    @property
    def limits(self) -> Limits:
        return self.core.limits

    @property
    def needs_lease(self) -> bool:
        """True if this instance writes logs."""
        return any(stream.state is LogState.WRITING for stream in self._streams.values())

    @property
    def are_ending(self) -> bool:
        """True if the last entry of any stream is being stored. Its reader gets it afterwards."""
        return any(stream.is_ending for stream in self._streams.values())

    def keep_lease(self) -> None:
        """Show the other instances that this one is alive."""
        if self.lease is not None:
            self.lease.keep(self)

    def new(
        self,
        principal: str,
        session: Secret | None,
        *,
        polling: bool,
    ) -> ResumableStream:
        """Return a new stream, with a log if there is a store."""
        if not self.core.options.resumable:
            return self.new_unstored()
        key = StreamKey(principal, session.reveal() if session else "", self.core.token())
        stream = self._add(ResumableStream(key, polling, self), key)
        stream.refresh()
        return stream

    def new_unstored(self) -> ResumableStream:
        """Return a new stream that no client can resume."""
        return ResumableStream(key=None, polling=False, table=self, state=LogState.UNSTORED)

    def _add(self, stream: ResumableStream, key: StreamKey) -> ResumableStream:
        self._streams[key] = stream
        self._by_session.setdefault((key.principal, key.session), {})[stream] = None
        return stream

    def of_session(self, principal: str, session: str) -> tuple[ResumableStream, ...]:
        """Return the streams of a session that are not settled, oldest first."""
        return tuple(self._by_session.get((principal, session), ()))

    def find(self, key: StreamKey, *, polling: bool) -> ResumableStream:
        """Return the stream of a key. If this instance does not have it, it may be in the store."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._add(ResumableStream(key, polling, self, LogState.REMOTE), key)
        return stream

    def take_over(self, key: StreamKey, seq: int, *, polling: bool) -> ResumableStream:
        """Continue the log of a parked call after the entry of this sequence number."""
        stream = self.find(key, polling=polling)
        # The append that parked the call was reported as failed, but the store has done it.
        if stream.state is LogState.CLOSED:
            self.discard_settled(stream)
            stream = self.find(key, polling=polling)
        self.stop_following(stream)
        stream.take_over(seq)
        self.keep_lease()
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

    def settle(self, stream: ResumableStream) -> None:
        """Tidy up after an effect of a stream: it may be settled, or wait for another instance."""
        self.discard_settled(stream)
        if stream.is_waiting and stream.key is not None:
            self.logs.watch(stream.key, stream)
            self.logs.poll_later(stream.key, stream)
            assert self.writers is not None, "a stream waits only if instances share the store"
            self.writers.follow(stream)

    def discard_settled(self, stream: ResumableStream) -> None:
        """Forget a stream that is settled: everything about it is in the store.

        A page can come after that, for a reader that has gone. A new reader of the log then has
        another object, which stays.
        """
        if stream.is_settled and stream.key is not None and self._streams.get(stream.key) is stream:
            self.stop_following(stream)
            del self._streams[stream.key]
            session = (stream.key.principal, stream.key.session)
            siblings = self._by_session[session]
            del siblings[stream]
            if not siblings:
                del self._by_session[session]

    def note_writer(self, stream: ResumableStream, instance: str) -> None:
        """Note the instance that writes a log, as an entry of it has told."""
        assert self.writers is not None, "writers are noted only if instances share the store"
        self.writers.note(stream, instance)

    def stop_following(self, stream: ResumableStream) -> None:
        """Watch a stream no more: it has no reader, or this instance writes it."""
        assert stream.key is not None, "only streams with a log are followed"
        self.logs.unwatch(stream.key, stream)
        if self.writers is not None:
            self.writers.leave(stream)
