"""What can be set on a server, as a type: for adapters that pass it on."""

from __future__ import annotations

from typing import TypedDict

from ..limits import Limits
from ..security import SecurityPolicy
from ..trace import Tracer
from ..turns import StateSeal
from ..wire import Http11


class ServerSettings(TypedDict, total=False):
    """The settings of :class:`sansmcp.Server`, which explains them, for adapters."""

    path: str
    http_sse: str | None
    versions: tuple[str, ...]
    shared_store: bool
    multi_turn: bool
    assume_multi_turn: bool
    sessions: bool
    listening: bool
    stream_after: float | None
    retry: float | None
    seal: StateSeal | None
    policy: SecurityPolicy | None
    limits: Limits | None
    http11: Http11 | None
    trace: Tracer | None
