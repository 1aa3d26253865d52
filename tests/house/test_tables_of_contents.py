"""The table of contents in the docstring of a package lists every module of it."""

from __future__ import annotations

import ast
import re

from .sources import Module, core


def table_of_contents(package: Module) -> list[str]:
    """The modules that the docstring of a package lists; empty without a table."""
    text = ast.get_docstring(package.tree) or ""
    if "====" not in text:
        return []
    cells = [line.partition("  ")[0] for line in text.splitlines() if line.startswith("``")]
    return [name for cell in cells for name in re.findall(r"``([\w.]+)``", cell)]


def parts(package: Module, modules: list[Module]) -> list[str]:
    """The modules in a package, and in the packages in it."""
    inside = f"{package.name}."
    return [
        module.name.removeprefix(inside)
        for module in modules
        if module.name.startswith(inside) and not module.is_package
    ]


def test_tables_of_contents_are_complete() -> None:
    modules = core()
    tables = {module: table_of_contents(module) for module in modules if module.is_package}
    assert any(tables.values())
    assert {
        package.name: names
        for package, listed in tables.items()
        if listed and (names := sorted({*parts(package, modules)} ^ {*listed}))
    } == {}
