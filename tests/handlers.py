"""Handlers for tests that only need one to be there."""

from __future__ import annotations

from typing import Any


def nothing(_: Any) -> None:
    """Handle any method; its result is never used."""
