"""``server-everything``, made with the official TypeScript SDK, on each of its transports."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import sansmcp
import sansmcp_trio
from sansmcp import JsonRpcError
from sansmcp.events import ClientEvent, ProgressReceived, ServerNotified
from sansmcp.revisions import HANDSHAKE_VERSIONS

from ..bridge.processes import running
from ..cli.conftest import command, run_in_process
from ..node import NODE, install_or_skip
from ..ports import free_port
from .conftest import ANSWERS, CAPABILITIES, text

pytestmark = pytest.mark.node

FOLDER = Path(__file__).with_name("node")
SERVER = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"


@pytest.fixture(scope="session")
def everything() -> list[str]:
    """The command of the server; its packages are installed if they are not there yet."""
    install_or_skip(FOLDER)
    return [NODE, str(FOLDER / SERVER)]


@attrs.frozen
class Running:
    """The server: how it is reached, and how that transport is called by us."""

    target: str | list[str]
    transport: str

    @property
    def words(self) -> tuple[str, ...]:
        """What our command is told."""
        return (self.target,) if isinstance(self.target, str) else ("--", *self.target)


PATHS = {"sse": "/sse", "streamableHttp": "/mcp"}
NAMES = {"sse": "http+sse", "streamableHttp": "streamable-http", "stdio": "stdio"}


@pytest.fixture(scope="module", params=NAMES)
def own_server(
    request: pytest.FixtureRequest,
    everything: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Running, None, None]:
    """The server on one of its transports."""
    how: str = request.param
    program = [*everything, how]
    if how == "stdio":
        yield Running(program, NAMES[how])
        return
    log = tmp_path_factory.mktemp("everything") / "log"
    with listening(program, log) as port:
        yield Running(f"http://127.0.0.1:{port}{PATHS[how]}", NAMES[how])


@pytest.fixture(scope="module", params=["direct", "bridged"])
def server(request: pytest.FixtureRequest, own_server: Running) -> Generator[Running, None, None]:
    """The server, or ``sansmcp bridge`` in front of it: to HTTP from stdio, else to stdio."""
    if request.param == "direct":
        yield own_server
    elif isinstance(own_server.target, str):
        yield Running(command("bridge", own_server.target), "stdio")
    else:
        with running("bridge", *own_server.words) as url:
            yield Running(url, "streamable-http")


@contextmanager
def listening(program: list[str], log: Path) -> Generator[int, None, None]:
    """Run a server that takes its port from the environment; it is ready when we have it."""
    port = free_port()
    with (
        log.open("w") as output,
        subprocess.Popen(
            program, env={**os.environ, "PORT": str(port)}, stdout=output, stderr=output
        ) as process,
    ):
        try:
            wait_for(port, process, log)
            yield port
        finally:
            process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    pytest.fail(f"Nothing listens on port {port}: {log.read_text()}")


def connect(server: Running, **settings: Any) -> Any:
    """Connect at a revision that the server has; a bridge has the newest, too."""
    settings.setdefault("versions", HANDSHAKE_VERSIONS)
    return sansmcp_trio.connect(server.target, **settings)


async def test_tools(server: Running) -> None:
    async with connect(server, known_servers=sansmcp.KnownServers()) as client:
        assert client.connected.transport == server.transport
        assert client.connected.server_info["name"] == "mcp-servers/everything"
        assert client.connected.instructions
        names = {tool["name"] for tool in (await client.list_tools())["tools"]}
        assert {"echo", "get-sum", "get-structured-content"} <= names
        assert (
            text(await client.call_tool("echo", {"message": "hällo\u2028"})) == "Echo: hällo\u2028"
        )
        sum = await client.call_tool("get-sum", {"a": 1, "b": 2})
        assert text(sum) == "The sum of 1 and 2 is 3."
        weather = await client.call_tool("get-structured-content", {"location": "Chicago"})
        assert set(weather["structuredContent"]) == {"temperature", "conditions", "humidity"}
        picture = (await client.call_tool("get-tiny-image"))["content"][1]
        assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
        assert (await client.call_tool("get-sum", {"a": "x"}))["isError"] is True


async def test_resources_prompts_and_completion(server: Running) -> None:
    async with connect(server) as client:
        assert (await client.list_resources())["resources"]
        uri = "demo://resource/dynamic/text/1"
        templates = (await client.list_resource_templates())["resourceTemplates"]
        assert uri.replace("/1", "/{resourceId}") in [one["uriTemplate"] for one in templates]
        (content,) = (await client.read_resource(uri))["contents"]
        assert content["text"].startswith("Resource 1: ")
        assert (await client.list_prompts())["prompts"]
        (message,) = (await client.get_prompt("args-prompt", {"city": "Paris"}))["messages"]
        assert message["content"]["text"] == "What's weather in Paris?"
        asked = {
            "ref": {"type": "ref/prompt", "name": "completable-prompt"},
            "argument": {"name": "department", "value": "E"},
        }
        assert (await client.call("completion/complete", asked))["completion"]["values"]
        assert await client.ping() == {}


async def test_errors(server: Running) -> None:
    async with connect(server) as client:
        with pytest.raises(JsonRpcError) as unknown:
            await client.call("no/such/method")
        assert unknown.value.code == -32601
        with pytest.raises(JsonRpcError) as invalid:
            await client.get_prompt("no-such-prompt")
        assert invalid.value.code == -32602


async def test_progress(server: Running) -> None:
    reports: list[ProgressReceived] = []
    async with connect(server) as client:
        work = {"duration": 0.2, "steps": 4}
        await client.call_tool("trigger-long-running-operation", work, on_progress=reports.append)
    assert [(report.progress, report.total) for report in reports] == [
        (1, 4),
        (2, 4),
        (3, 4),
        (4, 4),
    ]


async def test_a_call_that_takes_too_long_is_given_up(server: Running) -> None:
    """On stdio the server cannot end while its tool works, so it has to be told to."""
    async with connect(server, close_timeout=0.3) as client:
        with pytest.raises(sansmcp.RequestTimeout):
            work = {"duration": 60, "steps": 1}
            await client.call_tool("trigger-long-running-operation", work, timeout=0.1)
        assert text(await client.call_tool("echo", {"message": "here"})) == "Echo: here"


async def test_its_questions_are_answered(server: Running) -> None:
    async with connect(server, request_handlers=EVERYTHING, capabilities=CAPABILITIES) as client:
        await hear_it(client)  # its questions come on the same stream
        await answer_it(client)


@pytest.mark.parametrize("server", ["bridged"], indirect=True)
async def test_a_client_of_2026_07_28_answers_its_questions(server: Running) -> None:
    """It asks by server requests, which the bridge makes rounds of input requests."""
    async with connect(
        server,
        versions=("2026-07-28",),
        request_handlers=EVERYTHING,
        capabilities=CAPABILITIES,
    ) as client:
        assert client.connected.version == "2026-07-28"
        await answer_it(client)


async def elicit(request: sansmcp.ServerRequest) -> Any:
    assert "name" in request.params["requestedSchema"]["required"]
    return {"action": "accept", "content": {"name": "Ada"}}


async def sample(request: sansmcp.ServerRequest) -> Any:
    content = {"type": "text", "text": "5"}
    return {"role": "assistant", "content": content, "model": "none"}


EVERYTHING = {**ANSWERS, "elicitation/create": elicit, "sampling/createMessage": sample}


async def answer_it(client: sansmcp_trio.Client) -> None:
    elicited = await client.call_tool("trigger-elicitation-request")
    assert "- Name: Ada" in elicited["content"][1]["text"]
    sampled = await client.call_tool("trigger-sampling-request", {"prompt": "2 + 2?"})
    assert '"text": "5"' in text(sampled)
    assert "file:///a" in text(await client.call_tool("get-roots-list"))


async def test_its_notifications_are_heard(server: Running) -> None:
    async with connect(server) as client:
        await hear_it(client)


async def hear_it(client: sansmcp_trio.Client) -> None:
    """On Streamable HTTP what it says is lost until our stream is open, so we ask repeatedly."""
    heard: list[Any] = []

    async def watch(events: AsyncIterator[ClientEvent]) -> None:
        async for event in events:
            if isinstance(event, ServerNotified):
                heard.append((event.notification.params or {}).get("data"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, client.events())
        uri = "demo://resource/dynamic/text/1"
        with trio.fail_after(30):
            while not any(uri in str(data) for data in heard):
                await client.call("resources/subscribe", {"uri": uri})
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


def test_probe_finds_everything_out(own_server: Running) -> None:
    probed = run_in_process("probe", "--json", *own_server.words)
    assert (probed.status, probed.err) == (0, "")
    found = {one["transport"]: one for one in json.loads(probed.out)["transports"]}
    works = found.pop(own_server.transport)
    assert works["works"]
    spoken = [revision for revision, why in works["revisions"].items() if why is None]
    assert spoken == list(reversed(HANDSHAKE_VERSIONS))
    assert works["server"]["name"] == "mcp-servers/everything"
    assert works["standalone_stream"] is None
    assert {"tools", "resources", "prompts", "logging"} <= set(works["capabilities"])
    assert works["offers"].keys() == {"tools", "resources", "prompts"}
    assert all(count > 3 for count in works["offers"].values())
    others = {"stdio": [], "http+sse": ["streamable-http"], "streamable-http": ["http+sse"]}
    assert list(found) == others[own_server.transport]
    assert not any(one["works"] for one in found.values())


def test_call_reaches_its_tools(server: Running) -> None:
    tool = ("echo", '{"message": "hi"}')
    is_command = server.words[0] == "--"
    words = tool + server.words if is_command else server.words + tool
    called = run_in_process("call", "--json", *words)
    assert called.status == 0
    assert text(json.loads(called.out)) == "Echo: hi"


@pytest.mark.parametrize(
    ("subcommand", "asked", "expected"),
    [
        ("list", ["prompts"], "simple-prompt"),
        ("read", ["demo://resource/static/document/architecture.md"], "Everything Server"),
        ("prompt", ["simple-prompt"], "This is a simple prompt without arguments."),
        ("raw", ["tools/list"], "get-sum"),
    ],
)
def test_the_command_shows_what_it_offers(
    everything: list[str], subcommand: str, asked: list[str], expected: str
) -> None:
    shown = run_in_process(subcommand, "--json", *asked, "--", *everything, "stdio")
    assert shown.status == 0
    assert expected in str(json.loads(shown.out))
