"""The store of ``sansmcp serve``."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING

import sansmcp
from sansmcp.types import hide_credentials

from ._output import UsageError

if TYPE_CHECKING:
    from sansmcp_stores import RedisStore, SqliteStore

_REDIS = re.compile(r"(rediss?|unix)://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open_store(place: str) -> SqliteStore | RedisStore:
    """Open a store that servers share, and see if it can be used.

    Args:
        place: the path of a file, or the URL of a Redis server. Errors do not show the credentials
            of a URL.

    Raises:
        UsageError: the store cannot be used.
    """
    if _REDIS.match(place):
        return _open_redis(place)
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


def _open_redis(url: str) -> RedisStore:
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
        _ = store.secret  # asks Redis, so the errors of a wrong address or password come now
    except Exception as error:  # of the client library, which this package does not import
        store.close()
        raise UsageError(f"Cannot use {hide_credentials(url)!r} as a store: {error}") from error
    return store
