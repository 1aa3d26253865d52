"""Making the machine of a client, and what is wrong with its settings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp_local import new_client


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("retries", r"argument 'retries'\. The settings of a client are anonymous, "),
        (
            "time_out",
            r"argument 'time_out'; did you mean 'timeout'\? The settings of a client are ",
        ),
    ],
)
def test_a_setting_that_does_not_exist(name: str, message: str) -> None:
    """Client.__init__ was blamed, and no setting was named."""
    settings: Any = {name: 3}
    with pytest.raises(TypeError, match=r"^connect\(\) got an unexpected keyword " + message):
        new_client("http://localhost/mcp", **settings)
    with pytest.raises(TypeError, match=message):
        sansmcp_blocking.connect("http://localhost/mcp", **settings)


def test_it_is_so_in_event_loops() -> None:
    settings: Any = {"retries": 3}

    async def connect() -> None:
        with pytest.raises(TypeError, match="connect"):
            sansmcp_asyncio.connect("http://localhost/mcp", **settings)

    asyncio.run(connect())

    async def enter() -> None:
        with pytest.raises(TypeError, match="connect"):
            async with sansmcp_trio.connect("http://localhost/mcp", **settings):
                pass

    trio.run(enter)


def test_all_settings_are_known() -> None:
    settings: sansmcp.ClientSettings = {"timeout": 1.0, "headers": {"X": "y"}}
    assert new_client("http://localhost/mcp", **settings).limits == sansmcp.Limits()
