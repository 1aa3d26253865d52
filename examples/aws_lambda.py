"""A function of AWS Lambda, behind a function URL or an HTTP API of API Gateway (docs/lambda.md).

The handler is ``aws_lambda.handler``. Each event is one HTTP request, which goes through an ASGI
application that lives as long as the event: nothing is kept in between.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from typing import Any
from urllib.parse import unquote

import sansmcp
import sansmcp_asgi
import sansmcp_tools

tools = sansmcp_tools.Tools("kitchen", "1.0")


@tools.tool
async def brew(drink: str, context: sansmcp_tools.Context) -> str:
    """Brew a drink, if the user agrees."""
    answer = await context.elicit(bool, f"Brew {drink}?")
    if isinstance(answer, sansmcp_tools.Accepted) and answer.value:
        return f"a cup of {drink}"
    return "nothing brewed"


mcp = sansmcp_asgi.asgi_app(
    tools,
    sessions=False,  # the next request may go to another instance
    resumable=False,
    reclaim=False,  # nothing is kept between two requests
    policy=sansmcp.SecurityPolicy(allowed_hosts=(os.environ["MCP_HOST"],)),
    # Every instance has to be able to verify what another one has signed.
    state_signer=sansmcp.StateSigner(keys=(os.environ["MCP_STATE_KEY"].encode(),), clock=time.time),
    graceful_timeout=0,
)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serve one event. It ends a second before Lambda would stop the function."""
    return asyncio.run(serve(event, context.get_remaining_time_in_millis() / 1000 - 1))


async def serve(event: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the response as Lambda wants it; after ``seconds`` end what still runs."""
    body = event.get("body", "").encode()
    if event["isBase64Encoded"]:
        body = base64.b64decode(body)
    requests = [{"type": "http.request", "body": body}]
    status, headers, received = 0, {}, b""

    async def receive() -> dict[str, Any]:
        if not requests:
            await asyncio.Event().wait()  # Lambda does not report that a client has disconnected
        return requests.pop()

    async def send(message: Any) -> None:
        nonlocal status, headers, received
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
        received += message.get("body", b"")

    serving = asyncio.create_task(mcp(scope_of(event), receive, send))
    await asyncio.wait([serving], timeout=seconds)
    await mcp.stop()
    await serving
    return {"statusCode": status, "headers": headers, "body": received.decode()}


def scope_of(event: dict[str, Any]) -> dict[str, Any]:
    """Return what ASGI wants to know of the request."""
    http = event["requestContext"]["http"]
    return {
        "type": "http",
        "scheme": "https",
        "method": http["method"],
        "path": unquote(event["rawPath"]),
        "query_string": event["rawQueryString"].encode(),
        "headers": [(name.encode(), value.encode()) for name, value in event["headers"].items()],
        "client": (http["sourceIp"], 0),
    }
