"""What pytest shows of a test that fails, and how it is run again: pytest in pytest."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

TWO_FAULTS = """
    import asyncio
    import pytest
    import sansmcp

    app = sansmcp.App("counter", "1.0")
    runs = 0

    @app.handler("tools/call")
    async def count(call):
        global runs
        runs += 1
        await asyncio.sleep(1)
        return {"content": []}

    @pytest.fixture
    def counter():
        global runs
        runs = 0

    @pytest.mark.mcp_network(seeds=SEEDS, faults=6, kinds=["cut"])
    def test_runs(mcp_client, counter):
        settings = {"versions": ("2025-11-25",), "standalone_stream": False}
        client = mcp_client(app, connect_timeout=1000, **settings)
        for _ in range(12):
            client.call_tool("count", idempotent=True, timeout=1000)
        assert runs <= 13, "two handlers ran twice"
"""


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin quickly."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=source)
    return again(pytester, *options)


def again(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "sansmcp_pytest._plugin", *options)


def test_a_test_is_run_once_for_each_seed(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.mark.mcp_network(seeds=3)
        def test_a(mcp_network):
            print("seed", mcp_network.seed)

        def test_b(mcp_server):
            pass

        def test_c():
            pass
    """
    run(pytester, source).assert_outcomes(passed=5)
    result = run(pytester, source, "--mcp-seed", "40-41", "-v")
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(["*test_a?seed40?*", "*test_a?seed41?*", "*test_b?seed40?*"])


def test_a_failure_shows_the_fewest_faults_and_can_be_repeated(pytester: pytest.Pytester) -> None:
    result = run(pytester, TWO_FAULTS.replace("SEEDS", "20"), "-x")
    (line,) = [line for line in result.outlines if line.startswith("Run it again: pytest ")]
    options = shlex.split(line.removeprefix("Run it again: pytest "))
    faults = options[-1].split(",")
    assert len(faults) >= 2
    seed = options[-3]
    result.stdout.fnmatch_lines(
        [
            f"seed {seed}, faults: {options[-1]}",
            "(the fewest that make it fail; 6 happened at first)",
        ]
    )

    again(pytester, *options).assert_outcomes(failed=1)
    for fault in faults:
        fewer = ",".join(each for each in faults if each != fault)
        again(pytester, *options[:-1], fewer).assert_outcomes(passed=1)


def test_what_fails_without_faults_says_so(pytester: pytest.Pytester) -> None:
    source = """
        import pytest
        import sansmcp

        app = sansmcp.App("none", "1.0")

        @pytest.mark.mcp_network(seeds=1, faults=5)
        def test_it(mcp_client, mcp_network):
            client = mcp_client(app, versions=("2025-11-25",), connect_timeout=1000)
            mcp_network.sleep(1000)
            assert False
    """
    result = run(pytester, source, "--mcp-seed", "1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["seed 1, no faults", "Run it again: *--mcp-faults ''"])


def test_what_chance_decides_elsewhere_is_said(pytester: pytest.Pytester) -> None:
    source = TWO_FAULTS.replace("SEEDS", "1").replace(
        'assert runs <= 13, "two handlers ran twice"',
        "import pathlib; path = pathlib.Path('once'); there = path.exists(); path.touch()\n"
        "        assert there",
    )
    result = run(pytester, source, "--mcp-seed", "0")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["It did not fail again with the same seed*"])


def test_fixtures_are_set_up_anew_in_every_run(pytester: pytest.Pytester) -> None:
    source = TWO_FAULTS.replace("SEEDS", "20").replace(
        "def test_runs(mcp_client, counter):",
        "def test_runs(mcp_client, counter, tmp_path):\n"
        "        assert not (tmp_path / 'file').exists()\n"
        "        (tmp_path / 'file').touch()",
    )
    result = run(pytester, source, "-x")
    result.assert_outcomes(failed=1, passed=result.parseoutcomes().get("passed", 0))
    result.stdout.fnmatch_lines(["*two handlers ran twice*"])


def test_an_async_test_is_told_what_to_do(pytester: pytest.Pytester) -> None:
    source = """
        import asyncio
        import sansmcp

        def test_it(mcp_client):
            async def test():
                mcp_client(sansmcp.App("a", "1"))

            asyncio.run(test())
    """
    result = run(pytester, source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*use them in a plain test function*"])


def test_who_does_not_use_it_pays_nothing() -> None:
    code = (
        "import sys, pytest\nbefore = set(sys.modules)\nimport sansmcp_pytest._plugin\n"
        "print(*sorted(name for name in set(sys.modules) - before if '_pytest.' not in name))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert {name for name in printed if name.partition(".")[0] == "sansmcp"} == set()
    assert "asyncio" not in printed
