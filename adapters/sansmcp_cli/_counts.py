"""What the demonstration counts."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Counts:
    """What came of some calls."""

    calls: int = 0
    disconnects: int = 0
    """Streams that the client lost and came back to, or made its call again for."""
    executions: int = 0
    """Runs of tools, as the tools have written them down."""
    lost: int = 0
    """Results, and progress reports, that never came."""
    duplicated: int = 0
    """Progress reports that came twice, and runs of a tool beyond those that are promised."""

    def __add__(self, other: Counts) -> Counts:
        pairs = zip(attrs.astuple(self), attrs.astuple(other), strict=True)
        names = (field.name for field in attrs.fields(Counts))
        return Counts(**{name: sum(pair) for name, pair in zip(names, pairs, strict=True)})

    def __str__(self) -> str:
        return f"{self.calls} calls, {self.disconnects} disconnects, {self.executions} executions"

    @property
    def verdict(self) -> str:
        return f"demo: {self}, {self.lost} lost, {self.duplicated} duplicated"
