"""An environment with fastmcp, which needs other versions than the project has."""

from __future__ import annotations

from .environments import python_with

PACKAGES = ("fastmcp==4.1.2", "fastmcp-tasks==4.1.2")


def fastmcp_python() -> str:
    """The interpreter of the environment, which is made first.

    Where that fails, the test is skipped, unless it has to be run.
    """
    return python_with("fastmcp", PACKAGES, "SANSMCP_REQUIRE_FASTMCP")
