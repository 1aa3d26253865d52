"""The ``sansmcp`` command: serve an application, call a tool, watch a demonstration."""

from ._main import main

__all__ = ["main"]
