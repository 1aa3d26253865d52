"""A store in Redis, for processes on any number of machines."""

from __future__ import annotations

import base64
import hashlib
import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from sansmcp import (
    AppendResult,
    Entry,
    EntryKind,
    Limits,
    LocalProtocolError,
    Page,
    RateLimit,
    StreamKey,
    _lazy,
)

from ._redis_scripts import APPEND, DROP, FORGET, READ, TAKE, USE
from ._redis_watches import RedisWatches
from ._worker import StoreWorker

if TYPE_CHECKING:
    from redis import Redis, RedisCluster

    RedisClient: TypeAlias = Redis | RedisCluster
else:
    RedisClient = Any

_logger = logging.getLogger("sansmcp")

_KINDS = {kind: letter.encode() for kind, letter in zip(EntryKind, "mbitokfw?", strict=True)}
_LETTERS = {letter: kind for kind, letter in _KINDS.items()}

_SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,150}", re.ASCII)
_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,100}", re.ASCII)

_KEY_INTERVAL = 10.0
"""Seconds between two looks at the key of signed states."""

_MAX_KEYS = 3
"""The key and those before it that are known."""

_TIMEOUT = 2.0
"""Seconds for a connection, and for a command."""

_DEFAULT_LIMITS = Limits(max_stored_bytes=4 * 1024 * 1024, max_stored_entries=10_000)


@attrs.frozen(eq=False)
class _Script:
    """A script, and its name in Redis."""

    text: bytes
    sha: str

    @classmethod
    def of(cls, text: str) -> _Script:
        return cls(text.encode(), hashlib.sha1(text.encode()).hexdigest())


_APPEND, _READ, _DROP, _USE, _FORGET, _TAKE = map(
    _Script.of, (APPEND, READ, DROP, USE, FORGET, TAKE)
)


@attrs.frozen(eq=False)
class _Call:
    """A call of a script. Its arguments are such that no client can fail to send them."""

    script: _Script
    keys: tuple[str, ...]
    arguments: tuple[bytes | str | int, ...] = ()


@attrs.frozen(eq=False)
class _Operation:
    """An operation of the store."""

    call: _Call
    sessions: str | None = None
    """The key of the sessions of its principal; None if it does not use one that is counted."""
    index: str = ""
    """The index of the session."""
    max_sessions: int = 0
    is_drop: bool = False


