"""The asyncio adapter does what the published checks want of an adapter, on both loops."""

from __future__ import annotations

import pytest

from sansmcp_pytest import (
    Check,
    ClientUnderTest,
    ServerUnderTest,
    client_checks,
    server_checks,
)

from .adapter_under_test import AsyncioClients, AsyncioServers


@pytest.mark.parametrize("check", client_checks(), ids=str)
def test_client(loop: str, check: Check[ClientUnderTest]) -> None:
    check(AsyncioClients(loop))


@pytest.mark.parametrize("check", server_checks(), ids=str)
def test_server(loop: str, check: Check[ServerUnderTest]) -> None:
    check(AsyncioServers(loop))
