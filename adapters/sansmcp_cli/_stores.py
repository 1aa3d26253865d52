"""The store of ``sansmcp serve``."""

from __future__ import annotations

import re
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import sansmcp
from sansmcp.types import hide_credentials

from ._output import UsageError, print_line

if TYPE_CHECKING:
    from sansmcp_stores import RedisStore, SqliteStore

_REDIS = re.compile(r"(rediss?|unix)://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


_LONGEST_WAIT = 60.0
"""Seconds to wait for Redis. After that a supervisor may start the process again."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two attempts, the first time and at most."""


def open_store(place: str, pause: Callable[[float], None]) -> SqliteStore | RedisStore:
    """Open a store that servers share, and see if it can be used.

    The servers of a fleet and Redis start in any order, so this waits until Redis answers, for a
    minute at most. A line on stderr says that it waits.

    Args:
        place: the path of a file, or the URL of a Redis server. Errors do not show the credentials
            of a URL.
        pause: waits for so many seconds. What it raises ends the waiting.

    Raises:
        UsageError: the store cannot be used.
    """
    if _REDIS.match(place):
        return _open_redis(place, pause)
    if _URL.match(place):
        raise UsageError(
            f"--store takes a file, or a URL that begins with redis://, rediss:// or unix://, got "
            f"{hide_credentials(place)!r}"
        )
    from sansmcp_stores import SqliteStore

    try:
        return SqliteStore(place)
    except (OSError, sqlite3.Error, sansmcp.LocalProtocolError) as error:
        raise UsageError(f"Cannot use {place!r} as a store: {error}") from error


def _open_redis(url: str, pause: Callable[[float], None]) -> RedisStore:
    from sansmcp_stores import RedisStore

    try:
        store = RedisStore.from_url(url)
    except ImportError as error:
        raise UsageError(str(error)) from error
    except (ValueError, TypeError, sansmcp.LocalProtocolError) as error:
        # A ValueError may quote a part of the URL, such as a wrong port.
        text = f"{type(error).__name__} in {hide_credentials(url)!r}"
        raise UsageError(f"--store: this URL cannot be used: {text}") from error
    try:
        _wait_for_redis(store, hide_credentials(url), pause)
    except BaseException:
        store.close()
        raise
    return store


def _wait_for_redis(store: RedisStore, url: str, pause: Callable[[float], None]) -> None:
    """Ask Redis for the secret, so that the errors of a wrong address or password come now."""
    give_up_at = time.monotonic() + _LONGEST_WAIT
    seconds = _FIRST_PAUSE
    while True:
        try:
            _ = store.secret
        except ConnectionError as error:
            reason = error.__cause__
            if time.monotonic() >= give_up_at:
                raise UsageError(f"Cannot use {url!r} as a store: {reason}") from error
            if seconds == _FIRST_PAUSE:
                wait = f"waiting for {url!r}, for {_LONGEST_WAIT:g} s at most: {reason}"
                print_line(f"sansmcp: {wait}", sys.stderr)
        except Exception as error:  # of the client library, which this package does not import
            raise UsageError(f"Cannot use {url!r} as a store: {error}") from error
        else:
            return
        pause(seconds)
        seconds = min(2 * seconds, _LONGEST_PAUSE)
