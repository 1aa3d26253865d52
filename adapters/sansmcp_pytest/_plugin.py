"""The plugin of pytest: options, the marker, and the fixtures.

pytest imports this module in every run, so it imports nothing of sansmcp before a test uses a
fixture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ._shrinking import FAULTS, NETWORK, report

if TYPE_CHECKING:
    from ._client import Connect
    from ._network import Network
    from ._server import Serve

_MARKER = (
    "mcp_network(seeds=1, faults=0, kinds=('refuse', 'cut', 'silence', 'delay'), latency=0.01): "
    "run the test once for each seed, on a network on which so many connections suffer a fault"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that repeat a run."""
    group = parser.getgroup("sansmcp")
    group.addoption(
        "--mcp-seed",
        type=_seeds,
        metavar="N[-M]",
        help="run tests that use mcp_network with this seed, or with all from N to M",
    )
    group.addoption(
        "--mcp-faults",
        metavar="FAULT,FAULT",
        help="with these faults, as a failure shows them, instead of those of the seed",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each seed."""
    if "mcp_network" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("mcp_network")
    seeds: range | None = metafunc.config.getoption("mcp_seed")
    if seeds is None and marker is not None and "seeds" in marker.kwargs:
        seeds = range(marker.kwargs["seeds"])
    if seeds is not None:
        metafunc.parametrize("mcp_network", seeds, indirect=True, ids="seed{}".format)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test; if it fails, find the fewest faults that make it fail."""
    if "mcp_network" not in getattr(item, "fixturenames", ()):
        return None
    report(item, nextitem)
    return True


@pytest.fixture
def mcp_network(request: pytest.FixtureRequest) -> Iterator[Network]:
    """The network of this test: its seed, its faults, and the virtual time."""
    item: pytest.Item = request.node
    marker = item.get_closest_marker("mcp_network")
    settings: Mapping[str, Any] = {} if marker is None else marker.kwargs
    faults = item.stash.get(FAULTS, request.config.getoption("mcp_faults"))
    item.stash[NETWORK] = network = _network(getattr(request, "param", 0), faults, **settings)
    yield network
    network.close()


@pytest.fixture
def mcp_server(mcp_network: Network) -> Serve:
    """A function that starts servers: ``mcp_server(app, **settings)``."""
    from ._server import serve

    return partial(serve, mcp_network)


@pytest.fixture
def mcp_client(mcp_network: Network) -> Connect:
    """A function that connects clients: ``mcp_client(app, **settings)``."""
    from ._client import connect

    return partial(connect, mcp_network)


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _network(
    seed: int,
    given: str | None,
    *,
    seeds: int = 1,
    faults: int = 0,
    kinds: Sequence[str] | None = None,
    latency: float = 0.01,
) -> Network:
    """Create the network that the marker describes, with the given faults."""
    from ._network import KINDS, Fault, Network, draw_faults

    if given is None:
        planned = draw_faults(seed, faults, KINDS if kinds is None else kinds)
    else:
        planned = tuple(Fault.parse(text) for text in given.split(",") if text)
    return Network(seed=seed, faults=planned, latency=latency)
