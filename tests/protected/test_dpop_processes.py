"""Processes that share a store: a proof is accepted by one of them, once, also after a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from ..stores.redis_server import running
from .proofs import KEY, proof, thumbprint_of
from .test_dpop_sockets import post
from .tokens import FakeIssuer, token

PROOFS = 30


@pytest.fixture(params=["SQLite", "Redis"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[str, None, None]:
    """The name of a store."""
    with ExitStack() as stack:
        if request.param == "Redis":
            yield stack.enter_context(running(tmp_path / "redis")).url
        else:
            yield str(tmp_path / "store.db")


@contextmanager
def process(store: str) -> Generator[str, None, None]:
    """Run a server, which is killed at the end; yield its URL."""
    command = [sys.executable, "-m", f"{__package__}.dpop_server", store]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            json.dump(FakeIssuer().documents, server.stdin)
            server.stdin.close()
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def test_a_proof_is_accepted_by_one_process(store: str) -> None:
    bound = token(cnf={"jkt": thumbprint_of(KEY)})
    proofs = [proof(bound) for _ in range(PROOFS)]

    def present(url: str, made: str) -> httpx.Response:
        return post(url, ("authorization", f"DPoP {bound}"), ("dpop", made))

    with process(store) as second, ThreadPoolExecutor(4) as pool:
        with process(store) as first:
            for number, made in enumerate(proofs):
                urls = (first, second) if number % 2 else (second, first)
                found = list(pool.map(present, urls * 2, [made] * 4))
                statuses = sorted(response.status_code for response in found)
                assert statuses == [200, 401, 401, 401]
                for response in found:
                    if response.status_code == 401:
                        challenge = response.headers["www-authenticate"]
                        assert challenge.startswith("DPoP ")
                        assert 'error="invalid_dpop_proof"' in challenge
        with process(store) as restarted:
            again = pool.map(present, [restarted] * PROOFS, proofs)
            assert {response.status_code for response in again} == {401}
            assert present(restarted, proof(bound)).status_code == 200
