"""A store in Redis, for processes on any number of machines."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from sansmcp import AppendResult, Entry, EntryKind, Limits, Page, StreamKey
from sansmcp.effects import StoreAppend, StoreDrop, StoreRead

from ._redis_scripts import APPEND, DROP, READ
from ._redis_watches import RedisWatches
from ._worker import StoreWorker

if TYPE_CHECKING:
    from redis import Redis, RedisCluster

    RedisClient: TypeAlias = Redis | RedisCluster

_KINDS = {kind: letter.encode() for kind, letter in zip(EntryKind, "mbitokw", strict=True)}
_LETTERS = {letter: kind for kind, letter in _KINDS.items()}

_SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,150}", re.ASCII)

_TIMEOUT = 2.0
"""Seconds for a connection, and for a command."""

_DEFAULT_LIMITS = Limits(max_stored_bytes=4 * 1024 * 1024, max_stored_entries=10_000)


@attrs.frozen
class _Script:
    """A script, and its name in Redis."""

    text: bytes
    sha: str

    @classmethod
    def of(cls, text: str) -> _Script:
        return cls(text.encode(), hashlib.sha1(text.encode()).hexdigest())


_APPEND, _READ, _DROP = _Script.of(APPEND), _Script.of(READ), _Script.of(DROP)


@attrs.frozen(eq=False)
class _Command:
    """A call of a script."""

    script: _Script
    keys: tuple[str, ...]
    arguments: tuple[Any, ...]
    principal: str | None = None
    """Whose session is in use; None if that need not be recorded."""


class RedisStore:
    """An asynchronous store in Redis 6.2 or later: one server, Sentinel, or a cluster.

    Any number of processes on any machines may use it, and each is told of the changes of others
    (:meth:`watch`). A session is bounded by ``limits``: its bytes, its entries in one log, and the
    age of its logs. When a session is full, its log that was used longest ago is deleted. A
    principal may have ``max_sessions`` sessions; beyond that the one that was used longest ago is
    deleted.

    An acknowledged entry survives the death of any process. Whether it survives the loss of the
    machine of Redis depends on its ``appendfsync``. Set ``maxmemory-policy noeviction``: with
    another policy Redis deletes logs in use when its memory is full.

    What is stored is as confidential as the conversations. The names of keys are hashes.

    Its methods may be called in any event loop of asyncio or trio, also in several at the same
    time; a thread of the store uses the client. They raise redis.RedisError if Redis does not work,
    and the server repeats the operation.
    """

    is_durable = True

    def __init__(
        self,
        client: RedisClient,
        limits: Limits = _DEFAULT_LIMITS,
        *,
        prefix: str = "mcp1",
        max_sessions: int = 1000,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Use a client of your own, which gives bytes (``decode_responses=False``).

        Args:
            client: a ``redis.Redis``, for instance from ``Sentinel.master_for()``, or a
                ``redis.RedisCluster``. Give it timeouts: without them, one connection that is
                silent stops the store. :meth:`close` leaves it open.
            limits: ``max_stored_bytes``, ``max_stored_entries`` and ``max_stored_age``, for each
                session. The default is 4 MiB, 10,000 entries and 900 s.
            prefix: of all keys. Instances with the same prefix share their sessions.
            max_sessions: of one principal. Clients without authentication are not bounded.
            clock: returns seconds; for tests. By default the clock of Redis tells the age.
        """
        self._client = client
        self._limits = limits
        self._prefix = prefix
        self._max_sessions = max_sessions
        self._clock = clock
        self._owns_client = False
        self._used_at: dict[str, float] = {}
        """When the use of a session was recorded by this process, by the tag of its keys."""
        self._secret: bytes | None = None
        self._lock = threading.Lock()
        self._watches = RedisWatches(client, f"{prefix}:wake:{secrets.token_hex(8)}")
        self._worker = StoreWorker(
            self._perform, look=self._watches.update, name="sansmcp redis store"
        )

    @classmethod
    def from_url(cls, url: str, limits: Limits = _DEFAULT_LIMITS, **settings: Any) -> RedisStore:
        """Connect to one server.

        Args:
            url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, or
                ``unix://path``.
            limits: the bounds of each session.
            settings: ``prefix``, ``max_sessions`` and ``clock``, as for the constructor.

        Raises:
            ImportError: the extra ``redis`` is not installed.
            ValueError: the URL is not one of these.
        """
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise ImportError("RedisStore needs the extra: pip install sansmcp[redis]") from error
        client = redis.Redis.from_url(
            url,
            # The server repeats what has failed: it knows for how long that is of use.
            retry=Retry(NoBackoff(), 0),
            socket_timeout=_TIMEOUT,
            socket_connect_timeout=_TIMEOUT,
            socket_keepalive=True,
            health_check_interval=10,
        )
        store = cls(client, limits, **settings)
        store._owns_client = True
        return store

    def close(self) -> None:
        """Perform what waits, end the threads of the store, and close a client of its own."""
        self._watches.close()
        self._worker.close()
        if self._owns_client:
            self._client.close()

    @property
    def secret(self) -> bytes:
        """32 random bytes, the same for all instances with this prefix: a key of a StateSigner.

        The first access asks Redis, and blocks the calling thread. Raises redis.RedisError.
        """
        if self._secret is None:
            name = f"{self._prefix}:secret"
            self._client.set(name, secrets.token_bytes(32), nx=True)
            found: Any = self._client.get(name)
            if not isinstance(found, bytes) or len(found) != 32:
                raise ValueError(f"The key {name} of Redis must hold 32 bytes; delete it")
            self._secret = found
        return self._secret

    async def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        """Append entries to a log; see :meth:`sansmcp.Store.append`.

        The clock of Redis tells the age of entries, so ``now`` is not used.
        """
        del now
        tag = self._tag(key.principal, key.session)
        limits = self._limits
        command = _Command(
            _APPEND,
            (self._log(tag, key.stream), f"{tag}#index", f"{tag}#ages"),
            (
                entries[0].seq,
                token,
                key.stream,
                "" if self._clock is None else round(self._clock() * 1000),
                limits.max_stored_entries,
                limits.max_stored_bytes,
                round(limits.max_stored_age * 1000),
                *map(_encode, entries),
            ),
            principal=key.principal or None,
        )
        size = sum(len(entry.data) for entry in entries)
        return AppendResult((await self._worker.submit(command, size)).decode())

    async def read(
        self, key: StreamKey, after: int, *, limit: int, max_bytes: int
    ) -> Page | None:
        """Return the entries that follow number ``after``; see :meth:`sansmcp.Store.read`."""
        tag = self._tag(key.principal, key.session)
        command = _Command(_READ, (self._log(tag, key.stream),), (after, limit, max_bytes))
        found = await self._worker.submit(command)
        if found is None:
            return None
        first, last = int(found[0]), int(found[1])
        entries = tuple(_decode(first + index, data) for index, data in enumerate(found[3:]))
        return Page(entries, _decode(last, found[2]))

    async def drop(self, principal: str, session: str) -> None:
        """Delete all logs of a session."""
        tag = self._tag(principal, session)
        await self._worker.submit(_Command(_DROP, (f"{tag}#index", f"{tag}#ages"), ()))

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed()`` when a log may have new entries; see :class:`sansmcp.WatchableStore`.

        One connection of the process, used by one thread, listens for all watches.
        """
        tag = self._tag(key.principal, key.session)
        end = self._watches.add(f"{tag}#index", key.stream, changed)
        self._worker.wake()

        def end_and_wake() -> None:
            end()
            self._worker.wake()

        return end_and_wake

    def _tag(self, principal: str, session: str) -> str:
        """Return how the keys of a session begin. All of them are in one slot of a cluster."""
        name = f"{len(principal)}:{principal}{session}".encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(name).digest()[:16]).decode().rstrip("=")
        return f"{self._prefix}:{{{digest}}}"

    def _log(self, tag: str, name: str) -> str:
        if _SAFE_NAME.fullmatch(name) is None:
            name = "~" + hashlib.sha256(name.encode()).hexdigest()
        return f"{tag}:{name}"

    # In the thread of the worker

    def _perform(self, commands: Sequence[_Command]) -> Sequence[Any]:
        """Perform commands with one round trip."""
        outcomes = self._send(commands)
        for script in {each.script for each, outcome in self._unknown(commands, outcomes)}:
            self._client.script_load(script.text)  # Redis has restarted, or never had it
        unknown = self._unknown(commands, outcomes)
        if unknown:
            again = iter(self._send([each for each, _ in unknown]))
            outcomes = [next(again) if _is_no_script(each) else each for each in outcomes]
        self._record_use(commands)
        return outcomes

    def _send(self, commands: Sequence[_Command]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for each in commands:
            pipeline.execute_command(
                "EVALSHA", each.script.sha, len(each.keys), *each.keys, *each.arguments
            )
        return list(pipeline.execute(raise_on_error=False))

    def _unknown(
        self, commands: Sequence[_Command], outcomes: Sequence[Any]
    ) -> list[tuple[_Command, Any]]:
        pairs = zip(commands, outcomes, strict=True)
        return [(each, outcome) for each, outcome in pairs if _is_no_script(outcome)]

    def _record_use(self, commands: Sequence[_Command]) -> None:
        """Record which sessions of which principals are in use, a few times in their life.

        The sessions of one principal are in different slots, so no script can bound them.
        """
        now, often = time.monotonic(), self._limits.max_stored_age / 3
        for each in commands:
            if each.principal is None:
                continue
            index = each.keys[-2]
            if now - self._used_at.get(index, -often) < often:
                continue
            self._used_at[index] = now
            digest = hashlib.sha256(each.principal.encode()).hexdigest()[:32]
            sessions = f"{self._prefix}:p:{digest}"
            self._client.zadd(sessions, {index: time.time()})
            self._client.expire(sessions, round(self._limits.max_stored_age) + 1)
            excess: Any = self._client.zcard(sessions)
            for _ in range(min(8, excess - self._max_sessions)):
                for name, _ in self._client.zpopmin(sessions):
                    index_key = name.decode()
                    ages_key = index_key.removesuffix("#index") + "#ages"
                    self._send([_Command(_DROP, (index_key, ages_key), ())])
        if len(self._used_at) > 20_000:
            self._used_at = {k: at for k, at in self._used_at.items() if now - at < often}


def _is_no_script(outcome: object) -> bool:
    return type(outcome).__name__ == "NoScriptError"


def _encode(entry: Entry) -> bytes:
    return _KINDS[entry.kind] + (b"1" if entry.final else b"0") + entry.data


def _decode(seq: int, stored: bytes) -> Entry:
    return Entry(seq, stored[2:], stored[1:2] == b"1", _LETTERS[stored[:1]])
