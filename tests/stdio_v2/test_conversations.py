"""Processes that speak HTTP/2 on their pipes, with each adapter on either side."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
from sansmcp import App, Disconnected, LocalProtocolError, NegotiationFailed

pytest.importorskip("h2")
trio = pytest.importorskip("trio")

import sansmcp_trio  # noqa: E402

ADAPTERS = ("asyncio", "trio", "blocking")


def command(adapter: str = "asyncio", *options: str) -> list[str]:
    return [sys.executable, "-m", f"{__package__}.program", adapter, *options]


def settings(**more: Any) -> dict[str, Any]:
    return {"transport": "stdio-v2", "inherit_env": True, "known_servers": None, **more}


def text_of(result: Mapping[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


async def converse(client: Any, call: Any) -> None:
    """Make calls with an asynchronous client; ``call(name, arguments)`` is awaited."""
    assert client.connected.transport == "stdio-v2"
    assert text_of(await call("echo", text="ä")) == "ä"
    assert len(text_of(await call("large", size=3_000_000))) == 3_000_000
    assert text_of(await call("echo", text="y" * 2_000_000)) == "y" * 2_000_000
    assert text_of(await call("print")) == "printed"


async def with_asyncio(server: str) -> None:
    async with sansmcp_asyncio.connect(command(server), **settings()) as client:

        async def call(name: str, **arguments: Any) -> Any:
            return await client.call_tool(name, arguments)

        await converse(client, call)
        calls = [call("echo", text=str(number)) for number in range(200)]
        assert [text_of(result) for result in await asyncio.gather(*calls)] == [
            str(number) for number in range(200)
        ]
        slow = asyncio.ensure_future(call("sleep", seconds=30))
        await call("echo", text="meanwhile")
        slow.cancel()
        assert text_of(await call("echo", text="after")) == "after"


async def with_trio(server: str) -> None:
    async with sansmcp_trio.connect(command(server), **settings()) as client:

        async def call(name: str, **arguments: Any) -> Any:
            return await client.call_tool(name, arguments)

        await converse(client, call)
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(partial(call, "echo", text=str(number)))
        with trio.move_on_after(0.0):
            await call("sleep", seconds=30)
        assert text_of(await call("echo", text="after")) == "after"


def with_blocking(server: str) -> None:
    with sansmcp_blocking.connect(command(server), **settings()) as client:
        assert text_of(client.call_tool("echo", {"text": "ä"})) == "ä"
        assert len(text_of(client.call_tool("large", {"size": 3_000_000}))) == 3_000_000
        sent = "y" * 2_000_000
        assert text_of(client.call_tool("echo", {"text": sent})) == sent


@pytest.mark.parametrize(
    ("client", "server"),
    [*((each, each) for each in ADAPTERS), ("asyncio", "trio"), ("asyncio", "blocking")],
)
def test_adapters_converse(client: str, server: str) -> None:
    if client == "asyncio":
        asyncio.run(with_asyncio(server))
    elif client == "trio":
        trio.run(with_trio, server)
    else:
        with_blocking(server)


def test_handshake_revisions_are_spoken_too() -> None:
    versions = ("2025-11-25",)
    with sansmcp_blocking.connect(command(), **settings(versions=versions)) as client:
        assert client.connected.version == "2025-11-25"
        assert text_of(client.call_tool("echo", {"text": "x"})) == "x"


@pytest.mark.parametrize("server", ADAPTERS)
def test_a_process_that_dies_in_the_middle_ends_its_calls(server: str) -> None:
    async def main() -> None:
        async with sansmcp_asyncio.connect(command(server), **settings()) as client:
            slow = client.call_tool("sleep", {"seconds": 30}, idempotent=True)
            died = client.call_tool("die", {})
            for result in await asyncio.gather(slow, died, return_exceptions=True):
                assert isinstance(result, Disconnected)
                assert "status 3" in str(result)
                assert "the end is near" in str(result)

    asyncio.run(main())


def test_what_is_written_between_the_frames_is_an_error_that_says_so() -> None:
    async def main() -> None:
        async with sansmcp_asyncio.connect(command(), **settings()) as client:
            with pytest.raises(Disconnected) as caught:
                await client.call_tool("write", {})
            assert "print to standard output" in str(caught.value)

    asyncio.run(main())


def test_what_is_written_before_the_first_frame_is_quoted() -> None:
    with (
        pytest.raises(NegotiationFailed, match="Welcome to the server"),
        sansmcp_blocking.connect(command("asyncio", "prints"), **settings()),
    ):
        pass


def test_a_client_is_told_that_its_server_speaks_stdio() -> None:
    with (
        pytest.raises(NegotiationFailed, match="server speaks stdio"),
        sansmcp_blocking.connect(command("asyncio", "v1"), **settings()),
    ):
        pass


def test_a_server_of_stdio_says_that_its_client_speaks_stdio_v2() -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    ran = subprocess.run(command("asyncio", "v1"), input=preface, capture_output=True, check=True)
    assert b"The client speaks stdio-v2" in ran.stderr
    assert b"The client speaks stdio-v2" in ran.stdout


def test_a_client_of_stdio_is_told_that_its_server_speaks_stdio_v2() -> None:
    with (
        pytest.raises(sansmcp.CallError, match=r"speaks stdio .*, and this server"),
        sansmcp_blocking.connect(command(), inherit_env=True, known_servers=None),
    ):
        pass
    line = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    ran = subprocess.run(command(), input=line, capture_output=True, check=True)
    assert b"this server stdio-v2" in ran.stderr
    assert b'"id":1' in ran.stdout


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_server_ends_with_its_input(adapter: str) -> None:
    ran = subprocess.run(command(adapter), input=b"", capture_output=True, check=True)
    assert ran.stdout == b""
    assert ran.stderr == b""


def test_the_settings_are_checked() -> None:
    wrong: Any = "v3"
    with pytest.raises(LocalProtocolError, match='True, False or "v2"'):
        sansmcp_blocking.serve(App("x"), stdio=wrong)
    with pytest.raises(LocalProtocolError, match="transport must be"):
        sansmcp_blocking.connect(command(), transport=wrong)
    with pytest.raises(LocalProtocolError, match="for a URL set transports"):
        sansmcp_blocking.connect("http://localhost/mcp", transport="stdio-v2")
