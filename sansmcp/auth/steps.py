"""What the generators of a flow yield, and what a flow wants of its owner.

A generator of type :data:`Steps` yields what it waits for, and is sent the result. It also yields
what it does not wait for: an event of the table AUTHORIZATION, and the effect that releases the
lock.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

import attrs

from ..addresses import AddressPolicy
from ..effects import AuthEffect
from ..errors import AuthorizationFailed
from ..events import AuthorizationNeeded
from ..states import AuthorizationEvent
from .codes import PendingCode
from .http import AuthRequest

_Answered = TypeVar("_Answered")


@attrs.frozen(eq=False)
class Fetch:
    """Make an HTTP request, to an address that ``policy`` allows."""

    request: AuthRequest
    policy: AddressPolicy


@attrs.frozen(eq=False)
class AbortFetch:
    """Abort the HTTP request: its response took too long, or is too long."""


@attrs.frozen(eq=False)
class Obtained:
    """The flow has ended, and waiting requests can be sent: with a token, or without any."""


@attrs.frozen(eq=False)
class Failed:
    """The flow has ended, and waiting requests fail with ``error``."""

    error: AuthorizationFailed


Step: TypeAlias = Fetch | AbortFetch | AuthEffect | AuthorizationNeeded | Obtained | Failed


@attrs.frozen(eq=False)
class Pause:
    """Wait for ``seconds``."""

    seconds: float


Wait: TypeAlias = Fetch | AuthEffect | PendingCode | Pause
Steps: TypeAlias = Generator[Wait | AuthorizationEvent, Any, _Answered]
