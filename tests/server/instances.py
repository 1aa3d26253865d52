"""Several instances of one server that share nothing but a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sansmcp import Limits, MemoryStore, ServerCall
from sansmcp.events import CallReceived

from .harness import LATEST, ServerHarness


class Instances(list[ServerHarness]):
    """Instances on the bench; the first one opens the sessions."""

    def __init__(self, count: int = 2, limits: Limits | None = None, **settings: Any) -> None:
        limits = limits or Limits()
        self.store = MemoryStore(limits)
        super().__init__(
            ServerHarness(
                store=self.store,
                tokens=f"instance-{number}",
                shared_store=True,
                limits=limits,
                **settings,
            )
            for number in range(count)
        )

    def open_session(
        self, version: str = LATEST, capabilities: Mapping[str, Any] | None = None
    ) -> str:
        return self[0].open_session(version, capabilities)

    def wait(self, seconds: float) -> None:
        """Let time pass for all, a little at a time."""
        for _ in range(round(seconds / 0.25)):
            for harness in self:
                harness.wait(0.25)

    def grow_old(self, seconds: float) -> None:
        """Let time pass while others store something: what a store keeps ages by that."""
        for _ in range(round(seconds / 20)):
            self.wait(20)
            self.open_session()

    @property
    def entered(self) -> list[ServerCall]:
        """The calls whose handlers are to be entered, anywhere, since the last look."""
        calls: list[ServerCall] = []
        for harness in self:
            calls += [event.call for event in harness.events if isinstance(event, CallReceived)]
            harness.events.clear()
        return calls
