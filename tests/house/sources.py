"""The sources of the library, parsed: what the tests of this folder look at."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias, TypeGuard

import attrs

ROOT = Path(__file__).resolve().parents[2]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_PUBLIC_NAMES = ("__all__", "(__getattr__, __dir__)")
"""What is assigned to where public names are listed."""


@attrs.frozen
class Import:
    """One imported name in full: ``from a import b`` imports ``a.b``."""

    name: str
    line: int
    is_for_types: bool
    """It stands under ``if TYPE_CHECKING``."""


@attrs.frozen(eq=False, slots=False)
class Module:
    """One module: its name, where it is, and what is in it."""

    name: str
    source: str
    is_package: bool = False

    @functools.cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.source)

    def imports(self) -> Iterator[Import]:
        """Everything that is imported, within functions and blocks, too."""
        return self._imports(self.tree.body, is_for_types=False)

    def _imports(self, nodes: Iterable[ast.AST], *, is_for_types: bool) -> Iterator[Import]:
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, is_for_types)
            elif isinstance(node, ast.ImportFrom):
                package = self.name if self.is_package else self.name.rpartition(".")[0]
                relative = "." * node.level + (node.module or "")
                origin = importlib.util.resolve_name(relative, package)
                for alias in node.names:
                    yield Import(f"{origin}.{alias.name}", node.lineno, is_for_types)
            elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                yield from self._imports(node.body, is_for_types=True)
                yield from self._imports(node.orelse, is_for_types=is_for_types)
            else:
                children = ast.iter_child_nodes(node)
                yield from self._imports(children, is_for_types=is_for_types)

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Every function with its qualified name, such as ``Server.receive``."""
        return _functions(self.tree, "")

    def literals(self) -> Iterator[ast.Constant]:
        """Every constant that is neither a docstring nor one of the module's own public names."""
        words = {id(node.value) for node in ast.walk(self.tree) if is_docstring(node)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in _PUBLIC_NAMES:
                words.update(id(name) for name in ast.walk(node.value))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and id(node) not in words:
                yield node


def is_docstring(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Whether a node is a string that stands alone, and so only explains."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@functools.cache
def core() -> list[Module]:
    """Every module of ``sansmcp``."""
    return _modules(ROOT / "sansmcp")


@functools.cache
def adapters() -> dict[str, list[Module]]:
    """Every module of every adapter package, by package."""
    return {
        folder.name: _modules(folder)
        for folder in sorted((ROOT / "adapters").iterdir())
        if (folder / "__init__.py").exists()
    }


def part_of(name: str) -> str:
    """The adapter package of a module or of a name in it, or the package within that."""
    first, _, rest = name.partition(".")
    inner = f"{first}.{rest.partition('.')[0]}"
    packages = {module.name for module in adapters().get(first, ()) if module.is_package}
    return inner if inner in packages else first


@functools.cache
def adapter_parts() -> dict[str, list[Module]]:
    """Every module of every adapter package; a package within another one is on its own."""
    found: dict[str, list[Module]] = {}
    for modules in adapters().values():
        for module in modules:
            found.setdefault(part_of(module.name), []).append(module)
    return found


def _modules(package: Path) -> list[Module]:
    return [_read(path, package.parent) for path in sorted(package.rglob("*.py"))]


def _read(path: Path, base: Path) -> Module:
    parts = path.relative_to(base).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return Module(".".join(parts[:-1] if is_package else parts), path.read_text(), is_package)


def _functions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(parent):
        name = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{node.name}" if prefix else node.name
        if isinstance(node, Function):
            yield name, node
        yield from _functions(node, name)
