"""The error that a tool raises for the model."""

from __future__ import annotations


class ToolError(Exception):
    """A tool has failed, and the text says why: the model gets it.

    The text of any other exception is logged, and not sent, because it could contain secrets.
    """
