"""The blocking adapter does what the published checks want of an adapter."""

from __future__ import annotations

import pytest

from sansmcp_pytest import (
    Check,
    ClientUnderTest,
    ServerUnderTest,
    client_checks,
    server_checks,
)

from .adapter_under_test import BlockingClients, BlockingServers


@pytest.mark.parametrize("check", client_checks(), ids=str)
def test_client(check: Check[ClientUnderTest]) -> None:
    check(BlockingClients())


@pytest.mark.parametrize("check", server_checks(), ids=str)
def test_server(check: Check[ServerUnderTest]) -> None:
    check(BlockingServers())
