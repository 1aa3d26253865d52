"""Bars as SVG for ``runs.md``, and ratios by version.

They are written to ``build/bench``; ``make bench-plots`` puts them into the checkout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).parent / "plots"
RATIOS = Path(__file__).parent / "ratios.json"
"""How many times as long as ours others take, by version, workload and parser, and the least
microseconds that ours takes for a message.
"""

BUILD = Path(__file__).parents[1] / "build" / "bench"
PLOTS = BUILD / "plots"

_BAR, _GAP, _LABEL, _WIDTH = 18, 6, 250, 720
_TEXT = 'font-family="sans-serif" font-size="12"'


def write(name: str, title: str, unit: str, values: Mapping[str, float], ours: str) -> None:
    """Write a plot: a bar for each value, the lowest first; names that begin so stand out."""
    if not values:
        return  # all were left out
    PLOTS.mkdir(parents=True, exist_ok=True)
    (PLOTS / f"{name}.svg").write_text(svg(title, unit, values, ours))


def svg(title: str, unit: str, values: Mapping[str, float], ours: str) -> str:
    """The plot itself."""
    scale = (_WIDTH - _LABEL - 70) / (max(values.values()) or 1)
    shapes = [f'<text x="0" y="14" {_TEXT} font-weight="bold">{escape(title)} ({unit})</text>']
    top = 28
    for name, value in sorted(values.items(), key=lambda item: item[1]):
        middle, length = top + _BAR - 5, value * scale
        colour = "#2b6cb0" if name.startswith(ours) else "#a0aec0"
        shapes += [
            f'<text x="{_LABEL - 8}" y="{middle}" text-anchor="end" {_TEXT}>{escape(name)}</text>',
            f'<rect x="{_LABEL}" y="{top}" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>',
            f'<text x="{_LABEL + length + 6:.1f}" y="{middle}" {_TEXT}>{value:,.3g}</text>',
        ]
        top += _BAR + _GAP
    size = f'width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}"'
    white = '<rect width="100%" height="100%" fill="white"/>'
    body = "\n".join([white, *shapes])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{body}\n</svg>\n'


def write_ratios(
    about: Mapping[str, str],
    ratios: Mapping[str, Mapping[str, float]],
    micros: Mapping[str, float],
) -> None:
    """Write the ratios of a run, and what ours takes."""
    BUILD.mkdir(parents=True, exist_ok=True)
    found = {"about": about, "ratios": ratios, "micros": micros}
    (BUILD / RATIOS.name).write_text(json.dumps(found, indent=1))


def commit() -> None:
    """Copy what the last runs have drawn and written into the checkout."""
    for drawn in sorted(PLOTS.glob("*.svg")):
        (COMMITTED / drawn.name).write_bytes(drawn.read_bytes())
        print(f"{COMMITTED / drawn.name}")
    written = BUILD / RATIOS.name
    if written.exists():
        found: Any = json.loads(written.read_text())
        versions: dict[str, Any] = json.loads(RATIOS.read_text()) if RATIOS.exists() else {}
        versions[found["about"]["sansmcp"]] = found
        RATIOS.write_text(json.dumps(versions, indent=1, ensure_ascii=False) + "\n")
        print(f"{RATIOS}")


if __name__ == "__main__":
    commit()
