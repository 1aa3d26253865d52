"""Wakes the readers of logs in Redis: one connection for each process that listens for all."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sansmcp import LocalProtocolError

_logger = logging.getLogger("sansmcp")

_LISTEN = 5.0
"""Seconds without a message after which Redis is asked for an answer. After as many again the
connection counts as broken: a network that drops packets closes no connection.
"""
_FIRST_DELAY, _LONGEST_DELAY = 0.05, 2.0
"""Seconds before the connection is made again, the first time and at most."""
_ENDING = 2.0
"""Seconds that the thread gets to end."""


class RedisWatches:
    """The logs that this process watches, and the thread that listens for their changes.

    Redis publishes each append in the channel of its session, with the name of the log, and a drop
    of the session without a name. A message that is published while the connection is broken is
    lost. So each confirmed subscription, also one that is renewed after a broken connection, counts
    as a change of all logs of the session.

    Subscriptions are made by the thread that listens. To have it look for new ones, a message is
    published in a channel of its own.

    A process that has forked has no watches of its parent, and its own connection.
    """

    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._closed = threading.Event()
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._wake_channel = f"{self._prefix}:wake:{secrets.token_hex(8)}"
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Guards all that follows."""
        self._channels: dict[str, dict[str, dict[object, Callable[[], None]]]] = {}
        """The functions to call, by channel and log."""
        self._touched: set[str] = set()
        """Channels that may have to be subscribed to, or not any more."""
        self._confirmed: set[str] = set()
        """Channels of which Redis has confirmed the subscription."""
        self._new: list[tuple[str, str, object]] = []
        """Watches that have to be called once if their channel is subscribed to already."""
        self._is_rung = False
        """The thread is about to look for new watches."""
        self._delay = _FIRST_DELAY
        """Seconds until the connection is made again if it breaks now."""

    def add(self, channel: str, log: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Watch a log. Returns a function that ends the watch. Call :meth:`update` afterwards.

        Raises:
            LocalProtocolError: the watches are closed.
        """
        self._check_process()
        name = object()
        with self._lock:
            if self._closed.is_set():
                raise LocalProtocolError("The store is closed")
            if channel not in self._channels:
                self._touched.add(channel)
            self._channels.setdefault(channel, {}).setdefault(log, {})[name] = changed
            self._new.append((channel, log, name))

        def end() -> None:
            with self._lock:
                logs = self._channels.get(channel, {})
                functions = logs.get(log, {})
                functions.pop(name, None)
                if not functions:
                    logs.pop(log, None)
                if not logs and self._channels.pop(channel, None) is not None:
                    self._touched.add(channel)

        return end

    def update(self) -> None:
        """Have the thread change its subscriptions, if they are not those that are needed.

        This waits for Redis. If that fails, the thread changes them a few seconds later.
        """
        self._check_process()
        with self._lock:
            new, self._new = self._new, []
            if self._closed.is_set():
                return
            must_ring = bool(self._touched) and not self._is_rung
            if must_ring and self._thread is None:
                must_ring = False
                thread = threading.Thread(
                    target=self._run, name="sansmcp redis watches", daemon=True
                )
                thread.start()
                self._thread = thread  # after that: a system without threads may have one later
            self._is_rung |= must_ring
            functions = [
                self._channels[channel][log][name]
                for channel, log, name in new
                if channel in self._confirmed
                and name in self._channels.get(channel, {}).get(log, {})
            ]
        _call(functions)
        if must_ring:
            try:
                self._client.publish(self._wake_channel, b"")
            except Exception as error:  # the thread sees that Redis is out of reach, and logs it
                _logger.debug("redis watches: %s", error)
                with self._lock:
                    self._is_rung = False

    def stop(self) -> None:
        """Call nothing any more, and let the thread end. Call :meth:`join` afterwards."""
        self._check_process()
        self._closed.set()
        with self._lock:
            self._channels.clear()
            self._new.clear()

    def join(self, *, must_ring: bool) -> None:
        """Wait until the thread has ended, for some seconds at most.

        Args:
            must_ring: wake the thread by a message. False if its connection is closed already.
        """
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        if must_ring:
            try:
                self._client.publish(self._wake_channel, b"")
            except Exception as error:  # it ends by itself then
                _logger.debug("redis watches: %s", error)
                return
        thread.join(_ENDING)

    def _check_process(self) -> None:
        # The thread of the parent does not exist here, and may have held the lock.
        if self._process != os.getpid():
            self._reset()

    # In the thread

    def _run(self) -> None:
        while not self._closed.is_set():
            subscriptions: Any = None
            try:
                subscriptions = self._client.pubsub()
                self._listen(subscriptions)
            except Exception as error:
                if self._closed.is_set():  # whoever closes the client breaks the connection
                    break
                is_first = self._delay == _FIRST_DELAY
                level = logging.WARNING if is_first else logging.DEBUG
                _logger.log(level, "redis watches: %s: %s", type(error).__name__, error)
                with self._lock:
                    self._confirmed.clear()
                self._closed.wait(self._delay)
                self._delay = min(2 * self._delay, _LONGEST_DELAY)
            finally:
                if subscriptions is not None:
                    with suppress(Exception):
                        subscriptions.close()

    def _listen(self, subscriptions: Any) -> None:
        """Listen until the watches are closed. Raises an exception if the connection breaks."""
        with self._lock:
            subscribed = {self._wake_channel, *self._channels}
            self._touched.clear()
            self._confirmed.clear()
            self._is_rung = False
        subscriptions.subscribe(*subscribed)
        is_asked = False
        while not self._closed.is_set():
            message = subscriptions.get_message(timeout=_LISTEN)
            if message is not None:
                is_asked = False
                self._delay = _FIRST_DELAY
                self._on_message(message, subscribed)
            elif is_asked:
                raise TimeoutError("Redis does not answer")
            else:
                subscriptions.ping()
                is_asked = True
            self._change(subscriptions, subscribed)

    def _change(self, subscriptions: Any, subscribed: set[str]) -> None:
        """Subscribe to what is needed, and unsubscribe from the rest."""
        with self._lock:
            self._is_rung = False
            if not self._touched:
                return
            new = {each for each in self._touched if each in self._channels} - subscribed
            old = {each for each in self._touched if each not in self._channels} & subscribed
            self._touched.clear()
            self._confirmed -= old
        subscribed |= new
        subscribed -= old
        if new:
            subscriptions.subscribe(*new)
        if old:
            subscriptions.unsubscribe(*old)

    def _on_message(self, message: dict[str, Any], subscribed: set[str]) -> None:
        functions: list[Callable[[], None]] = []
        channel = (message["channel"] or b"").decode()
        with self._lock:
            logs = self._channels.get(channel, {})
            if message["type"] == "subscribe" and channel in subscribed:
                self._confirmed.add(channel)
            if message["type"] == "subscribe" or message["data"] == b"":
                functions = [each for watches in logs.values() for each in watches.values()]
            elif message["type"] == "message":
                functions = list(logs.get(message["data"].decode(), {}).values())
        _call(functions)


def _call(functions: list[Callable[[], None]]) -> None:
    for changed in functions:
        try:
            changed()
        except Exception:
            _logger.exception("the watch of a store raised an exception")
