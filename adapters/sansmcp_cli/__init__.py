"""The ``sansmcp`` command: serve an application, call a tool, watch a demonstration."""

from __future__ import annotations

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status: 0, 1 with a message on stderr, or 130 for Ctrl-C.

    What does the work is imported here, which takes long enough for a Ctrl-C.
    """
    try:
        from ._main import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130
