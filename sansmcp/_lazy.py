"""Import the public names of a package when they are first used (PEP 562).

So a program imports only what it uses: a client without the server, a codec without either.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any


def names(
    package: dict[str, Any],
    homes: Mapping[str, tuple[str, ...]],
    modules: tuple[str, ...] = (),
    extra: tuple[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Type checkers cannot follow this, so the package has the same imports under ``TYPE_CHECKING``; a
    test compares the two.

    Args:
        package: ``globals()`` of the package.
        homes: the public names of each of its modules.
        modules: the modules that are attributes of the package without an import of their own.
        extra: the extra that the package or some of its names need, and the library that it
            installs.
    """
    home = {name: module for module, found in homes.items() for name in found}

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f".{name}", package["__name__"])  # which sets the attribute
        if name not in home:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        with nullcontext() if extra is None else needing(f"{package['__name__']}.{name}", *extra):
            value = getattr(import_module(home[name], package["__name__"]), name)
        package[name] = value  # the next lookup finds it without calling get()
        return value

    return get, lambda: sorted({*package, *home, *modules})


@contextmanager
def needing(what: str, extra: str, library: str) -> Generator[None, None, None]:
    """Import the modules of a block, and name the extra that ``what`` needs if it is missing.

    Raises:
        ImportError: the library is not installed; the text says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        text = f"{what} needs the extra: pip install 'sansmcp[{extra}]'"
        raise ModuleNotFoundError(text, name=error.name) from error
