"""The command as such, and its demonstration."""

from __future__ import annotations

import functools
import importlib.abc
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import sansmcp
from sansmcp.base_client import tool_call
from sansmcp.events import ClientEvent, Connected, ProgressReceived, Reconnecting
from sansmcp_cli import _with_trio
from sansmcp_cli._adapters import RequestHandlers, Script, ScriptCall, next_call
from sansmcp_cli._counts import Counts
from sansmcp_cli._demo import Part
from sansmcp_cli._main import GROUPS, parser_of
from sansmcp_cli._output import print_error, print_line
from sansmcp_local import ConnectSettings, ServeSettings

from .conftest import (
    ADAPTERS,
    ROOT,
    CompletedCommand,
    command,
    environment,
    failed,
    run,
    run_in_process,
)


def test_the_version() -> None:
    assert run("--version").out == f"sansmcp {sansmcp.__version__}\n"


def test_the_version_needs_no_command() -> None:
    """All of them take a quarter of a second to import."""
    with pytest.raises(SystemExit):
        parser_of(["--version"]).parse_args(["demo"])


def test_help_names_all_commands() -> None:
    shown = run("--help")
    assert shown.status == 0
    for name in (
        "serve",
        "call",
        "list",
        "read",
        "prompt",
        "skills",
        "raw",
        "listen",
        "replay",
        "completion",
        "probe",
        "login",
        "logout",
        "whoami",
        "bench",
        "chaos",
        "check-store",
        "check-adapter",
        "demo",
    ):
        assert re.search(rf"^\s+{name}\s", shown.out, re.MULTILINE)


COMMANDS = [name for names in GROUPS.values() for name in names]


@functools.cache
def help_of(name: str) -> dict[str, list[str]]:
    """The lines of the help of a command, by the titles of its sections."""
    sections: dict[str, list[str]] = {"usage": []}
    for line in run(name, "--help").out.splitlines():
        if re.match(r"[a-z].*:$", line):
            sections[line[:-1]] = []
        elif line:
            sections[[*sections][-1]].append(line)
    return sections


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_two_examples_that_can_be_parsed(name: str) -> None:
    lines = help_of(name)["examples"]
    assert len(lines) == 2
    for line in lines:
        assert len(line) <= 80
        words = shlex.split(line.partition(" > ")[0])
        assert words[:2] == ["sansmcp", name]
        end = words.index("--") if "--" in words else len(words)
        parser_of([name]).parse_args(words[1:end])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_a_command_stand_in_groups_if_they_are_many(name: str) -> None:
    sections = help_of(name)
    usage = " ".join(sections["usage"])
    assert usage.startswith(f"usage: sansmcp {name}")
    assert "COMMAND [options]" not in usage
    options = [line for line in sections["options"] if line.startswith("  -")]
    assert len(options) <= 7


@pytest.mark.parametrize(
    "arguments", [(), ("bogus",), ("call",), ("call", "--"), ("serve", "--stdio", "--dual")]
)
def test_wrong_usage_is_explained(arguments: tuple[str, ...]) -> None:
    used = run(*arguments)
    assert used.status == 2
    assert used.out == ""
    assert used.err.startswith("usage: sansmcp")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lsit",), "there is no command 'lsit'; did you mean list"),
        (("frobnicate",), "there is no command 'frobnicate'; there are list, call, "),
        (
            ("list", "--jsn"),
            "sansmcp list: error: unrecognized arguments: --jsn; did you mean --js",
        ),
        (("call", "--timout=3", "x"), "--timout=3; did you mean --timeout?"),
        (("serve", "--stdiov2"), "--stdiov2; did you mean --stdio-v2?"),
        (("serve", "--qqqqq"), "unrecognized arguments: --qqqqq\n"),
        (
            ("call", "greet", "--name=Ada"),
            "unrecognized arguments: --name=Ada; arguments of a tool are written without",
        ),
        (
            ("prompt", "shop", "greet", "--name", "Ada"),
            "--name Ada; arguments of a prompt are written without dashes, NAME=VALUE",
        ),
        (
            ("serve", "--host", "::1", "--port=8000"),
            "unrecognized arguments: --host --port=8000; did you mean --http HOST:PORT?",
        ),
    ],
)
def test_a_misspelt_word_is_answered_by_a_near_one(arguments: tuple[str, ...], said: str) -> None:
    used = run(*arguments)
    assert used.status == 2
    assert said in used.err


