"""What can be set on a client and on its calls, as types: for adapters that pass it on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from ..codecs.headers import HeaderTypes
from ..limits import Limits
from ..trace import Tracer
from ..wire import Http11
from .core import ReconnectPolicy
from .detection import Verdicts

SAFE_METHODS = frozenset(
    (
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "server/discover",
        "subscriptions/listen",
    )
)
"""Methods that change nothing at the server, so that repeating them does no harm."""


class ClientSettings(TypedDict, total=False):
    """The settings of :class:`sansmcp.Client`, which explains them, for adapters."""

    name: str
    version: str
    anonymous: bool
    capabilities: Mapping[str, Any] | None
    versions: tuple[str, ...]
    headers: HeaderTypes
    transports: tuple[str, ...]
    listen: bool
    multi_turn: bool
    assume_multi_turn: bool
    timeout: float
    total_timeout: float
    connect_timeout: float
    probe_timeout: float
    close_timeout: float
    reconnect: ReconnectPolicy | None
    verdicts: Verdicts | None
    limits: Limits | None
    http11: Http11 | None
    cache: bool
    trace: Tracer | None


class CallOptions(TypedDict, total=False):
    """The options of :meth:`sansmcp.Client.call`, which explains them, for adapters."""

    timeout: float | None
    total_timeout: float | None
    reset_on_progress: bool
    idempotent: bool | None
    meta: Mapping[str, Any] | None
