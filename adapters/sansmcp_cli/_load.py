"""Load an object that a command gets as ``module:name``."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from operator import attrgetter
from types import ModuleType
from typing import Any

from ._output import UsageError


def load(reference: str, default: str, what: str, kind: type | None = None) -> Any:
    """Return the object that ``module:name`` names; the current directory is searched, too.

    ``name`` may have dots, for an attribute of an object. ``default`` is the name if there is none,
    ``what`` the word for it in errors, and ``kind`` the type of the objects of the module that
    errors suggest. Raises UsageError.
    """
    module_name, _, name = reference.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        form = f"MODULE:{default.upper()}"
        raise UsageError(f"Not {form}: {reference!r}; a module is named as in Python, without .py")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, AttributeError) as error:
        hint = "; name a module as in Python, without .py" if module_name.endswith(".py") else ""
        if isinstance(error, ModuleNotFoundError) and error.name == module_name:
            hint += f"; modules are looked for in {os.getcwd()}, and where Python finds them"
        place = _place_of(error)
        raise UsageError(f"Cannot load the {what} {reference!r}: {error}{place}{hint}") from error
    try:
        found = attrgetter(name or default)(module)
    except AttributeError as error:
        advice = _suggested(module, default, kind)
        raise UsageError(f"Cannot load the {what} {reference!r}: {error}; {advice}") from error
    if kind is not None and not isinstance(found, kind):
        advice = _suggested(module, default, kind)
        text = f"{reference!r} is {type(found).__name__}; an App or Tools is wanted: {advice}"
        raise UsageError(text)
    return found


def _place_of(error: Exception) -> str:
    """Return the line that failed while a module was imported; nothing if there is no module."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    lines = [each for each in frames if "importlib" not in each.filename]
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""


def _suggested(module: ModuleType, default: str, kind: type | None) -> str:
    """Return the references to the objects of a module that a command could have got."""
    text = f"write MODULE:{default.upper()}"
    if kind is None:
        return text
    names = [name for name, value in vars(module).items() if isinstance(value, kind)]
    found = " or ".join(f"{module.__name__}:{name}" for name in names)
    return f"{text}, here {found}" if found else f"{text}; {module.__name__} has no {kind.__name__}"
