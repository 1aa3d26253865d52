"""What a command is given by the name of a module and of something in it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ._output import UsageError


def load(reference: str, default: str, what: str) -> Any:
    """The object that ``module:name`` means; the current directory is searched, too.

    ``default`` is the name if none is given, ``what`` the word for it. Raises Mistake.
    """
    module_name, _, name = reference.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        form = f"MODULE:{default.upper()}"
        raise UsageError(f"Not {form}: {reference!r}; a module is named as in Python, without .py")
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module_name), name or default)
    except (ImportError, AttributeError) as error:
        hint = "; name a module as in Python, without .py" if module_name.endswith(".py") else ""
        raise UsageError(f"Cannot load the {what} {reference!r}: {error}{hint}") from error
