"""Kinds of worlds: what happens to a fleet, its store, its clocks or its network beside the rest.

A world has one kind at most, so that little explains what goes wrong in it. A world without one
makes all its choices as if there were none.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from sansmcp.revisions import REVISIONS

from .fates import Fates

FLEETS = ("fleet", "fleet", "tasks")
"""What a kind is drawn for that needs several instances at a store."""


@attrs.frozen(kw_only=True)
class Kind:
    """What worlds of a kind have."""

    rate: float = 0.03
    """How likely it is, if none before it in the table was drawn."""
    base: tuple[str, ...] = FLEETS
    """One of these features it has; empty: it needs none of them."""
    has: frozenset[str] = frozenset()
    """Features that it always has."""
    may: frozenset[str] = frozenset()
    """Features that it may have, also where worlds of its base have them never."""
    lacks: frozenset[str] = frozenset()
    """Features that it never has."""


def _set(*names: str) -> frozenset[str]:
    return frozenset(names)


_NOT_WITH_A_RELAY = _set(
    *("fleet", "tasks", "protected", "eras", "jumps", "batches", "visitors", "strangers"),
    *("resources", "stops", "ends", "small store", "early closes", "small limits"),
)

KINDS = {
    "full store": Kind(),
    "standstill": Kind(lacks=_set("naps", "jumps")),
    "half-open": Kind(
        base=("", "", "fleet"),
        has=_set("silence"),
        may=_set("stalls", "windows"),
        lacks=_set("protected", "jumps", "impatient", "eras", "visitors", "early closes", "ends"),
    ),
    "clocks differ": Kind(),
    "lost store": Kind(),
    "old store": Kind(),
    "other keys": Kind(base=("", "fleet"), lacks=_set("eras")),
    "evicting fleet": Kind(has=_set("small store"), may=_set("small store")),
    "modern fleet": Kind(base=("fleet",)),
    "protected fleet": Kind(base=("fleet",), has=_set("protected"), lacks=_set("tasks")),
    "bad gateway": Kind(base=("", "fleet", "tasks"), lacks=_set("protected", "eras")),
    "doubled posts": Kind(base=("", "fleet", "tasks"), lacks=_set("protected", "eras")),
    "rate limit": Kind(base=("", "fleet", "tasks"), lacks=_set("protected", "eras")),
    "two versions": Kind(),
    "idle expiry": Kind(),
    "large fleet": Kind(),
    "few tasks": Kind(base=("tasks",)),
    "eager readers": Kind(base=("tasks",), has=_set("slow store"), lacks=_set("fleet")),
    "relay": Kind(base=("",), lacks=_NOT_WITH_A_RELAY),
    "crowded relay": Kind(
        base=("",), has=_set("relay"), lacks=_NOT_WITH_A_RELAY | {"cancels", "impatient"}
    ),
    "keyed calls": Kind(
        rate=0.12,
        base=("",),
        has=_set("cuts"),
        lacks=_set(
            *("fleet", "tasks", "protected", "eras", "jumps", "batches", "visitors"),
            *("resources", "ends", "small store"),
        ),
    ),
    "shared keys": Kind(
        base=("fleet",), has=_set("cuts"), lacks=_set("tasks", "protected", "eras", "batches")
    ),
    "proofs": Kind(
        base=("fleet",),
        has=_set("protected"),
        lacks=_set("tasks", "strangers", "store away", "store fails"),
    ),
    "stdio-v2": Kind(
        base=("",),
        lacks=_set(
            *("fleet", "tasks", "protected", "eras", "batches", "visitors", "strangers"),
            *("refusals", "proxies"),
        ),
    ),
}
"""All of them, by name. Each is a feature of its worlds, too."""

SOMETIMES = (
    "all connections of a client silent",
    "call asked for the rest of",
    "call delivered twice",
    "call that lost its key's room",
    *(f"connected by stdio-v2 at {version}" for version in tuple(REVISIONS)[1:]),
    "client that makes many calls refused for lack of room",
    "instance stands still",
    "key claimed by another instance",
    "key of another principal used",
    "instance stands still while a handler runs",
    "instance stands still while it reads a lease",
    "proof used again",
    "proxy loses the response",
    "proxy refuses",
    "proxy shows a page",
    "proxy waits too long",
    "record of a newer version stored",
    "relay cannot pass something on",
    "relay connected by stdio at 2025-11-25",
    "relay connected by stdio at 2026-07-28",
    "relay connected by streamable-http at 2025-11-25",
    "relay connected by streamable-http at 2026-07-28",
    "relay loses its upstream",
    "response of another instance given",
    "server keeps the connection of a silent client",
    "state of an unknown key refused",
    "store full",
    "store loses much",
)
"""What has to be reached in some worlds of these kinds."""

OFF: dict[str, str] = {}
"""Kinds that are not drawn, and why."""


def draw(fates: Fates) -> str:
    """Draw the kind of a world; empty: it has none."""
    for name, kind in KINDS.items():
        if name not in OFF and fates.strikes(f"kind {name}", kind.rate):
            return name
    return ""


def features_of(name: str, features: set[str], fates: Fates) -> set[str]:
    """Return what a world of a kind has, of what was drawn for it."""
    if not name:
        return features
    kind = KINDS[name]
    features = (features | kind.has | {name}) - kind.lacks
    if kind.base and not features & {*kind.base}:
        features = (features - {"fleet", "tasks"}) | ({fates.pick("base", kind.base)} - {""})
    return features


def never(name: str, features: Iterable[str]) -> set[str]:
    """Return which of these features a world of a kind must not have."""
    return {*features} - (KINDS[name].may | KINDS[name].has if name else set())
