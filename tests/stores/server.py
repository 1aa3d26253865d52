"""A server of its own process: ``python -m tests.stores.server STORE JOURNAL``.

STORE is a file, or the URL of a Redis. It says its port, and then serves a tool that needs two
rounds of answers, and one that waits. Who has authenticated the clients is a proxy that does not
exist: it would say in a header who they are. What becomes of handlers is written down in the
journal of all processes, line by line.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from typing import Any

import uvicorn

from sansmcp import App, ConnectionInfo, InputRequest, InputRequired, RequestHead
from sansmcp_asgi import Call, asgi_app
from sansmcp_stores import RedisStore, SqliteStore

WHO = "x-authenticated-user"

app = App("rounds", "1")


def question(call: Call, name: str, weight: int) -> InputRequest:
    params = {"message": name, "process": os.getpid(), "value": weight * number_of(call)}
    return InputRequest("elicitation/create", params)


def number_of(call: Call) -> int:
    number: int = call.params["arguments"]["number"]
    return number


def write_down(call: Call, **what: Any) -> None:
    line = json.dumps({"number": number_of(call), "pid": os.getpid(), **what})
    os.write(journal, line.encode() + b"\n")


@app.handler("tools/call")
async def call_tool(call: Call) -> Any:
    return await (ask if call.params["name"] == "ask" else wait)(call)


async def wait(call: Call) -> Any:
    """Ask in place, and write down what becomes of it."""
    outcome = "cancelled"
    try:
        answer = await call.ask("elicitation/create", question(call, "a", 1).params)
        outcome = "answered"
    finally:
        write_down(call, outcome=outcome)
    return {"content": [], "structuredContent": answer["content"]}


async def ask(call: Call) -> Any:
    """Two questions, then a third; the answers are added up.

    The state names the round, so that it can be told how often each is entered.
    """
    total, before = call.saved_state or (0, None)
    now = secrets.token_hex(8)
    write_down(call, before=before, now=now)
    total += sum(answer["content"]["value"] for answer in call.input_responses.values())
    await call.progress(1 if before is None else 2 if "a" in call.input_responses else 3)
    if before is None:
        return InputRequired({"a": question(call, "a", 1), "b": question(call, "b", 2)}, (0, now))
    if "a" in call.input_responses:
        return InputRequired({"c": question(call, "c", 4)}, (total, now))
    return {"content": [], "structuredContent": {"sum": total, "round": now}}


async def who(head: RequestHead, connection: ConnectionInfo) -> str:
    """Who makes a request."""
    return b"".join(head.values(WHO.encode())).decode() or "nobody"


if __name__ == "__main__":
    store: SqliteStore | RedisStore
    if sys.argv[1].startswith("redis:"):
        store = RedisStore.from_url(sys.argv[1])
    else:
        store = SqliteStore(sys.argv[1], busy_timeout=20)
    journal = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    web = asgi_app(
        app,
        authenticate=who,
        store=store,
        multi_turn=True,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(web, ws="none", log_level="critical")).run(sockets=[listener])