class RedisStore:
    """An asynchronous store in Redis 6.2 or later: one server, Sentinel, or a cluster.

    Any number of processes on any machines may use it, and each is told of the changes of others
    (:meth:`watch`). The content outlives them: adapters set ``shared_store`` for it.

    A session is bounded by the ``stored_...`` limits: its bytes, its entries in one log, and the
    age of its logs. When a session is full, logs of its own that were used long ago are deleted,
    and at last the beginning of the log in use. A principal has at most
    ``max_sessions_per_principal`` sessions, and all clients without authentication have
    ``max_sessions`` together; beyond that the session that was used longest ago is deleted.

    An acknowledged entry survives the death of any process. Whether it survives the loss of the
    machine of Redis depends on its ``appendfsync``. Set ``maxmemory-policy noeviction``: with
    another policy Redis deletes logs in use when its memory is full. A warning is logged if Redis
    says that it writes no file, or that it has another policy.

    What is stored is as confidential as the conversations. The names of keys contain neither
    principals nor session ids.

    Its methods may be called in any event loop of asyncio or trio, also in several at the same
    time; a thread of the store uses the client. They raise redis.RedisError if Redis does not work,
    and the server repeats the operation. An operation whose caller is cancelled is performed all
    the same. A process may fork; the child gets threads and connections of its own.
    """

    is_durable = True

    def __init__(
        self,
        client: RedisClient,
        limits: Limits = _DEFAULT_LIMITS,
        *,
        prefix: str = "mcp1",
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Use a client of your own. Nothing is sent to Redis yet.

        Args:
            client: a ``redis.Redis``, for instance from ``Sentinel.master_for()``, or a
                ``redis.RedisCluster``. It must give bytes (``decode_responses=False``). Give it
                timeouts of some seconds: without them one connection that is silent stops the
                store. It need not repeat commands: the server does. :meth:`close` leaves it open.
            limits: the bounds. The default is 4 MiB for each session, 10,000 entries for each log,
                and 900 s.
            prefix: of all keys. Instances with the same prefix share their sessions.
            clock: returns seconds; for tests. By default the clock of Redis tells the age.

        Raises:
            ImportError: the extra ``redis`` is not installed.
            LocalProtocolError: the client decodes responses, or the prefix has other characters
                than letters, digits and ``_.:/-``.
            TypeError: the client is none of these.
        """
        redis = _library()
        if not isinstance(client, (redis.Redis, redis.RedisCluster)):
            raise TypeError(
                f"client must be a redis.Redis or redis.RedisCluster, got {type(client).__module__}"
                f".{type(client).__name__}"
            )
        encoder: Any = client.get_encoder()
        if encoder.decode_responses:
            raise LocalProtocolError("RedisStore needs a client with decode_responses=False")
        if _PREFIX.fullmatch(prefix) is None:
            raise LocalProtocolError(
                f"prefix must have letters, digits and _.:/- only, got {prefix!r}"
            )
        self._client: Any = client
        self._errors: Any = redis.exceptions
        self._limits = limits
        self._prefix = prefix
        self._max_age = max(1, min(round(min(limits.max_stored_age, 1e10) * 1000), 10**13))
        self._clock = clock
        self._owns_client = False
        self._used_at: dict[str, float] = {}
        """When the use of a session was recorded by this process, by its index."""
        self._secrets: tuple[bytes, ...] = ()
        """The key in Redis, then those that were there before. Written by the thread of the worker,
        and once by the thread that asks for it first.
        """
        self._looked_at = -math.inf
        """When that key was looked for last."""
        self._is_checked = False
        self._watches = RedisWatches(client, prefix)
        self._worker = StoreWorker[_Operation, Any](
            self._perform, look=self._look, name="sansmcp RedisStore"
        )

    @classmethod
    def from_url(
        cls,
        url: str,
        limits: Limits = _DEFAULT_LIMITS,
        *,
        prefix: str = "mcp1",
        clock: Callable[[], float] | None = None,
    ) -> RedisStore:
        """Use one server, with a timeout of 2 seconds for connections and commands.

        Args:
            url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, or
                ``unix://path``. Settings of ``redis.Redis`` may follow, as in
                ``rediss://host?ssl_ca_certs=/path/of/ca.pem&socket_timeout=5``.
            limits: the bounds, as for the constructor.
            prefix: of all keys.
            clock: returns seconds; for tests.

        Raises:
            ImportError: the extra ``redis`` is not installed.
            LocalProtocolError: a setting cannot be used; see the constructor.
            ValueError: the URL is not one of these.
        """
        redis = _library()
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        settings: dict[str, Any] = {
            # The server repeats what has failed: it knows for how long that is of use.
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": _TIMEOUT,
            "socket_connect_timeout": _TIMEOUT,
            "health_check_interval": 10,
        }
        if url.startswith("unix:"):
            del settings["socket_connect_timeout"]
        else:
            settings["socket_keepalive"] = True
        store = cls(redis.Redis.from_url(url, **settings), limits, prefix=prefix, clock=clock)
        store._owns_client = True
        return store

    def close(self) -> None:
        """Perform what waits, end the threads of the store, and close a client of its own.

        Blocks the calling thread for that time: a few seconds if Redis is out of reach. The content
        stays. A second call has no effect.
        """
        self._watches.stop()
        self._worker.close()
        if self._owns_client:
            self._client.close()
        self._watches.join(must_ring=not self._owns_client)

    @property
    def secret(self) -> bytes:
        """32 random bytes, the same for all instances with this prefix: a key of a StateSigner.

        The first access that succeeds asks Redis, and blocks the calling thread.

        Raises:
            ConnectionError: Redis is out of reach, or still loads its file. Try again later.
            LocalProtocolError: the key of the secret holds something else.
            redis.RedisError: Redis refuses, for instance because the password is wrong.
        """
        if not self._secrets:
            try:
                self._secrets = (self._shared_secret(secrets.token_bytes(32)),)
            except (self._errors.AuthenticationError, self._errors.AuthorizationError):
                raise  # the library derives them from its ConnectionError
            except (self._errors.ConnectionError, self._errors.TimeoutError) as error:
                why = str(error).rstrip(".")
                raise ConnectionError(
                    f"Redis is out of reach: {why}. Start Redis before the server, or give the "
                    "server a state_signer: it then starts without Redis, and refuses new sessions "
                    "until Redis works"
                ) from error
            self._check_settings()
        return self._secrets[0]

    def state_keys(self) -> tuple[bytes, ...]:
        """Return the keys of a StateSigner: :attr:`secret`, and those that it was before.

        If Redis loses the key, the processes that have it write it again. If a new process was
        faster, the others take its key, and still know their own.
        """
        if time.monotonic() >= self._looked_at + _KEY_INTERVAL:
            self._worker.wake()
        return self._secrets

    def _shared_secret(self, default: bytes) -> bytes:
        """Return the secret in Redis; write ``default`` if there is none."""
        name = f"{self._prefix}:secret"
        if self._client.set(name, default, nx=True) and self._secrets:
            _logger.warning(
                "RedisStore: Redis has lost %s, the key of signed states, and perhaps more; it was "
                "written again. Set appendonly yes and maxmemory-policy noeviction",
                name,
            )
        found: Any = self._client.get(name)
        if not isinstance(found, bytes) or len(found) != 32:
            raise LocalProtocolError(f"The key {name} of Redis must hold 32 bytes; delete it")
        return found

    async def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        """Append entries to a log, all or none of them; see :meth:`sansmcp.Store.append`.

        Age is told by the clock of Redis: ``now`` means nothing to other processes.
        """
        limits = self._limits
        tag = self._tag(key.principal, key.session)
        log = _log_name(key.stream)
        index = f"{tag}#index"
        call = _Call(
            _APPEND,
            (f"{tag}:{log}", index, f"{tag}#ages"),
            (
                entries[0].seq,
                _encode(token),
                log,
                self._now(),
                limits.max_stored_entries,
                limits.max_stored_bytes,
                self._max_age,
                *map(_encode_entry, entries),
            ),
        )
        operation = _Operation(
            call,
            sessions=self._sessions(key.principal) if key.session else None,
            index=index,
            max_sessions=(
                limits.max_sessions_per_principal if key.principal else limits.max_sessions
            ),
        )
        size = sum(len(entry.data) for entry in entries)
        result: bytes = await self._worker.submit(operation, size)
        return AppendResult(result.decode())

    async def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """Return the entries that follow number ``after``; see :meth:`sansmcp.Store.read`."""
        log = f"{self._tag(key.principal, key.session)}:{_log_name(key.stream)}"
        call = _Call(_READ, (log,), (after, limit, max_bytes))
        found: list[bytes] | None = await self._worker.submit(_Operation(call))
        if found is None:
            return None
        first, last, end, *entries = found
        return Page(
            tuple(_decode_entry(seq, data) for seq, data in enumerate(entries, int(first))),
            _decode_entry(int(last), end),
        )

    async def drop(self, principal: str, session: str) -> None:
        """Delete all logs of a session."""
        tag = self._tag(principal, session)
        index = f"{tag}#index"
        sessions = self._sessions(principal) if session else None
        call = _Call(_DROP, (index, f"{tag}#ages"))
        await self._worker.submit(_Operation(call, sessions=sessions, index=index, is_drop=True))

    async def take(self, bucket: str, count: int, limit: RateLimit, *, now: float) -> float:
        """Take tokens from a bucket; see :meth:`sansmcp.RateStore.take`.

        The clock of Redis tells the time. A bucket expires when it is full.
        """
        digest = hashlib.sha256(_encode(bucket)).hexdigest()[:32]
        amounts = (_microseconds(min(count, limit.burst), limit), _microseconds(limit.burst, limit))
        call = _Call(_TAKE, (f"{self._prefix}:rate:{digest}",), (*amounts, self._now()))
        wait: int = await self._worker.submit(_Operation(call))
        return wait / 1e6

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed()`` when a log may have new entries.

        See :meth:`sansmcp.WatchableStore.watch`. It is called in a thread of the store. One
        connection of the process listens for all watches.

        Raises:
            LocalProtocolError: the store is closed.
        """
        tag = self._tag(key.principal, key.session)
        end = self._watches.add(f"{tag}#index", _log_name(key.stream), changed)
        self._worker.wake()

        def end_and_wake() -> None:
            end()
            self._worker.wake()

        return end_and_wake

    def _tag(self, principal: str, session: str) -> str:
        """Return how the keys of a session begin. All of them are in one slot of a cluster."""
        digest = hashlib.sha256(_encode(f"{len(principal)}:{principal}{session}")).digest()[:16]
        return f"{self._prefix}:{{{base64.urlsafe_b64encode(digest).decode().rstrip('=')}}}"

    def _sessions(self, principal: str) -> str:
        return f"{self._prefix}:p:{hashlib.sha256(_encode(principal)).hexdigest()[:32]}"

    def _now(self) -> int | str:
        """Return the time in milliseconds, or nothing: Redis looks at its clock then."""
        return "" if self._clock is None else round(self._clock() * 1000)

    # In the thread of the worker

    def _look(self) -> float | None:
        """Update the watches and the key. Returns the seconds until it is time for the key again.

        Reading it from time to time also keeps Redis from evicting it first, by most policies.
        """
        self._watches.update()
        if not self._secrets:
            return None
        wait = self._looked_at + _KEY_INTERVAL - time.monotonic()
        if wait > 0:
            return wait
        self._looked_at = time.monotonic()
        try:
            found = self._shared_secret(self._secrets[0])
        except (self._errors.RedisError, LocalProtocolError) as error:
            _logger.debug("RedisStore: %s: %s", type(error).__name__, error)
            return _KEY_INTERVAL
        if found != self._secrets[0]:
            _logger.warning(
                "RedisStore: %s:secret, the key of signed states, has changed in Redis; new "
                "states are signed with it. A process that knows only one of both keys refuses the "
                "states of the other",
                self._prefix,
            )
            self._secrets = (found, *(key for key in self._secrets if key != found))[:_MAX_KEYS]
        return _KEY_INTERVAL

    def _perform(self, operations: Sequence[_Operation]) -> Sequence[Any]:
        """Perform operations with one round trip."""
        records = self._records_of_use(operations)
        try:
            outcomes = self._send([*(each.call for each in operations), *records.values()])
        except Exception:
            for index in records:
                self._used_at.pop(index, None)
            raise
        self._delete_sessions(zip(records, outcomes[len(operations) :], strict=True))
        del outcomes[len(operations) :]
        if not self._is_checked and not all(isinstance(each, Exception) for each in outcomes):
            self._check_settings()
        return outcomes

    def _send(self, calls: Sequence[_Call]) -> list[Any]:
        """Call scripts. Returns what each returns, or the exception with which it fails."""
        outcomes = self._execute(calls)
        unknown = [
            number
            for number, outcome in enumerate(outcomes)
            if isinstance(outcome, self._errors.NoScriptError)
        ]
        if unknown:  # Redis has restarted, or never had these scripts
            again = self._execute([calls[number] for number in unknown], with_text=True)
            for number, outcome in zip(unknown, again, strict=True):
                outcomes[number] = outcome
        pool = getattr(self._client, "connection_pool", None)
        is_replica = any(isinstance(each, self._errors.ReadOnlyError) for each in outcomes)
        if is_replica and pool is not None:
            # This is not the primary any more. Its name may lead to the new one by now.
            pool.disconnect(inuse_connections=False)
        return outcomes

    def _execute(self, calls: Sequence[_Call], *, with_text: bool = False) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for each in calls:
            command = ("EVAL", each.script.text) if with_text else ("EVALSHA", each.script.sha)
            pipeline.execute_command(*command, len(each.keys), *each.keys, *each.arguments)
        return list(pipeline.execute(raise_on_error=False))

    def _records_of_use(self, operations: Sequence[_Operation]) -> dict[str, _Call]:
        """Return the calls that record which sessions are in use, by the index of the session.

        The sessions of one principal are in different slots, so no script can bound them. Their use
        is recorded a few times in their life.
        """
        now, interval = time.monotonic(), self._limits.max_stored_age / 3
        records: dict[str, _Call] = {}
        for each in operations:
            if each.sessions is None:
                continue
            if each.is_drop:
                self._used_at.pop(each.index, None)
                records[each.index] = _Call(_FORGET, (each.sessions,), (each.index,))
            elif now - self._used_at.get(each.index, -interval) >= interval:
                self._used_at[each.index] = now
                expired = self._max_age + self._max_age // 3 + 1
                arguments = (each.index, self._now(), each.max_sessions, expired)
                records[each.index] = _Call(_USE, (each.sessions,), arguments)
        if len(self._used_at) > 20_000:
            self._used_at = {k: at for k, at in self._used_at.items() if now - at < interval}
        return records

    def _delete_sessions(self, records: Any) -> None:
        """Delete sessions of principals that have too many. What fails expires by itself."""
        unused: list[bytes] = []
        for index, outcome in records:
            if isinstance(outcome, Exception):
                self._used_at.pop(index, None)
            elif isinstance(outcome, list):
                unused += outcome
        if not unused:
            return
        names = [each.decode().removesuffix("#index") for each in unused]
        for name in names:
            self._used_at.pop(f"{name}#index", None)
        try:
            self._send([_Call(_DROP, (f"{name}#index", f"{name}#ages")) for name in names])
        except self._errors.RedisError as error:
            _logger.debug("RedisStore: %s: %s", type(error).__name__, error)

    def _check_settings(self) -> None:
        """Log a warning if Redis says that it keeps no entries for good."""
        self._is_checked = True
        try:
            found: dict[str, Any] = {**self._client.info("persistence")}
            found.update(self._client.info("memory"))
        except self._errors.RedisError as error:  # some services forbid it
            _logger.debug("RedisStore: INFO: %s", error)
            return
        problems: list[str] = []
        if found.get("aof_enabled") == 0:
            problems.append("what is stored is lost when Redis ends: set appendonly yes")
        if (policy := found.get("maxmemory_policy", "noeviction")) != "noeviction":
            problems.append(
                f"Redis deletes logs in use when its memory is full: set maxmemory-policy "
                f"noeviction, and not {policy}"
            )
        if problems:
            _logger.warning("RedisStore: %s", "; ".join(problems))


def _library() -> Any:
    with _lazy.needing("RedisStore", "redis", "redis"):
        import redis

    return redis


def _encode(text: str) -> bytes:
    # Names may come from JSON, which can hold half of a surrogate pair.
    return text.encode("utf-8", "surrogatepass")


def _microseconds(tokens: int, limit: RateLimit) -> int:
    """Return how long so many tokens take to come, at least 1 and at most 30 years."""
    return max(1, round(min(1e6 * tokens / limit.per_second, 1e15)))


def _log_name(stream: str) -> str:
    """Return how a log is named in its key, and where its changes are told."""
    if _SAFE_NAME.fullmatch(stream) is None:
        return "~" + hashlib.sha256(_encode(stream)).hexdigest()
    return stream


def _encode_entry(entry: Entry) -> bytes:
    return _KINDS[entry.kind] + (b"1" if entry.final else b"0") + entry.data


def _decode_entry(seq: int, stored: bytes) -> Entry:
    kind = _LETTERS.get(stored[:1], EntryKind.UNKNOWN)
    return Entry(seq, stored[2:], stored[1:2] == b"1", kind)
