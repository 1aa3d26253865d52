"""The ``sansmcp`` command: serve, call, probe, measure, watch a demonstration."""

from __future__ import annotations

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status: 0, 1 for a failure, or 130 for Ctrl-C.

    The implementation is imported inside, since a Ctrl-C may arrive during the imports.
    """
    try:
        from ._main import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130
