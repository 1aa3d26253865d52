"""Three programs, each with sansmcp, the official SDK and FastMCP; ``python -m benchmarks.lines``.

A program is counted as ruff formats it, without blank lines and comments. ``tests/lines`` runs all.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAMS = ("server", "calls", "agent")
LIBRARIES = ("sansmcp", "mcp", "fastmcp")
MOST = {"server": 22, "calls": 18, "agent": 30}
"""The most lines that ours may take."""


def program(name: str, library: str) -> Path:
    """Return the file of a program."""
    return FOLDER / f"{name}_{library}.py"


def count_lines(file: Path) -> int:
    """Return the lines of a program."""
    lines = map(str.strip, file.read_text(encoding="utf-8").splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))
