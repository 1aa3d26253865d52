"""The blocking adapter does what the published checks want of an adapter."""

from __future__ import annotations

import pytest

from sansmcp.testing.check_adapter import Check, ClientSubject, client_checks

from .subject import BlockingClients


@pytest.mark.parametrize("check", client_checks(), ids=str)
def test_client(check: Check[ClientSubject]) -> None:
    check(BlockingClients())
