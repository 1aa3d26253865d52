"""All benchmarks within two minutes, on a busy machine too: ``python -m benchmarks.quick``.

Ours and bare ones on asyncio take part, and the official SDK. Each part stops measuring when its
share of the time is over, and names what it has left out. The numbers are rough: see the spread
beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

SECONDS = 110.0
"""For all parts together."""

PARTS: dict[str, tuple[str, float]] = {
    "parsers": ("--quick", 40),
    "servers": ("0.1", 20),
    "stdio": ("200", 10),
    "streams": ("500", 10),
    "clients": ("0.02", 20),
    "footprint": ("1", 10),
}
"""For each part its argument, and its weight when the time is shared out."""


def main(seconds: float = SECONDS) -> int:
    """Run the parts. Returns the exit status: 1 if one has failed."""
    end = time.monotonic() + seconds
    status = 0
    weights = sum(weight for _, weight in PARTS.values())
    for name, (argument, weight) in PARTS.items():
        share = max(end - time.monotonic(), 0) * weight / weights
        weights -= weight
        enough = time.monotonic() + 0.7 * share  # what is under way then takes a while to end
        print(f"\n{name}", flush=True)
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{name}", argument],
                env={**os.environ, "BENCHMARK_END": str(enough)},
                timeout=max(end - time.monotonic(), 1),
                check=False,
            )
            status |= done.returncode != 0
        except subprocess.TimeoutExpired:
            print(f"skipped: {name}: no time left; see python -m benchmarks.{name}")
    return status


if __name__ == "__main__":
    sys.exit(main())
