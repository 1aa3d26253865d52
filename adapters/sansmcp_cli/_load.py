"""Load an object that a command gets as ``module:name``."""

from __future__ import annotations

import importlib
import sys
from operator import attrgetter
from typing import Any

from ._output import UsageError


def load(reference: str, default: str, what: str) -> Any:
    """Return the object that ``module:name`` names; the current directory is searched, too.

    ``name`` may have dots, for an attribute of an object. ``default`` is the name if there is none,
    ``what`` the word for it in errors. Raises UsageError.
    """
    module_name, _, name = reference.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        form = f"MODULE:{default.upper()}"
        raise UsageError(f"Not {form}: {reference!r}; a module is named as in Python, without .py")
    sys.path.insert(0, "")
    try:
        return attrgetter(name or default)(importlib.import_module(module_name))
    except (ImportError, AttributeError) as error:
        hint = "; name a module as in Python, without .py" if module_name.endswith(".py") else ""
        raise UsageError(f"Cannot load the {what} {reference!r}: {error}{hint}") from error
