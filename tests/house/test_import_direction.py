"""Imports point one way: down the tiers of the core, and from the adapters to the core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .sources import Module, adapter_parts, adapters, core
from .sources import part_of as part_of_adapter

TIERS = (
    ("_lazy", "addresses", "messages", "shares", "types"),
    ("credentials", "errors", "process", "schema", "store", "timers"),
    ("limits", "rates", "scopes"),
    ("app", "codecs", "memory_store", "reclaim", "revisions", "security", "states"),
    ("http", "meta_keys", "input_required", "tasks"),
    ("server_call", "http11_parser", "protected_resource"),
    ("authentication", "events"),
    ("static_tokens",),
    ("effects",),
    ("auth", "h11_parser", "httptools_parser", "observer"),
    ("trace",),
    ("client", "server"),
    ("event_source", "relay", "typed_results"),
    ("base_client", "http11", "http2", "skills"),
    ("base_call", "tokens"),
    ("drivers",),
    ("testing",),
    ("__init__",),
)
"""The parts of ``sansmcp``, lowest first. A part knows itself and the parts of the tiers below; it
does not know the other parts of its own tier.
"""

MAY_ALSO_USE = {
    "sansmcp_asgi": {"sansmcp_local"},
    "sansmcp_asyncio": {"sansmcp_local"},
    "sansmcp_auth": {"sansmcp_local"},
    "sansmcp_blocking": {"sansmcp_local", "sansmcp_local._threads"},
    "sansmcp_bridge": {"sansmcp_asyncio", "sansmcp_local"},
    "sansmcp_cli": {
        "sansmcp_asyncio",
        "sansmcp_auth",
        "sansmcp_blocking",
        "sansmcp_bridge",
        "sansmcp_local",
        "sansmcp_pytest",
        "sansmcp_stores",
        "sansmcp_trio",
    },
    "sansmcp_httpx": {"sansmcp_local"},
    "sansmcp_local._loop": {"sansmcp_local", "sansmcp_local._threads"},
    "sansmcp_local._threads": {"sansmcp_local"},
    "sansmcp_pyodide": {"sansmcp_local"},
    "sansmcp_pytest": {"sansmcp_local"},
    "sansmcp_stores": {"sansmcp_local"},
    "sansmcp_telemetry": {"sansmcp_local"},
    "sansmcp_tools": {"sansmcp_asyncio", "sansmcp_local"},
    "sansmcp_trio": {"sansmcp_local"},
    "sansmcp_wsgi": {"sansmcp_local", "sansmcp_local._threads"},
}
"""The adapters, and the packages within one, that an adapter may use; all may use ``sansmcp``."""

HEIGHT = {part: height for height, tier in enumerate(TIERS) for part in tier}


def part_of(name: str) -> str:
    """The part of the core that a name in it belongs to."""
    second = name.partition(".")[2].partition(".")[0]
    return second if second in HEIGHT else "__init__"


def wrong_ways(module: Module) -> list[str]:
    """Imports of the core that go up, or aside."""
    here = part_of(module.name)
    return [
        f"{module.name}:{imported.line} imports {imported.name}"
        for imported in module.imports()
        if imported.name.partition(".")[0] == "sansmcp" and not imported.is_for_types
        for there in (part_of(imported.name),)
        if here != there and HEIGHT[here] <= HEIGHT[there]
    ]


def uses(modules: list[Module], *, types: bool = True) -> dict[str, set[str]]:
    """What each module imports of the others, within functions too, with or without types."""
    names = {module.name for module in modules}
    return {
        module.name: {
            imported.name if imported.name in names else imported.name.rpartition(".")[0]
            for imported in module.imports()
            if types or not imported.is_for_types
        }
        & names - {module.name}
        for module in modules
    }


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The modules that need each other, the largest such sets."""
    needs = {name: set(reached_from(name, graph)) for name in graph}
    return {
        frozenset({name} | {other for other in needs[name] if name in needs[other]})
        for name in graph
        if name in needs[name]
    }


def reached_from(start: str, graph: dict[str, set[str]]) -> Iterator[str]:
    """The modules that a module imports, and those that these import, and so on."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        for name in graph[ahead.pop()] - seen:
            seen.add(name)
            ahead.append(name)
            yield name


def foreign(module: Module) -> set[str]:
    """The adapters other than its own that a module imports, even if only for types.

    A package may export what the packages within it define.
    """
    own = part_of_adapter(module.name)
    found = {part_of_adapter(imported.name) for imported in module.imports()}
    inner = {part for part in found if module.is_package and part.startswith(f"{own}.")}
    return {part for part in found if part.startswith("sansmcp_")} - inner - {own}


def test_every_module_has_a_tier() -> None:
    parts = {module.name.partition(".")[2].partition(".")[0] for module in core()} - {""}
    assert parts | {"__init__"} == HEIGHT.keys()


def test_imports_of_the_core_point_down() -> None:
    assert [line for module in core() for line in wrong_ways(module)] == []


def everything() -> list[Module]:
    return core() + [module for package in adapters().values() for module in package]


def test_no_module_needs_itself() -> None:
    assert circles(uses(everything(), types=False)) == set()


def test_no_module_needs_itself_for_types() -> None:
    assert circles(uses(everything())) == set()


def test_the_core_knows_no_adapter() -> None:
    assert [module.name for module in core() if foreign(module)] == []


def test_adapters_know_the_core_and_not_each_other() -> None:
    wrong = {
        module.name: foreign(module)
        for package, modules in adapter_parts().items()
        for module in modules
        if not foreign(module) <= MAY_ALSO_USE.get(package, set())
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("sansmcp.codecs.sse", "from ..client import client"),
        ("sansmcp.client.request", "from ..server.calls import Call"),
        ("sansmcp.server.calls", "import sansmcp.client.request"),
        ("sansmcp.errors", "from .events import Closed"),
        ("sansmcp.errors", "from .store import Entry"),
        ("sansmcp.server.calls", "from .. import Limits"),
        ("sansmcp.server.calls", "from sansmcp import Limits"),
        ("sansmcp.store", "if TYPE_CHECKING:\n    pass\nelse:\n    from .errors import CallError"),
        ("sansmcp.memory_store", "def later():\n    from .http11 import ServerConnection"),
    ],
)
def test_a_wrong_way_is_found(name: str, source: str) -> None:
    assert len(wrong_ways(Module(name, source))) == 1


@pytest.mark.parametrize(
    ("source", "types_alone"),
    [
        ("from . import request", False),
        ("def later():\n    from .request import Request", False),
        ("if TYPE_CHECKING:\n    from .request import Request", True),
    ],
)
def test_a_circle_is_found(source: str, types_alone: bool) -> None:
    modules = [
        Module("sansmcp.client.request", "from .stream import Stream"),
        Module("sansmcp.client.stream", f"from ..errors import CallError\n{source}"),
        Module("sansmcp.errors", ""),
    ]
    circle = {frozenset({"sansmcp.client.request", "sansmcp.client.stream"})}
    assert circles(uses(modules)) == circle
    assert circles(uses(modules, types=False)) == (set() if types_alone else circle)


def test_an_adapter_that_uses_another_is_found() -> None:
    assert foreign(Module("sansmcp_trio._client", "from sansmcp_cli import main")) == {
        "sansmcp_cli"
    }
    threads = Module("sansmcp_local._threads._call", "from .._loop._loops import Loop")
    assert foreign(threads) == {"sansmcp_local._loop"}
    assert foreign(Module("sansmcp_local._log", "from ._threads._call import Call")) == {
        "sansmcp_local._threads"
    }
