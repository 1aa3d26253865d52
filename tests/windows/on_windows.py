"""What Windows does differently, on Windows or under wine: ``make windows``.

Each test was seen to fail before: modules of POSIX were imported, pipes were selected, processes
left others behind, errors had no text, Ctrl-C was noticed when the wait had ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import socket
import subprocess
import sys
from ctypes import wintypes
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_local
from sansmcp import CredentialsKey, Disconnected, LocalProtocolError, ProcessEnded
from sansmcp_auth import FileCredentials
from sansmcp_stores import SqliteStore

PATIENCE = 120.0
SLOW: Any = {"connect_timeout": PATIENCE}
"""Python starts slowly under wine, on a machine with much other work."""
LOOPS = ("ProactorEventLoop", "SelectorEventLoop")
SERVER = """
import asyncio, subprocess, sys, sansmcp, sansmcp_asyncio, sansmcp_blocking
app = sansmcp.App("on-windows", "1")
@app.handler("tools/call")
def call_tool(call):
    arguments = call.params["arguments"]
    if "child" in arguments:
        subprocess.Popen([sys.executable, "-c", arguments["child"]])
    return {"content": [], "echo": arguments}
@app.handler("tools/list")
def list_tools(call):
    return {"tools": []}
if sys.argv[1] == "asyncio":
    asyncio.run(sansmcp_asyncio.serve(app, stdio=True, http=None))
else:
    with sansmcp_blocking.serve(app, stdio=True, http=None) as serving:
        serving.wait()
"""
STOPPING = """
import asyncio, signal, sys, threading, time, sansmcp, sansmcp_asyncio
def stop(number):
    while getattr(signal.getsignal(number), "__module__", "") != "sansmcp_local._signals":
        time.sleep(0.01)
    signal.raise_signal(number)
threading.Thread(target=stop, args=[getattr(signal, sys.argv[1])]).start()
asyncio.run(sansmcp_asyncio.serve(sansmcp.App("a", "1"), http=("127.0.0.1", 0)))
print("stopped")
"""
TEXT = 1_000_000 * "x"
CLIENT = """
import sys, sansmcp_blocking
with sansmcp_blocking.connect(sys.argv[2:], connect_timeout=120) as client:
    client.call_tool("start", {"child": sys.argv[1]})
    sys.stdin.read()
"""
CHILD = """
import socket
socket.create_connection(("127.0.0.1", {port})).recv(1)
"""
KEY = CredentialsKey("https://h/mcp", "me")


def stdio(kind: str) -> list[str]:
    return [sys.executable, "-c", SERVER, kind]


def command(*arguments: str) -> list[str]:
    code = "import sys, sansmcp_cli; sys.exit(sansmcp_cli.main())"
    return [sys.executable, "-c", code, *arguments]


def output_of(*arguments: str) -> str:
    done = subprocess.run(
        command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout.decode()


# Processes and pipes


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
def test_blocking_clients_and_servers_on_stdio(kind: str) -> None:
    with sansmcp_blocking.connect(stdio(kind), **SLOW) as client:
        assert client.list_tools()["tools"] == []
        assert client.call_tool("echo", {"text": TEXT})["echo"] == {"text": TEXT}


@pytest.mark.parametrize("start", [*LOOPS, "blocking"])
def test_what_a_server_has_started_ends_with_it(start: str) -> None:
    """By a job object; the SelectorEventLoop of Windows cannot start processes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        child = {"child": CHILD.format(port=listener.getsockname()[1])}

        async def main() -> socket.socket:
            async with sansmcp_asyncio.connect(stdio("asyncio"), **SLOW) as client:
                await client.call_tool("start", child)
                return listener.accept()[0]

        if start == "blocking":
            with sansmcp_blocking.connect(stdio("asyncio"), **SLOW) as client:
                client.call_tool("start", child)
                witness = listener.accept()[0]
        else:
            with contextlib.closing(getattr(asyncio, start)()) as running:
                witness = running.run_until_complete(main())
        with witness:
            witness.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionResetError):
                assert witness.recv(1) == b""


