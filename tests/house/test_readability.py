"""Files and functions stay short enough to be read, and nothing is left for later."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .sources import ROOT, Module, adapters, core

MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 50
"""Without its docstring: what does not fit on a screen is not seen at once."""

FOLDERS = ("adapters", "benchmarks", "examples", "sansmcp", "tests")
LEFT_FOR_LATER = re.compile(r"\b(TODO|FIXME|XXX)\b")


def files(root: Path) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]


def too_long(root: Path) -> list[str]:
    lengths = {path: len(path.read_text().splitlines()) for path in files(root)}
    return [
        f"{path.relative_to(root)}: {length} lines"
        for path, length in lengths.items()
        if length > MOST_LINES_OF_A_FILE
    ]


def left_for_later(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in files(root)
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LEFT_FOR_LATER.search(line)
    ]


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


def long_functions(module: Module) -> list[str]:
    lengths = {name: module.code_lines(function) for name, function in module.functions()}
    return [
        f"{module.name}.{name}: {length} lines"
        for name, length in lengths.items()
        if length > MOST_LINES_OF_A_FUNCTION
    ]


def test_files_are_short() -> None:
    assert too_long(ROOT) == []


def test_functions_are_short() -> None:
    modules = core() + [module for package in adapters().values() for module in package]
    assert [line for module in modules for line in long_functions(module)] == []


def test_tables_of_contents_are_complete() -> None:
    modules = core()
    tables = {module: table_of_contents(module) for module in modules if module.is_package}
    assert any(tables.values())
    assert {
        package.name: names
        for package, listed in tables.items()
        if listed and (names := sorted({*parts(package, modules)} ^ {*listed}))
    } == {}


def test_nothing_is_left_for_later() -> None:
    assert left_for_later(ROOT) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_long_file_is_found(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "long.py").write_text("pass\n" * (MOST_LINES_OF_A_FILE + 1))
    (tmp_path / folder / "short.py").write_text("pass\n" * MOST_LINES_OF_A_FILE)
    assert too_long(tmp_path) == [f"{folder}/long.py: 401 lines"]


def test_a_long_function_is_found() -> None:
    body = "    pass\n" * MOST_LINES_OF_A_FUNCTION
    module = Module("sansmcp.http", f"class A:\n  def long():\n{body}def short():\n    pass\n")
    assert long_functions(module) == ["sansmcp.http.A.long: 51 lines"]


@pytest.mark.parametrize("line", ["# TODO: later", "x = 1  # FIXME", '"""XXX"""'])
def test_what_is_left_for_later_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "sansmcp").mkdir()
    (tmp_path / "sansmcp" / "unfinished.py").write_text(f"\n{line}\n")
    assert left_for_later(tmp_path) == [f"sansmcp/unfinished.py:2: {line}"]
