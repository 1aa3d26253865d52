"""When a client asks for the state of a task: at intervals, or when it is told of a change.

The server names the interval in seconds. If the task has not ended after some requests, the client
subscribes to its changes, too, with ``subscriptions/listen``. A server need not support that. If it
does, the client asks when it is told of a change, and rarely otherwise. What a notification says of
the state is not used: it may be older than the response to a request that is in flight.

Source: extension ``io.modelcontextprotocol/tasks`` of 2026-07-28; SEP-2663.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import attrs

from ..codecs import json
from ..messages import Notification, Params
from ..meta_keys import ACKNOWLEDGED
from ..tasks import CHANGED, TASK_IDS
from .options import ReconnectPolicy
from .outcomes import Retry

_DEFAULT_INTERVAL = 1.0
_SHORTEST_INTERVAL = 0.05
_LONGEST_INTERVAL = 60.0
"""Seconds between two requests, whatever the server wants."""

_LONGEST_RETRY = 5.0
"""Seconds until a failed request is repeated, beside the backoff, if the interval is longer. So
several attempts fit into the timeout of the call.
"""

_LISTEN_AFTER = 10
"""States of a task that has not ended, before the client subscribes to its changes."""

_LISTENING_INTERVAL = 15.0
"""Seconds between two requests at least, while the server tells of changes."""


class Listening(enum.Enum):
    """Whether a client hears of the changes of a task."""

    POLLING = enum.auto()
    """It asks at intervals."""
    SUBSCRIBING = enum.auto()
    """It asks at intervals, and the server has not acknowledged the subscription."""
    SUBSCRIBED = enum.auto()
    """It asks when the server tells of a change."""
    REFUSED = enum.auto()
    """It asks at intervals to the end: the server does not tell of this task."""


@attrs.define(eq=False, repr=False)
class TaskPolling:
    """The requests for the state of one task: when the next is due, and when one is repeated."""

    _id: str
    _policy: ReconnectPolicy
    _jitter: Callable[[], float]
    _interval: float = attrs.field(default=_DEFAULT_INTERVAL, init=False)
    _failures: int = attrs.field(default=0, init=False)
    """The number of requests that have failed since the last response about the task."""
    _listening: Listening = attrs.field(default=Listening.POLLING, init=False)
    _states: int = attrs.field(default=0, init=False)
    """The number of states that the client has polled since it listened last."""
    is_stale: bool = attrs.field(default=False, init=False)
    """True if the task may have changed after the request in flight, or the last one."""

    @property
    def wait(self) -> float:
        """The seconds until the next request."""
        if self.is_stale:
            return 0.0
        is_told = self._listening is Listening.SUBSCRIBED
        return max(self._interval, _LISTENING_INTERVAL) if is_told else self._interval

    def asked(self) -> None:
        """Record that the state is asked for."""
        self.is_stale = False

    def answered(self) -> None:
        """Record a response about the task."""
        self._failures = 0

    def is_pending(self) -> None:
        """Record a state that is not the end."""
        self._states += 1

    def set_interval(self, milliseconds: Any) -> None:
        """Set the interval that the server has named, if it has; a wrong one is the default."""
        if type(milliseconds) is int and milliseconds > 0:
            longest = _LONGEST_INTERVAL * 1000  # the integer may be too large for a float
            self._interval = max(min(milliseconds, longest) / 1000, _SHORTEST_INTERVAL)
        elif milliseconds is not None:
            self._interval = _DEFAULT_INTERVAL

    def retry(self, reason: str, wait: float = 0.0) -> Retry:
        """Return when to repeat a request that got no response about the task.

        Args:
            reason: why it failed, as text for an event.
            wait: the seconds for which the server has asked at least.
        """
        self._failures += 1
        wait = max(wait, min(self._interval, _LONGEST_RETRY))
        delay = self._policy.delay(self._failures, wait, self._jitter())
        return Retry(delay, self._failures, reason)

    # Listening

    def subscribe(self) -> Params | None:
        """Return the parameters of ``subscriptions/listen``, if the client is to subscribe now."""
        if self._listening is not Listening.POLLING or self._states < _LISTEN_AFTER:
            return None
        self._listening = Listening.SUBSCRIBING
        return {"notifications": {TASK_IDS: [self._id]}}

    def on_notification(self, notification: Notification) -> bool:
        """Record a notification of the subscription.

        Returns False if the server has acknowledged it without this task.
        """
        params = notification.params or {}
        if notification.method == ACKNOWLEDGED:
            ids = (json.as_object(params.get("notifications")) or {}).get(TASK_IDS)
            if not json.is_array(ids) or self._id not in ids:
                return False
            self._listening = Listening.SUBSCRIBED
            self.is_stale = True  # it may have changed before
        elif notification.method == CHANGED and params.get("taskId") == self._id:
            self.is_stale = True
        return True

    def on_unsubscribed(self, *, for_good: bool) -> None:
        """Record that the subscription has ended.

        ``for_good``: do not subscribe again.
        """
        self.is_stale = self.is_stale or self._listening is Listening.SUBSCRIBED
        self._listening = Listening.REFUSED if for_good else Listening.POLLING
        self._states = 0