def test_what_a_server_has_started_ends_with_its_client() -> None:
    """However that ends: Windows closes the job then."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        child = CHILD.format(port=listener.getsockname()[1])
        with subprocess.Popen(
            [sys.executable, "-c", CLIENT, child, *stdio("asyncio")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as client:
            witness = listener.accept()[0]
            client.kill()
        with witness:
            witness.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionResetError):
                assert witness.recv(1) == b""


def test_a_server_does_not_run_before_it_is_in_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it started before would not be in the job."""
    suspensions: list[int] = []
    job: Any = vars(importlib.import_module("sansmcp_local._processes"))["Job"]
    kernel32: Any = vars(importlib.import_module("sansmcp_local._jobs"))["_kernel32"]
    assigned = kernel32.AssignProcessToJobObject

    def new_job(pid: int) -> Any:
        def assign(*handles: Any) -> Any:
            suspensions.extend(suspensions_of(pid))
            return assigned(*handles)

        with monkeypatch.context() as patch:
            patch.setattr(kernel32, "AssignProcessToJobObject", assign)
            return job(pid)

    monkeypatch.setattr("sansmcp_local._processes.Job", new_job)
    with sansmcp_blocking.connect(stdio("blocking"), **SLOW) as client:
        client.ping()
    for loop in LOOPS:
        with contextlib.closing(getattr(asyncio, loop)()) as running:
            running.run_until_complete(connect_and_ping())
    assert suspensions == [1, 1, 1]


async def connect_and_ping() -> None:
    async with sansmcp_asyncio.connect(stdio("asyncio"), **SLOW) as client:
        await client.ping()


class Thread(ctypes.Structure):
    """THREADENTRY32."""

    _fields_ = (
        *(("size", wintypes.DWORD), ("usage", wintypes.DWORD), ("id", wintypes.DWORD)),
        *(
            ("process", wintypes.DWORD),
            ("priorities", wintypes.LONG * 2),
            ("flags", wintypes.DWORD),
        ),
    )


