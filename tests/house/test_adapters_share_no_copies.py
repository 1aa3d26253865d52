"""What two adapters do alike stands in one place: in the core, or in what they build on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from .sources import Module, adapter_parts, is_docstring

MOST_EQUAL_LINES = 5


def lines_of(module: Module) -> Iterator[list[str]]:
    """The lines of code of each function; signatures are promised to users, and may be alike."""
    lines = module.source.splitlines()
    for _, function in module.functions():
        first, last = function.body[0].lineno, function.body[-1].end_lineno
        if is_docstring(function.body[0]):
            first = (function.body[0].end_lineno or first) + 1
        code = (line.strip() for line in lines[first - 1 : last])
        yield [line for line in code if line and not line.startswith("#")]


def copies(packages: dict[str, Iterable[Module]]) -> list[str]:
    """Runs of lines that stand in several packages, each by its first line."""
    where: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for package, modules in packages.items():
        for module in modules:
            for lines in lines_of(module):
                for start in range(len(lines) - MOST_EQUAL_LINES):
                    where[tuple(lines[start : start + MOST_EQUAL_LINES + 1])].add(package)
    return [
        f"{', '.join(sorted(found))}: {run[0]}" for run, found in where.items() if len(found) > 1
    ]


def test_adapters_share_no_copies() -> None:
    assert copies(dict(adapter_parts())) == []


def test_a_copy_is_found() -> None:
    body = "".join(f"    line_{number}()\n\n    # a word\n" for number in range(6))
    one = Module("sansmcp_a.x", f"def f(a: int) -> None:\n    '''Doc.'''\n{body}")
    other = Module("sansmcp_b.y", f"class C:\n  def g(self):\n    start()\n{body}    end()\n")
    assert copies({"a": [one], "b": [other]}) == ["a, b: line_0()"]
    shorter = Module("sansmcp_b.y", other.source.replace("    line_3()\n", ""))
    assert copies({"a": [one], "b": [shorter]}) == []
