"""The error that a tool raises for the model, and that of what it returns."""

from __future__ import annotations


class ToolError(Exception):
    """A tool has failed, and the text says why: the model gets it.

    The text of any other exception is logged, and not sent, because it could contain secrets.
    """


class NotJsonError(Exception):
    """A value has a part that JSON does not have, such as NaN. The text names its place."""