@pytest.mark.parametrize(
    "arguments",
    [("serve", "--stdio-v2"), ("call", "--transport", "stdio-v2", "add", "--", "no-such-command")],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    for module in [each for each in sys.modules if each.startswith(("h2.", "sansmcp.http2."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "h2", None)
    said = failed(run_in_process(*arguments))
    assert said == "stdio-v2 needs the extra: pip install 'sansmcp[http2]'"


@pytest.mark.parametrize("arguments", [("serve",), ("serve", "--stdio"), ("demo",)])
def test_the_command_of_a_server_is_for_those_who_call_it(arguments: tuple[str, ...]) -> None:
    said = failed(run_in_process(*arguments, "--", "some", "server"))
    assert said == "What is 'some server' for? Only commands that use a server take it"


COUNTS = r"(\d+) calls, (\d+) disconnects, (\d+) executions"


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_demonstration_counts_executions(adapter: str) -> None:
    """The default revision first, and executions beside results."""
    shown = run("demo", "--calls", "3", "--seed", "7", "--adapter", adapter)
    assert (shown.status, shown.err) == (0, "")
    text = " ".join(shown.out.split())  # lines that are too long for a terminal are broken
    ways = ("2026-07-28: ", "2025-11-25: ", "")
    parts = [
        tuple(map(int, found[1:]))
        for found in re.findall(rf"(2026-07-28: |2025-11-25: |\b)({COUNTS}): [a-z]", text)
        for found in [(found[0], *found[2:])]
        if found[0] in ways
    ]
    assert [calls for calls, *_ in parts] == [3, 3, 3]
    (_, cuts, reclaimed), (_, disconnects, resumed), (_, _, rounds) = parts
    assert cuts >= 3  # a response is longer than what a connection carries
    assert disconnects >= 3  # the tool lets its client go once in each call
    assert (reclaimed, resumed) == (3, 3)
    assert rounds == 9
    totals = [sum(column) for column in zip(*parts, strict=True)]
    last = shown.out.splitlines()[-1]
    assert re.fullmatch(f"demo: {COUNTS}, 0 lost, 0 duplicated", last)
    assert list(map(int, re.findall(r"\d+", last)[:3])) == totals


def test_the_demonstration_fits_the_terminal() -> None:
    """What matters is on one screen; --trace shows everything."""
    shown = run("demo", "--seed", "7").out.splitlines()
    assert len(shown) <= 24
    assert max(map(len, shown)) <= 80
    traced = run("demo", "--seed", "7", "--calls", "3", "--trace").out.splitlines()
    assert max(map(len, traced)) <= 80
    assert len(traced) > 100
    assert any(line.startswith("network: a connection breaks") for line in traced)
    starts = (
        "client ",
        "network: ",
        "sansmcp ",
        "20",
        "  ",
        "calls ",
        "demo: ",
        "3 ",
    )
    assert [line for line in traced if not line.startswith(starts)] == []


@pytest.mark.parametrize(
    ("name", "value", "said", "verdict"),
    [
        ("_PROCESSES", 1, "", "9 executions, 0 lost, 6 duplicated"),
        ("_ANSWERS", {}, "failed: ", "5 executions, 3 lost, 0 duplicated"),
    ],
)
def test_the_demonstration_tells_of_calls_that_fail(
    name: str, value: object, said: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"sansmcp_cli._demo_input.{name}", value)
    shown = run_in_process("demo", "--calls", "0", "--quiet")
    assert shown.status == 1
    assert shown.out == f"demo: 3 calls, 0 disconnects, {verdict}\n"
    lines = shown.err.splitlines()
    assert len(lines) == (3 if said else 0)
    assert all(line.startswith("demo: ") and said in line for line in lines)


SERVER = Connected(transport="stdio", version="2025-11-25", server_info={}, capabilities={})


class Faking:
    """An adapter that makes no calls, and says what would have come of them."""

    EXAMPLE = sansmcp.App("fake")

    def __init__(self, steps: Sequence[int], disconnects: int, outcome: object) -> None:
        self.steps, self.disconnects, self.outcome = steps, disconnects, outcome

    def run_calls(
        self,
        target: str | Sequence[str],
        script: Callable[[Connected], Script],
        show: Callable[[ClientEvent], None],
        settings: ConnectSettings,
        request_handlers: RequestHandlers | None = None,
    ) -> None:
        running = script(SERVER)
        call = next_call(running, None)
        while call is not None:
            for step in self.steps:
                assert call.on_progress is not None
                call.on_progress(ProgressReceived(call=1, progress=step))
            for attempt in range(self.disconnects):
                show(Reconnecting(call=1, delay=0, attempt=attempt, reason=""))
            call = next_call(running, self.outcome)

    def serve(
        self,
        app: sansmcp.App,
        started: Callable[[str, Callable[[], object]], None],
        settings: ServeSettings,
    ) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("revision", "steps", "disconnects", "ran", "lost", "duplicated"),
    [
        ("2025-11-25", range(1, 7), 1, 1, 0, 0),
        ("2025-11-25", range(1, 7), 1, 2, 0, 1),
        ("2025-11-25", range(2, 7), 1, 1, 1, 0),
        ("2025-11-25", [1, *range(1, 7)], 1, 1, 0, 1),
        ("2026-07-28", range(1, 7), 1, 1, 0, 0),
        ("2026-07-28", [1, *range(1, 7)], 1, 1, 0, 1),
        ("2026-07-28", range(1, 7), 1, 2, 0, 1),
    ],
)
def test_what_the_demonstration_counts(
    revision: str, steps: Sequence[int], disconnects: int, ran: int, lost: int, duplicated: int
) -> None:
    """A tool that ran more often than promised is no success."""
    lines: list[str] = []
    part = Part(revision, 1, random.Random(), lines.append, None)
    counts = part.show(Faking(steps, disconnects, {}), 1, lambda: Counter({"1": ran}))
    assert counts == Counts(
        calls=1, disconnects=disconnects, executions=ran, lost=lost, duplicated=duplicated
    )
    assert len(lines) == 3


def test_a_call_of_the_demonstration_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    part = Part("2025-11-25", 1, random.Random(), lambda line: None, None)
    failing = Faking((), 0, sansmcp.Disconnected("gone"))
    counts = part.show(failing, 1, lambda: Counter({"1": 0}))
    assert counts.lost == 7
    assert capsys.readouterr().err == "demo: 2025-11-25, call 1 failed: gone\n"


@pytest.mark.parametrize(
    ("number", "lines", "adapter"),
    [
        (signal.SIGINT, 1, "asyncio"),
        (signal.SIGINT, 6, "trio"),
        (signal.SIGTERM, 1, "trio"),
        (signal.SIGTERM, 6, "asyncio"),
        (signal.SIGTERM, 6, "blocking"),
        (signal.SIGKILL, 2, "blocking"),
    ],
)
def test_a_demonstration_that_is_told_to_end(number: int, lines: int, adapter: str) -> None:
    """As a terminal does it: everything in the foreground is told. Nothing is left in any case."""
    with subprocess.Popen(
        command("demo", "--calls", "100", "--adapter", adapter),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as shown:
        assert shown.stdout is not None
        for _ in range(lines):
            assert shown.stdout.readline()
        os.killpg(shown.pid, number)
        # This lasts until all processes have ended that have the same standard error.
        _, said = shown.communicate(timeout=60)
    assert (shown.returncode, said) == (-9 if number == signal.SIGKILL else 130, b"")


def test_an_interrupt_while_modules_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname: str, *_: object) -> None:
            if fullname == "sansmcp_cli._main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "sansmcp_cli._main")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert run_in_process("--version") == CompletedCommand(130, "", "")


def test_an_interrupt_leaves_no_step_half_done(url: str) -> None:
    """On trio it comes out where the command waits, not in the midst of what others do."""
    seen: list[object] = []

    def press_ctrl_c(progress: object) -> None:
        signal.raise_signal(signal.SIGINT)
        seen.append(progress)

    def script(server: Connected) -> Script:
        arguments = {"steps": 1, "delay": 0}
        yield ScriptCall(*tool_call("slow", arguments), on_progress=press_ctrl_c)

    with pytest.raises(KeyboardInterrupt):
        _with_trio.run_calls(url, script, lambda event: None, {"standalone_stream": False})
    assert seen != []


def test_a_reader_who_has_seen_enough() -> None:
    with subprocess.Popen(
        command("demo", "--calls", "1"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as shown:
        assert shown.stdout is not None
        assert shown.stderr is not None
        shown.stdout.readline()
        shown.stdout.close()
        assert shown.wait(timeout=60) == 0
        assert shown.stderr.read() == b""


def test_what_a_peer_says_is_shown_without_its_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """JSON stays JSON."""
    result = {"text": "a\x1b[2J\x9b\x7f\u202e\nsansmcp: all is well"}
    print_line(json.dumps(result, ensure_ascii=False))
    shown = capsys.readouterr().out
    assert shown.removesuffix("\n").isprintable()
    assert json.loads(shown) == result
    print_error(sansmcp.JsonRpcError(-1, "x\nsansmcp: forged"))
    print_line("y\rz", sys.stderr)
    assert capsys.readouterr().err == ("sansmcp: x\\u000asansmcp: forged (code -1)\ny\\u000dz\n")


@pytest.fixture
def without_trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who is started finds trio."""
    missing = "raise ModuleNotFoundError(\"No module named 'trio'\", name='trio')"
    (tmp_path / "trio.py").write_text(missing, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("without_trio")
@pytest.mark.parametrize("adapter", ["asyncio", "blocking"])
def test_trio_is_needed_only_by_what_runs_on_it(adapter: str) -> None:
    server = command("serve", "--stdio", "--adapter", adapter)
    called = run("call", "echo", '{"text": "hi"}', "--adapter", adapter, "--", *server)
    assert called == CompletedCommand(0, called.out, "")
    assert run("probe", "--", *server).status == 0


@pytest.mark.usefixtures("without_trio")
def test_the_commands_need_nothing_but_the_package() -> None:
    """They run after ``pip install .``, which does not install trio."""
    called = run("call", "echo", '{"text": "hi"}', "--", *command("serve", "--stdio"))
    assert called == CompletedCommand(0, called.out, "")
    assert run("demo", "--calls", "1", "--quiet").status == 0


@pytest.mark.usefixtures("without_trio")
@pytest.mark.parametrize("arguments", [("serve",), ("call", "http://127.0.0.1:1/", "echo")])
def test_who_has_no_trio_is_told_what_to_do(arguments: tuple[str, ...]) -> None:
    assert failed(run(*arguments, "--adapter", "trio")) == (
        "No module named 'trio': pip install 'sansmcp[trio]', or choose --adapter asyncio"
    )
