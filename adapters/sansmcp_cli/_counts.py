"""The counters of the demonstration."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Counts:
    """The outcomes of several calls."""

    calls: int = 0
    disconnects: int = 0
    """Streams that broke, and were resumed or whose call was repeated."""
    executions: int = 0
    """Runs of tools, as the tools have logged them."""
    lost: int = 0
    """Results and progress reports that never arrived."""
    duplicated: int = 0
    """Progress reports that arrived twice, and runs beyond those that the revision allows."""

    def __add__(self, other: Counts) -> Counts:
        pairs = zip(attrs.astuple(self), attrs.astuple(other), strict=True)
        names = (field.name for field in attrs.fields(Counts))
        return Counts(**{name: sum(pair) for name, pair in zip(names, pairs, strict=True)})

    def __str__(self) -> str:
        return f"{self.calls} calls, {self.disconnects} disconnects, {self.executions} executions"

    @property
    def verdict(self) -> str:
        return f"demo: {self}, {self.lost} lost, {self.duplicated} duplicated"
