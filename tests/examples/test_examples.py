"""The examples, and the code in the README, run as they are shown."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

import sansmcp_blocking
from sansmcp import encode_event

from ..ports import free_port

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
EXAMPLES = ROOT / "examples"


@contextlib.contextmanager
def start(script: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """Run a script, but not for longer than somebody is interested in it."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "adapters")))
    with subprocess.Popen(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def output_of(script: Path, *arguments: str) -> str:
    with start(script, *arguments) as running:
        out, err = running.communicate(timeout=60)
    unexpected = [line for line in err.splitlines() if not line.startswith("sansmcp: serving ")]
    assert (running.returncode, unexpected) == (0, [])
    return out


def test_server_and_client() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with start(EXAMPLES / "server.py", str(port)) as server:
        wait_for(port)
        counted = output_of(EXAMPLES / "client.py", url, "count", '{"to": 4}')
        refused = output_of(EXAMPLES / "client.py", url, "nothing", "{}")
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=20)
    assert counted.splitlines() == [
        "connected to counter",
        "1 of 4",
        "2 of 4",
        "3 of 4",
        "4 of 4",
        "counted to 4",
    ]
    assert refused.splitlines()[-1] == "failed: There is no tool 'nothing' (code -32602)"
    assert (server.returncode, out, err) == (
        0,
        f"{url}\n",
        f"sansmcp: serving MCP at {url}\n",
    )


def test_tools() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with start(EXAMPLES / "tools.py", "--http", f"127.0.0.1:{port}") as server:
        wait_for(port)
        with sansmcp_blocking.connect(
            url,
            capabilities={"elicitation": {}},
            request_handlers={
                "elicitation/create": lambda request: {
                    "action": "accept",
                    "content": {"value": True},
                }
            },
        ) as client:
            added = client.call_tool("add_task", {"title": "Tea", "urgency": "now"})
            assert added["structuredContent"] == {"Tea": "now"}
            assert client.call_tool("add_task", {"title": "Tea"})["isError"]
            assert client.call_tool("add_task", {"title": ""})["isError"]
            for uri, text in (
                ("tasks://all", '{"Tea":"now"}'),
                ("tasks://now/list", '["Tea"]'),
                ("tasks://later/list", "[]"),
            ):
                (contents,) = client.read_resource(uri)["contents"]
                assert contents.get("text") == text
            (message,) = client.get_prompt("plan")["messages"]
            assert message["content"].get("text") == "Plan 8 hours for these tasks: Tea"
            (block,) = client.call_tool("clear")["content"]
            assert block["text"] == "all removed"
            assert client.call_tool("add_task", {"title": "Tea"})["structuredContent"] == {
                "Tea": "later"
            }
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=20)
    assert (server.returncode, out, err) == (0, "", f"sansmcp: serving MCP at {url}\n")


def test_parsing_a_recorded_stream(tmp_path: Path) -> None:
    recorded = tmp_path / "stream.txt"
    recorded.write_bytes(
        encode_event(b"", id="s-0")
        + encode_event(b'{"jsonrpc":"2.0","id":1,"result":{}}', id="s-1")
        + encode_event(b"nonsense")
    )
    first, second, third, last = output_of(EXAMPLES / "parse_stream.py", str(recorded)).splitlines()
    assert first == "id s-0, no message"
    assert second == "Response(id=1, result={})"
    assert third.startswith("not a message: ")
    assert last == "a client would come back with Last-Event-ID: s-1"


def test_without_io() -> None:
    lines = output_of(EXAMPLES / "without_io.py").splitlines()
    assert any(line.strip().startswith("Connected(transport=") for line in lines)
    assert lines[-1].strip().startswith("CallCompleted(call=1, ")


def test_calls_that_survive() -> None:
    first, runs, second, both_runs = output_of(EXAMPLES / "survives.py").splitlines()
    assert re.fullmatch(r"[1-9]\d* connections cut: 8 steps are done", first)
    assert runs == "  handler called: 1, steps: 8, done twice: 0"
    assert re.fullmatch(
        r"[1-9]\d* connections cut, and the server killed: 8 steps are done", second
    )
    assert re.fullmatch(r"  handler called: 2, steps: 8, done twice: [01]", both_runs)


def programs(port: int) -> list[str]:
    """The code in the README and its first two pages that stands alone: with its imports."""
    pages = (README, ROOT / "docs" / "serving.md", ROOT / "docs" / "clients.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages).replace("8000", str(port))
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for block in blocks if block.startswith(("import ", "from "))]


def test_the_readme(tmp_path: Path) -> None:
    port = free_port()
    servers: list[Path] = []
    clients: list[Path] = []
    for number, code in enumerate(programs(port)):
        script = tmp_path / f"{number}.py"
        script.write_text(code, encoding="utf-8")
        if ".connect(" in code:
            clients.append(script)
        elif ".serve(" in code or ".run(" in code:
            servers.append(script)
        else:
            output_of(script)
    assert len(servers) == 2
    for script in servers:
        with start(script, f"--http=127.0.0.1:{port}") as server:
            wait_for(port)
            assert [output_of(client) for client in clients] == ["Hello Ada\n"] * len(clients)
            server.send_signal(signal.SIGINT)
            _, err = server.communicate(timeout=20)
        assert "Traceback" not in err
        assert "KeyboardInterrupt" not in err
        assert server.returncode == 0


def test_the_first_command_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(programs(free_port())[0], encoding="utf-8")
    command = ["call", "greet", "name=Ada", "--", sys.executable, str(tmp_path / "server.py")]
    assert f"$ sansmcp {shlex.join(command[:4])} python server.py\nHello Ada\n" in README.read_text(
        encoding="utf-8"
    )
    printed = subprocess.run(
        [sys.executable, "-m", "sansmcp_cli", *command],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    ).stdout
    assert printed == "Hello Ada\n"


def wait_for(port: int) -> None:
    """Until somebody listens, for the code in the README does not say when."""
    for _ in range(1000):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=30).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("the server of the README does not listen")