def suspensions_of(pid: int) -> list[int]:
    """How often each thread of a process is suspended."""
    found: list[int] = []
    if sys.platform == "win32":
        kernel32 = ctypes.windll.kernel32
        snapshot, thread = kernel32.CreateToolhelp32Snapshot(0x4, 0), Thread(ctypes.sizeof(Thread))
        more = kernel32.Thread32First(snapshot, ctypes.byref(thread))
        while more:
            if thread.process == pid:
                opened = kernel32.OpenThread(0x2, 0, thread.id)  # THREAD_SUSPEND_RESUME
                found.append(kernel32.SuspendThread(opened))
                kernel32.ResumeThread(opened)
                kernel32.CloseHandle(opened)
            more = kernel32.Thread32Next(snapshot, ctypes.byref(thread))
        kernel32.CloseHandle(snapshot)
    return found


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("http", "interrupted, still connected"),
        ("threads", "interrupted, still connected"),
        ("stdio", "interrupted, still connected, the server runs"),
        ("server", "interrupted"),
    ],
)
def test_ctrl_c_interrupts_what_waits_and_is_not_for_servers(kind: str, seen: str) -> None:
    """A client's ``select()``, its wait for a lock, and the wait for a server; in a console."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.windows.interrupted", kind],
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    assert (done.returncode, ", ".join(done.stdout.splitlines())) == (0, seen), done.stderr


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(ProcessEnded, match="'nowhere' could not be started"):
        sansmcp_blocking.connect(["nowhere"])


def test_batch_files_are_found_and_get_no_arguments_that_cmd_would_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "npx.cmd").write_text(f'@"{sys.executable}" %*\r\n', encoding="ascii")
    program = tmp_path / "server.py"
    program.write_text(SERVER, encoding="utf-8")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=";")
    with sansmcp_blocking.connect(["npx", str(program), "asyncio"], **SLOW) as client:
        assert client.list_tools()["tools"] == []
    with pytest.raises(LocalProtocolError, match=r"(?i)npx\.cmd is a batch file"):
        sansmcp_blocking.connect(["npx", "a&calc"])


# Connections


@pytest.mark.parametrize("kind", LOOPS)
def test_http_on_each_loop(kind: str) -> None:
    app = sansmcp.App("on-windows", "1")

    @app.handler("tools/call")
    async def call_tool(call: sansmcp_asyncio.Call) -> Any:
        await call.progress(1)
        return {"content": [], "echo": call.params["arguments"]}

    async def main() -> None:
        reports: list[Any] = []
        async with (
            sansmcp_asyncio.serve(app, http=("127.0.0.1", 0)) as server,
            sansmcp_asyncio.connect(server.url) as client,
        ):
            called = await client.call_tool("echo", {"text": TEXT}, on_progress=reports.append)
        assert called["echo"] == {"text": TEXT}
        assert len(reports) == 1

    with contextlib.closing(getattr(asyncio, kind)()) as running:
        running.run_until_complete(main())


def test_a_refused_connection_is_told_as_on_linux() -> None:
    """Not as "Invalid argument: [WinError 1225] Connection refused"."""
    once = sansmcp.ReconnectPolicy(max_attempts=1)
    said = r"cannot be reached: (Connection refused|\[Errno \d+\] Connection refused)"
    with pytest.raises(Disconnected, match=said):
        sansmcp_blocking.connect("http://127.0.0.1:9/mcp", reconnect=once)

    async def connect() -> Any:
        async with sansmcp_asyncio.connect("http://127.0.0.1:9/mcp", reconnect=once):
            pass

    for loop in LOOPS:
        with (
            contextlib.closing(getattr(asyncio, loop)()) as running,
            pytest.raises(Disconnected, match=said),
        ):
            running.run_until_complete(connect())


# Files


def test_a_store_in_the_folder_of_its_user() -> None:
    folder = Path.home() / "sansmcp-test"
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    with contextlib.closing(SqliteStore(folder / "store.db")):
        pass
    with contextlib.closing(SqliteStore(folder / "store.db")):  # with the key of before
        pass
    with pytest.raises(PermissionError, match="outside the folder of its user"):
        SqliteStore("C:\\windows\\store.db")


def test_credentials_and_their_lock(tmp_path: Path) -> None:
    first, second = FileCredentials(tmp_path), FileCredentials(tmp_path)
    first.save(KEY, "one")
    assert second.load(KEY) == "one"
    assert first.try_lock(KEY)
    assert not second.try_lock(KEY)
    first.unlock(KEY)
    assert second.try_lock(KEY)
    second.unlock(KEY)
    elsewhere = FileCredentials("C:\\shared")
    with pytest.raises(PermissionError, match="outside the folder of its user"):
        elsewhere.save(KEY, "one")
    with pytest.raises(PermissionError, match="outside the folder of its user"):
        elsewhere.try_lock(KEY)


# The command


def test_the_command() -> None:
    assert output_of("--version").startswith("sansmcp ")
    assert "--workers" in output_of("serve", "--help")
    listed = output_of("list", "tools", "--", *command("serve", "--stdio"))
    assert "echo" in listed
    done = subprocess.run(
        command("serve", "--workers", "2"), capture_output=True, timeout=PATIENCE, check=False
    )
    assert done.returncode != 0
    assert b"--workers is not available on Windows" in done.stderr


def test_a_server_and_a_bridge_of_the_command() -> None:
    with subprocess.Popen(
        command("serve", "--http", "127.0.0.1:0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            with sansmcp_blocking.connect(url) as client:
                client.ping()
            assert "echo" in output_of("list", "tools", "--", *command("bridge", url))
        finally:
            process.kill()


def test_recordings(tmp_path: Path) -> None:
    """Shown, sent to a server again, and played to a client."""
    file = str(tmp_path / "talk.jsonl")
    server = command("serve", "--stdio")
    output_of("call", "--record", file, "echo", "text=hi", "--", *server)
    assert "tools/call" in output_of("replay", file)
    assert "different" not in output_of("replay", file, "--", *server)
    assert "hi" in output_of("call", "echo", "text=hi", "--", *command("replay", file, "--serve"))


def test_a_server_with_a_state_file(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    with subprocess.Popen(
        command("serve", "--http", "127.0.0.1:0", "--state-file", str(file)),
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            assert url in file.read_text("utf-8")
            assert "echo" in output_of("list", "tools", "--state-file", str(file))
        finally:
            process.kill()


def test_ctrl_break_is_among_the_signals_that_end_a_program() -> None:
    assert [each.name for each in sansmcp_local.STOPPING] == ["SIGINT", "SIGTERM", "SIGBREAK"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_stop_a_server_gracefully(name: str) -> None:
    """Not seen: Ctrl-Break, which no process can raise, and which needs a console."""
    done = subprocess.run(
        [sys.executable, "-c", STOPPING, name], capture_output=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"stopped\r\n"), done
