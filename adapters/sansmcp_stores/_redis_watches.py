"""Wakes the readers of logs in Redis: one connection for each process that listens for all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

_logger = logging.getLogger("sansmcp")

_LISTEN = 5.0
"""Seconds after which the thread looks whether it should end, if no message comes."""
_FIRST_DELAY, _LONGEST_DELAY = 0.05, 2.0
"""Seconds before the connection is made again, the first time and at most."""


class RedisWatches:
    """The logs that this process watches, and the thread that listens for their changes.

    Redis publishes each append in the channel of its session, with the name of the log. A message
    that is published while the connection is broken is lost. So each confirmed subscription, also
    one that is renewed after a broken connection, counts as a change of all logs of the session.

    Subscriptions are made by the thread that listens. To have it look for new ones, a message is
    published in a channel of its own.
    """

    def __init__(self, client: Any, wake_channel: str) -> None:
        self._client = client
        self._wake_channel = wake_channel
        self._lock = threading.Lock()
        """Guards all that follows."""
        self._channels: dict[str, dict[str, list[Callable[[], None]]]] = {}
        """The functions to call, by channel and log."""
        self._is_outdated = False
        """True if the subscriptions are not those that are needed."""
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, channel: str, log: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Watch a log. Returns a function that ends the watch. Call :meth:`update` afterwards."""
        with self._lock:
            self._is_outdated |= channel not in self._channels
            self._channels.setdefault(channel, {}).setdefault(log, []).append(changed)

        def end() -> None:
            with self._lock:
                logs = self._channels.get(channel, {})
                functions = logs.get(log, [])
                if changed in functions:
                    functions.remove(changed)
                if not functions:
                    logs.pop(log, None)
                if not logs and channel in self._channels:
                    del self._channels[channel]
                    self._is_outdated = True

        return end

    def update(self) -> None:
        """Have the thread change its subscriptions, if they are not those that are needed.

        This waits for Redis. If that fails, the thread changes them a few seconds later.
        """
        with self._lock:
            is_outdated, self._is_outdated = self._is_outdated, False
            if not is_outdated or self._closed.is_set():
                return
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="sansmcp redis watches", daemon=True
                )
                self._thread.start()
                return
        try:
            self._client.publish(self._wake_channel, b"")
        except Exception as error:  # the thread sees that the connection is broken, and logs it
            _logger.debug("redis watches: %s", error)

    def close(self) -> None:
        """End the thread. It ends within some seconds; nothing is called any more."""
        self._closed.set()
        with self._lock:
            self._channels.clear()
            self._is_outdated = True

    # In the thread

    def _run(self) -> None:
        delay = _FIRST_DELAY
        subscriptions = self._client.pubsub()
        subscribed: set[str] = {self._wake_channel}
        is_new = True
        while not self._closed.is_set():
            try:
                if is_new:
                    subscriptions.subscribe(*subscribed)
                    is_new = False
                self._change(subscriptions, subscribed)
                message = subscriptions.get_message(timeout=_LISTEN)
                delay = _FIRST_DELAY
            except Exception as error:
                _logger.warning("redis watches: %s: %s", type(error).__name__, error)
                self._closed.wait(delay)
                delay = min(2 * delay, _LONGEST_DELAY)
            else:
                if message is not None:
                    self._on_message(message)
        subscriptions.close()

    def _change(self, subscriptions: Any, subscribed: set[str]) -> None:
        """Subscribe to what is needed, and unsubscribe from the rest."""
        with self._lock:
            needed = {self._wake_channel, *self._channels}
        if new := needed - subscribed:
            subscriptions.subscribe(*new)
            subscribed |= new
        if old := subscribed - needed:
            subscriptions.unsubscribe(*old)
            subscribed -= old

    def _on_message(self, message: dict[str, Any]) -> None:
        channel = message["channel"].decode()
        with self._lock:
            logs = self._channels.get(channel, {})
            if message["type"] == "subscribe":
                functions = [each for found in logs.values() for each in found]
            else:
                functions = list(logs.get(message["data"].decode(), ())) if logs else []
        for changed in functions:
            changed()
