"""The trio adapter does what the published checks want, and the checks notice when it does not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sansmcp_pytest import (
    Check,
    ClientUnderTest,
    ServerUnderTest,
    client_checks,
    server_checks,
)

from .adapter_under_test import TrioClients, TrioServers
from .faults import CLIENT_FAULTS, SERVER_FAULTS
from .programs import outside


@pytest.mark.parametrize("check", client_checks(), ids=str)
def test_client(check: Check[ClientUnderTest]) -> None:
    check(TrioClients())


@pytest.mark.parametrize("check", server_checks(), ids=str)
def test_server(check: Check[ServerUnderTest]) -> None:
    check(TrioServers())


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_faults_are_noticed() -> None:
    command = [sys.executable, "-m", "tests.trio.faults"]
    printed = subprocess.run(
        command, env=outside(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    ).stdout
    complaints: dict[str, str] = json.loads(printed)
    assert len(complaints) == len(CLIENT_FAULTS) + len(SERVER_FAULTS)
    assert [name for name in complaints if name.split()[1] not in complaints[name]] == []
