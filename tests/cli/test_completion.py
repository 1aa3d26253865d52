"""What a shell completes, and the scripts for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, command, environment, failed, run, run_in_process


@pytest.fixture
def shop(config: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a server of the configuration."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(config.parent / "cache"))
    config.parent.mkdir()
    (config.parent / "config.toml").write_text(f'[servers.shop]\nurl = "{url}"\n')
    return "shop"


def completed(line: str) -> list[str]:
    """What is suggested at the end of a line."""
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" 8>&1 >/dev/null 2>&1', "-", *command()],
        env={
            **environment(),
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
            "COMP_TYPE": "9",
        },
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    return [word.strip() for word in done.stdout.splitlines()]


def test_commands_options_servers_tools_and_arguments(shop: str, url: str) -> None:
    assert completed("sansmcp rea") == ["read"]
    assert completed("sansmcp call --rev") == ["--revision"]
    assert completed("sansmcp call --revision 2026") == ["2026-07-28"]
    assert completed("sansmcp call sh") == ["shop"]
    assert completed("sansmcp call shop a") == ["add", "ask"]
    assert completed("sansmcp call --timeout 3 shop add ") == ["a=", "b="]
    assert completed("sansmcp call shop add a=1 ") == ["b="]
    assert completed("sansmcp read shop ") == ["example://greeting"]
    assert completed("sansmcp prompt shop greet ") == ["name="]
    assert completed("sansmcp list shop t") == ["tools", "templates"]
    assert completed("sansmcp login s") == ["shop"]
    assert completed("sansmcp replay file --to s") == ["shop"]


def test_tools_are_kept_for_a_while(shop: str, config: Path) -> None:
    assert completed("sansmcp call shop sl") == ["slow"]
    (file,) = (config.parent / "cache" / "sansmcp").iterdir()
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.write_text('{"sleep": []}')
    assert completed("sansmcp call shop sl") == ["sleep"]
    os.utime(file, (0, 0))
    assert completed("sansmcp call shop sl") == ["slow"]


def test_a_server_that_is_gone_suggests_nothing(shop: str) -> None:
    assert completed("sansmcp call http://127.0.0.1:1/mcp ") == []
    assert completed("sansmcp call nosuch ") == []
    assert completed("sansmcp call 'unfinished ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_says_where_it_belongs(shell: str) -> None:
    printed = run_in_process("completion", shell)
    assert printed.status == 0
    assert printed.out.startswith(f"# Completion of sansmcp in {shell}. To have it in each shell")
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=printed.out, text=True, check=True, timeout=60)


def test_bash_completes_with_it(shop: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "sansmcp"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sansmcp_cli "$@"\n')
    program.chmod(0o755)
    line = "sansmcp call shop sl"
    script = (
        f'eval "$(sansmcp completion bash)"; COMP_LINE="{line}" COMP_POINT={len(line)}; '
        'COMP_TYPE=9; _python_argcomplete sansmcp; echo "${COMPREPLY[@]}"'
    )
    env = {**environment(), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.strip() == "slow"


def test_without_argcomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "argcomplete.py").write_text("raise ModuleNotFoundError('no argcomplete')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{environment()['PYTHONPATH']}")
    assert failed(run("completion", "bash")) == "no argcomplete: pip install 'sansmcp[cli]'"
