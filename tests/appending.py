"""Appends to a store, each with a token of its own."""

from __future__ import annotations

import itertools

from sansmcp import AppendResult, Entry, Store, StreamKey

_numbers = itertools.count(1)


def new_token() -> str:
    """Return a token that no other append has."""
    return f"append {next(_numbers)}"


def append(store: Store, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
    """Append entries; returns True if they are stored, False if the store refuses them."""
    return store.append(key, entries, token=new_token(), now=now) is AppendResult.STORED
