"""Keys of calls in a store that instances share, so that any of them serves the rest of a call.

With ``reclaim="store"`` all instances of a server are one place for clients. The store has two logs
for each key:

* The *claim* names the instance that runs the call. It is appended before the handler starts. If
  two copies of a call reach two instances, one append succeeds, and the other instance gives its
  copy the response of the first. The claim stays until the store evicts it.
* The *kept response* is appended after the call, and deleted when the client has confirmed it, or
  after ``Limits.reclaim_timeout``. One that was sent to a client is appended a moment later, and
  not at all if the client confirms it before. The log of a call that takes long has entries that
  show that it still runs.

An instance that is asked for a call of another one waits for the response in that log, and follows
the lease of the other. If that dies, the client is told so: the call may have run.

The count of a place is the time of day in seconds. A call that names an older one than
``max_stored_age / 3`` ago is refused, and sent again with the present time, because its claim might
have been evicted. So the store has the claim of each call whose copies can run. For that no
instance makes more claims in this time than half of ``max_stored_entries``.

The name of the place is derived from the key of the StateSigner, which all instances have.

Reports of a call are in the memory of the instance that runs it, so another one does not send them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import attrs

from ..codecs import jsonrpc
from ..codecs.sse import encode_event
from ..effects import StoreEffect, StoreRead
from ..errors import RemoteProtocolError
from ..messages import Request
from ..states import REFUSING, ExchangeState
from ..store import AppendResult, Entry, Page, StreamKey
from ..timers import Timer
from . import refusals
from .core import ServerCore
from .era_choice import SESSION_ID
from .exchange import ServerExchange
from .keyed_calls import KeptResponse, Key, KeyedCall, SharedKeys, StartingCall
from .leases import Lease, Peers
from .logs import LogReader, Logs, StoreOperation
from .procedures import Procedure, StepFailedError, Steps, Until, append, read, run
from .records import (
    NOTHING,
    RecordTooNewError,
    read_head,
    read_record,
    record_in,
    write_head,
    write_record,
)
from .responder import HttpResponder
from .scope_checks import require_scopes

_CLAIMS = ".keys"
"""Stands for a session in the keys of claims. No session has this id: tokens contain no point."""

_RESPONSES = ".kept."
"""The same for the log of one response, before the name of the key."""

_NAMES = b"sansmcp/reclaim"
"""What the key of a StateSigner signs to get the name of the place."""

_WAITS = "waits"
"""The log beside that of a response with entries of instances at which the client waits for it."""

_RESPONSE, _OVER = "response", "over"
"""The words before a response, and of a call that has ended without one."""

_MAX_DEPTH = 8
"""Nesting of a record that is read."""

_MOST_OF_THE_REST = 7
"""Claims of one principal for each that is left for all."""

_CONFIRMATION = 0.1
"""Seconds for which the response that a client was sent is not appended. Most clients that call
again soon confirm it by then, and their next claim need not wait for that append and its deletion.
An instance that is asked for it waits for so long.
"""

_PATIENCE = 1.0
"""Seconds for which an instance waits for a response where the client may have to answer a
question, which only the instance that runs the call can send it.
"""


def _tuple_of(scopes: Iterable[str]) -> tuple[str, ...]:
    return tuple(scopes)


_LONG_PATIENCE = 20.0
"""The same where the client can only wait: a handler that has many reports for it waits until the
client reaches its instance. The response has become an event stream by then.
"""


@attrs.frozen(kw_only=True)
class Claim:
    """What the store has of a call with a key."""

    instance: str
    """The instance that runs it; empty if it was refused after the claim, so that nothing ran."""
    id: str
    """A hash of the JSON-RPC id."""
    tool: str
    """A hash of the name of the tool."""
    scopes: tuple[str, ...] = attrs.field(default=(), converter=_tuple_of)
    """What the credentials of a request for the rest must have."""
    is_kept: bool = True
    """False if the instance had no room for the key, so that the response is not kept."""
    unknown: Mapping[str, Any] = NOTHING
    """The members that only a later version knows."""

    def encode(self) -> bytes:
        """Return the data of an entry."""
        return write_record(self, self.unknown)

    @classmethod
    def decode(cls, data: bytes) -> Claim:
        """Return the claim in the data of an entry. Raises RecordTooNewError."""
        return read_record(cls, data, _MAX_DEPTH)

    @classmethod
    def of(
        cls, instance: str, request: Request, scopes: tuple[str, ...], *, is_kept: bool = True
    ) -> Claim:
        """Return the claim of an instance for a call."""
        tool = (request.params or {}).get("name")
        return cls(
            instance=instance,
            id=_hash(repr(request.id)),
            tool=_hash(repr(tool)),
            scopes=scopes,
            is_kept=is_kept,
        )

    def is_for(self, request: Request) -> bool:
        """Return True if a request is a copy of the call, or asks for it."""
        other = Claim.of("", request, ())
        is_same_tool = request.method != "tools/call" or other.tool == self.tool
        return other.id == self.id and is_same_tool


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@attrs.define(eq=False, repr=False)
class StoredKeys(SharedKeys):
    """The keys of the calls of all instances that share a store."""

    core: ServerCore
    logs: Logs
    _lease: Lease
    peers: Peers
    _running: set[_StoredResponse] = attrs.field(factory=set["_StoredResponse"], init=False)
    """The calls that were claimed here and have not ended."""
    unconfirmed: dict[_StoredResponse, None] = attrs.field(
        factory=dict["_StoredResponse", None], init=False
    )
    """The responses that are appended unless their clients confirm them soon."""
    waiting: dict[StreamKey, _Waiting] = attrs.field(
        factory=dict[StreamKey, "_Waiting"], init=False
    )
    """The requests that wait for responses of other instances, by their logs."""
    _period: int = attrs.field(default=0, init=False)
    """The number of the present period, each of which is as long as a place is valid."""
    _claims: tuple[Counter[str], Counter[str]] = attrs.field(
        factory=lambda: (Counter[str](), Counter[str]()), init=False
    )
    """How many claims each principal made in the period before, and in this one."""
    _totals: tuple[int, int] = attrs.field(default=(0, 0), init=False)
    """The same for all principals together."""

    @property
    def needs_lease(self) -> bool:
        """True while calls run here that were claimed."""
        return bool(self._running)

    # The place

    @property
    def _validity(self) -> float:
        """Seconds for which a place is valid."""
        return self.core.limits.max_stored_age / 3

    def _names(self) -> tuple[str, ...]:
        """Return the names of the place: one for each key of the signer, that which signs first."""
        assert self.core.options.state_signer is not None, "the options demand one"
        return self.core.options.state_signer.derived_names(_NAMES)

    @property
    def place(self) -> str:
        """The place that clients are to name."""
        return f"{self._names()[0]}.{int(self.core.wall_time())}"

    def is_valid(self, instance: str, count: str) -> bool:
        """Return True if a place is that of these instances, and of about the present time."""
        age = self.core.wall_time() - int(count or 0)
        return instance in self._names() and abs(age) <= self._validity

    # Calls that start here

    def check_room(self, principal: str, request: Request) -> None:
        """Count a claim. Raises RemoteProtocolError if there were too many in a short time.

        Claims cannot be taken back, so a principal may have seven times as many as are left for
        all: one that calls a lot leaves an eighth to others.
        """
        period = int(self.core.wall_time() // self._validity)
        if period != self._period:
            is_next = period == self._period + 1
            self._claims = self._claims[1] if is_next else Counter(), Counter()
            self._totals = self._totals[1] if is_next else 0, 0
            self._period = period
        (before, present), (all_before, all_present) = self._claims, self._totals
        left = self.core.limits.max_stored_entries // 2 - all_before - all_present
        if left <= 0 or before[principal] + present[principal] >= _MOST_OF_THE_REST * left:
            raise refusals.TOO_MANY_KEYS(request.id)
        present[principal] += 1
        self._totals = all_before, all_present + 1

    def claim(
        self,
        key: Key,
        principal: str,
        request: Request,
        scopes: tuple[str, ...],
        starting: StartingCall,
    ) -> None:
        """Start a call when the store has the claim of this instance, unless another one has it."""
        kept = None
        claim = Claim.of(self.core.instance, request, scopes, is_kept=starting.call is not None)
        if starting.call is not None:
            log = StreamKey(principal, _RESPONSES + _hash(key[2]), _RESPONSE)
            kept = starting.call.kept = _StoredResponse(self, starting.call, log, claim)
        self._lease.keep(self)
        steps = self._claim(key, principal, request, claim, starting, kept)
        run(self.logs, steps, starting.is_wanted)

    def _claim(
        self,
        key: Key,
        principal: str,
        request: Request,
        claim: Claim,
        starting: StartingCall,
        kept: _StoredResponse | None,
    ) -> Steps[None]:
        log, seq = StreamKey(principal, _CLAIMS, _hash(key[2])), 1
        while True:
            try:
                if (yield from append(log, (Entry(seq, claim.encode()),))) is AppendResult.STORED:
                    break
                entry = yield from self._last(log)
                other = None if entry is None else Claim.decode(record_in(entry))
            except StepFailedError:
                starting.refuse(refusals.store_failed(request.id))
                return
            except RecordTooNewError:
                starting.refuse(refusals.RECORD_TOO_NEW(request.id))
                return
            if other is not None and other.instance:
                exchange = starting.withdraw()
                if exchange is not None:
                    self._wait_for(other, key, principal, request, exchange)
                return
            seq = 1
            if entry is not None and other is not None:
                seq, claim = entry.seq + 1, attrs.evolve(claim, unknown=other.unknown)
        refusal = starting.start()
        if refusal is not None:
            free = attrs.evolve(claim, instance="")
            with suppress(StepFailedError):
                yield from append(log, (Entry(seq + 1, free.encode()),))
            starting.refuse(refusal)
        elif kept is not None:
            kept.begin()

    def started(self, kept: _StoredResponse) -> None:
        """Keep the lease of this instance while a call runs."""
        self._running.add(kept)
        self._lease.keep(self)

    def ended(self, kept: _StoredResponse) -> None:
        """Keep the lease no longer for a call."""
        self._running.discard(kept)

    def drain(self) -> None:
        """Append the responses that wait for confirmation, because this instance stops."""
        for kept in tuple(self.unconfirmed):
            kept.on_due()

    # Calls of other instances

    def look(self, key: Key, principal: str, request: Request, exchange: ServerExchange) -> None:
        """Respond to a request for the rest of a call that this instance does not know."""
        rest = _Rest(self.core, exchange)
        exchange.responder = rest
        steps = self._look(key, principal, request, rest)
        run(self.logs, steps, lambda: not exchange.is_done)

    def _look(self, key: Key, principal: str, request: Request, rest: _Rest) -> Steps[None]:
        name = _hash(key[2])
        entry, has_failed = None, False
        try:
            entry = yield from self._last(StreamKey(principal, _CLAIMS, name))
            if entry is None:  # evicted, if the call has run for long: then its other log has it
                kept = yield from read(StreamKey(principal, _RESPONSES + name, _RESPONSE))
                entry = _first_claim(kept)
        except StepFailedError:
            has_failed = True
        if rest.exchange.is_done:
            return
        try:
            if has_failed:
                raise refusals.store_failed(request.id)
            claim = None if entry is None else Claim.decode(record_in(entry))
            if claim is None or not claim.instance:
                raise self.unknown(request, never_arrived=self.is_valid(key[0], key[1]))
            self._wait_for(claim, key, principal, request, rest.exchange)
        except RecordTooNewError:
            rest.refuse(refusals.RECORD_TOO_NEW(request.id))
        except RemoteProtocolError as refusal:
            rest.refuse(refusal)

    def _wait_for(
        self, claim: Claim, key: Key, principal: str, request: Request, exchange: ServerExchange
    ) -> None:
        """Send the response to a call of another instance when the store has it."""
        rest = _Rest(self.core, exchange)
        try:
            assert exchange.head is not None
            if not claim.is_for(request):
                raise refusals.KEY_IN_USE(request.id)
            require_scopes(self.core, exchange.head, request, claim.scopes)
            if not claim.is_kept:
                raise self.unknown(request, never_arrived=False)
        except RemoteProtocolError as refusal:
            rest.refuse(refusal)
            return
        log = StreamKey(principal, _RESPONSES + _hash(key[2]), _RESPONSE)
        before = self.waiting.get(log)
        if before is not None:
            before.replaced()
        self.waiting[log] = waiting = _Waiting(self, log, claim, request, rest)
        waiting.start()

    def unknown(self, request: Request, *, never_arrived: bool) -> RemoteProtocolError:
        """Return the refusal of a request for a call that no instance has."""
        return refusals.unknown_key(request, self.place, never_arrived=never_arrived)

    def _last(self, log: StreamKey) -> Steps[Entry | None]:
        """Return the last entry of a log; None if there is no such log."""
        after = 0
        while True:
            page = yield from read(log, after, limit=16)
            if page is None:
                return None
            if page.entries and page.entries[-1].seq == page.last.seq:
                return page.entries[-1]
            after = page.last.seq - 1


def _first_claim(page: Any) -> Entry | None:
    """Return the entry by which a long call shows that it runs; None if there is none."""
    entries = () if page is None else page.entries
    return entries[0] if entries and not entries[0].final else None


@attrs.define(eq=False, repr=False)
class _StoredResponse(StoreOperation, KeptResponse):
    """The log of the response to a call that runs here."""

    _keys: StoredKeys
    _call: KeyedCall
    _log: StreamKey
    _claim: Claim
    _seq: int = attrs.field(default=0, init=False)
    _entry: tuple[bytes, bool] | None = attrs.field(default=None, init=False)
    """The data that are being appended, and whether they are the last; None if there are none."""
    _end: bytes | None = attrs.field(default=None, init=False)
    """The last entry, while it waits to be appended."""
    _has_begun: bool = attrs.field(default=False, init=False)
    _is_dropped: bool = attrs.field(default=False, init=False)
    _waits: int = attrs.field(default=0, init=False)
    """The number of the last entry that was seen of a client that waits elsewhere."""

    def begin(self) -> None:
        """Show from time to time that the call runs."""
        self._has_begun = True
        if self._end is not None or self._is_dropped:  # cancelled while it was claimed
            self._append_end()
            return
        self._keys.started(self)
        self._set_timer(self._keys.core.limits.reclaim_timeout / 2)

    def on_due(self) -> None:
        """Append the response, which no client has confirmed.

        Before it, show that the call runs: others must not take it as over, nor the store evict its
        log.
        """
        if self._end is not None:
            self._append_end()
            return
        self._append(self._claim.encode(), is_last=False)
        self._set_timer(self._keys.core.refresh_interval)

    def _set_timer(self, most: float) -> None:
        core = self._keys.core
        core.timers.set(Timer.STORED, self._call, core.now + min(most, core.refresh_interval))

    def end(self, response: bytes | None, http_status: int, *, is_sent: bool) -> None:
        core = self._keys.core
        core.timers.stop(Timer.STORED, self._call)
        self._keys.ended(self)
        word = _OVER if response is None else _RESPONSE
        self._end = write_head(word, http_status, response or b"")
        if is_sent and core.state not in REFUSING:
            self._keys.unconfirmed[self] = None
            core.timers.set(Timer.STORED, self._call, core.now + _CONFIRMATION)
        elif self._has_begun:
            self._append_end()

    def _append_end(self) -> None:
        self._wait_no_longer()
        if self._entry is None and self._end is not None:
            end, self._end = self._end, None
            self._append(end, is_last=True)

    def _wait_no_longer(self) -> None:
        """Wait no longer for a confirmation of the response."""
        self._keys.unconfirmed.pop(self, None)
        self._keys.core.timers.stop(Timer.STORED, self._call)

    def _append(self, data: bytes, *, is_last: bool) -> None:
        if self._entry is None:
            self._entry = data, is_last
            self._keys.logs.append(self._log, (Entry(self._seq + 1, data, is_last),), self)

    def look_for_client(self, then: Callable[[bool], None]) -> None:
        """Call ``then(True)`` if the client has waited at another instance since the last time."""
        run(self._keys.logs, self._look_for_client(then))

    def _look_for_client(self, then: Callable[[bool], None]) -> Steps[None]:
        try:
            page = yield from read(attrs.evolve(self._log, stream=_WAITS))
        except StepFailedError:
            is_waited = True  # perhaps: it is looked for again
        else:
            seq = 0 if page is None else page.last.seq
            is_waited, self._waits = seq > self._waits, seq
        then(is_waited)

    def drop(self) -> None:
        self._is_dropped = True
        self._end = None
        self._wait_no_longer()
        if self._entry is None and self._seq:
            self._keys.logs.drop(self._log.principal, self._log.session)

    def on_append_done(self) -> None:
        self._entry = None
        self._seq += 1
        self._keys.logs.on_changed(self._log)
        if self._end is not None:
            self._append_end()
        elif self._is_dropped:
            self._keys.logs.drop(self._log.principal, self._log.session)

    def on_append_conflict(self) -> None:
        """An append that seemed to have failed was done."""
        self.on_append_done()

    def on_append_behind(self) -> None:
        """The store has lost the end of the log: begin it anew."""
        assert self._entry is not None
        (data, is_last), self._entry, self._seq = self._entry, None, 0
        self._keys.logs.drop(self._log.principal, self._log.session)
        self._append(data, is_last=is_last)

    def may_repeat(self, effect: StoreEffect) -> bool:
        return True

    def failed(self, effect: StoreEffect) -> bool:
        """The response is in the memory of this instance, and may be lost with it."""
        self._entry = None
        self._append_end()
        return True


@attrs.define(eq=False, repr=False)
class _Rest(HttpResponder):
    """Sends the response to a call of another instance."""

    is_resumable = False  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]
    _core: ServerCore
    exchange: ServerExchange
    waiting: _Waiting | None = attrs.field(default=None, init=False)

    @property
    def stream_after(self) -> float | None:  # type: ignore[override]
        """Seconds until a comment is due."""
        return self._core.limits.stream_comment_interval

    def open(self) -> None:
        """Open the event stream, so that comments show that the server waits."""
        self.exchange.open_stream()

    def respond(self, data: bytes, http_status: int) -> None:
        """Send the response."""
        self._core.timers.stop(Timer.STREAM_OPEN, self)
        if self.exchange.state is ExchangeState.DECIDING:
            self.send_json(data, http_status)
        else:
            self.exchange.send(encode_event(data))
            self.exchange.end()

    def refuse(self, refusal: RemoteProtocolError) -> None:
        """Send a refusal; the client of an open stream asks again."""
        if self.exchange.state is not ExchangeState.DECIDING:
            self.break_off()
            return
        self._core.timers.stop(Timer.STREAM_OPEN, self)
        self.exchange.responder = None
        self.exchange.refuse(refusal)

    def break_off(self) -> None:
        """Break the connection."""
        self._core.timers.stop(Timer.STREAM_OPEN, self)
        self.exchange.responder = None
        self.exchange.abort()

    def peer_gone(self) -> None:
        self._core.timers.stop(Timer.STREAM_OPEN, self)
        if self.waiting is not None:
            self.waiting.stop()


@attrs.define(eq=False, repr=False)
class _Waiting(LogReader):
    """Waits for the response to a call of another instance."""

    _keys: StoredKeys
    _log: StreamKey
    _claim: Claim
    request: Request
    _rest: _Rest
    _seq: int = attrs.field(default=0, init=False)
    _until: float = attrs.field(init=False)
    """When the client is to ask again."""
    _is_dead: bool = attrs.field(default=False, init=False)
    """True if the other instance has died."""
    _showing: Procedure | None = attrs.field(default=None, init=False)

    def start(self) -> None:
        """Read the log, and follow it and the instance that writes it."""
        core, keys = self._keys.core, self._keys
        patience = max(_LONG_PATIENCE, core.limits.stream_comment_interval + _LONG_PATIENCE / 4)
        self._until = core.now + (patience if self._is_modern else _PATIENCE)
        self._rest.waiting = self
        self._rest.start()
        core.stateless[self] = None
        keys.logs.watch(self._log, self)
        if self._claim.instance != core.instance:
            keys.peers.follow(self._claim.instance, self, self._on_death)
        if self._is_modern:
            self._showing = Procedure(keys.logs, self._show())
            self._showing.start()
        self.poll_store()

    def _show(self) -> Steps[None]:
        """Show the instance that runs the call that the client waits, so that it is not cancelled.

        Of several instances that show it at one time one suffices.
        """
        core, log = self._keys.core, attrs.evolve(self._log, stream=_WAITS)
        while True:
            with suppress(StepFailedError):
                page = yield from read(log)
                yield from append(log, (Entry(1 if page is None else page.last.seq + 1, b""),))
            yield Until(Timer.LEASE, core.now + core.limits.reclaim_timeout / 3)

    @property
    def _is_modern(self) -> bool:
        """True if the client can only wait: at other revisions it may have to answer a question."""
        head = self._rest.exchange.head
        assert head is not None
        return not head.values(SESSION_ID)

    def _on_death(self) -> None:
        self._is_dead = True
        self._keys.logs.poll(self._log, self)

    @property
    def _is_over(self) -> bool:
        return self._keys.waiting.get(self._log) is not self

    def poll_store(self) -> None:
        """Read what follows the entries that are known."""
        most = self._keys.core.limits.max_stored_bytes
        self._keys.logs.read(self._log, self._seq, self, limit=16, max_bytes=most)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """Send the response, if there is one."""
        if self._is_over:
            return
        try:
            for entry in () if page is None else page.entries:
                data, self._seq = record_in(entry), entry.seq
                if entry.final:
                    self._respond(*read_head(data))
                    return
        except RecordTooNewError:
            self._refuse(refusals.RECORD_TOO_NEW(self.request.id))
            return
        if page is not None and self._seq < page.last.seq:
            self.poll_store()
            return
        core = self._keys.core
        if self._is_dead:
            self.stop()
            lost = refusals.INSTANCE_LOST(self.request.id)
            self._rest.respond(jsonrpc.encode(lost.reply), lost.http_status)
        elif self._claim.instance == core.instance:
            self._refuse(self._keys.unknown(self.request, never_arrived=False))
        elif core.now >= self._until:
            self._refuse(refusals.RUNS_ELSEWHERE(self.request.id))
        else:
            self._keys.logs.poll_later(self._log, self)

    def failed(self, effect: StoreEffect) -> bool:
        """Try again: the other instance may have stored it."""
        if not self._is_over:
            self._keys.logs.poll_later(self._log, self)
        return True

    def _respond(self, word: str, http_status: int, response: bytes) -> None:
        if word != _RESPONSE:
            self._refuse(self._keys.unknown(self.request, never_arrived=False))
            return
        self.stop()
        self._rest.respond(response, http_status)

    def _refuse(self, refusal: RemoteProtocolError) -> None:
        self.stop()
        self._rest.refuse(refusal)

    def shut_down(self) -> None:
        """Break off, because the server shuts down: the client asks another instance."""
        self._refuse(refusals.SHUTTING_DOWN(self.request.id))

    def replaced(self) -> None:
        """Break off, because the client asks again on another connection."""
        self.stop()
        self._rest.break_off()

    def stop(self) -> None:
        """Wait no longer."""
        del self._keys.waiting[self._log]
        if self._showing is not None:
            self._showing.close()
        self._keys.core.stateless.pop(self, None)
        self._keys.logs.unwatch(self._log, self)
        self._keys.peers.leave(self._claim.instance, self)
