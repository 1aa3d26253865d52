"""A server of its own process that demands proofs: ``python -m tests.protected.dpop_server STORE``.

STORE is a file, or the URL of a Redis. The documents of the authorization server come from standard
input. The URL of the server is printed; that of its resource is another one.
"""

from __future__ import annotations

import json
import sys

import sansmcp
import sansmcp_blocking
from sansmcp_stores import RedisStore, SqliteStore

from .tokens import AUDIENCE, ISSUER, FakeIssuer


def main(where: str) -> None:
    """Serve until the process is killed."""
    store: SqliteStore | RedisStore
    if where.startswith("redis:"):
        store = RedisStore.from_url(where)
    else:
        store = SqliteStore(where, busy_timeout=20)
    resource = sansmcp.ProtectedResource(
        resource=AUDIENCE, authorization_servers=(ISSUER,), dpop="required"
    )
    with sansmcp_blocking.serve(
        sansmcp.App("proofs", "1"),
        http=("127.0.0.1", 0),
        authenticate=FakeIssuer(json.load(sys.stdin)).verifier(),
        protected_resource=resource,
        store=store,
    ) as server:
        print(server.url, flush=True)
        server.wait()


if __name__ == "__main__":
    main(sys.argv[1])
