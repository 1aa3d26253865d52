"""A server of the fleet: ``python -m tests.fleet.server PORT STORE JOURNAL LEASE TRACE``."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import sansmcp
import sansmcp_asyncio
from sansmcp import InputRequest, InputRequired, JsonRpcError
from sansmcp.trace import Tracer
from sansmcp_stores import RedisStore, SqliteStore

from .journal import Journal

_FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def make_app(journal: Journal) -> sansmcp.App:
    """Return the application, whose one tool does what its arguments say."""
    app = sansmcp.App("fleet", "1.0")

    @app.handler("tools/call")
    async def work(call: sansmcp_asyncio.Call) -> dict[str, Any] | InputRequired:
        plan = call.params["arguments"]
        state: dict[str, Any] = call.saved_state or {"round": 0, "reports": 0, "answers": {}}
        name, number = plan["call"], state["round"]
        journal.add("begin", name, number)
        try:
            for given, answer in call.input_responses.items():
                state["answers"][given] = _name_in(answer)
            await _perform(call, plan, state)
        except asyncio.CancelledError:
            journal.add("cancelled", name, number)
            raise
        except BaseException as error:
            print(f"{name}, round {number}: {error!r}", file=sys.stderr, flush=True)
            journal.add("failed", name, number)
            raise
        journal.add("end", name, number)
        if number + 1 == len(plan["rounds"]):
            return {"content": [], "structuredContent": {"call": name, **state}}
        question = f"round-{number}"
        request = InputRequest(*_question(plan, question))
        return InputRequired({question: request}, {**state, "round": number + 1})

    return app


async def _perform(call: sansmcp_asyncio.Call, plan: dict[str, Any], state: dict[str, Any]) -> None:
    """Do the steps of a round."""
    for step, *details in plan["rounds"][state["round"]]:
        match step:
            case "report":
                state["reports"] += 1
                await call.progress(state["reports"], message=plan["call"])
            case "pause":
                await asyncio.sleep(details[0])
            case "ask":
                (name,) = details
                state["answers"][name] = _name_in(await call.ask(*_question(plan, name)))
            case "disconnect":
                await call.disconnect(retry=details[0])
            case _:
                raise JsonRpcError(-32602, f"no such step: {step}")


def _question(plan: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    """Return the method and parameters of the request for an input of that name."""
    text = f"{plan['call']} {name}"
    if plan["version"] == "2025-03-26":  # has no elicitation
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return "sampling/createMessage", {"messages": [message], "maxTokens": 10}
    return "elicitation/create", {"message": text, "requestedSchema": _FORM}


def _name_in(answer: dict[str, Any]) -> str:
    """Return the name in the response to such a request."""
    answer = answer["content"]
    return str(answer["name"] if "name" in answer else answer["text"])


def trace_to(path: Path, who: str) -> Tracer:
    """Return a tracer that appends lines with the time to a file."""
    file = path.open("a", encoding="utf-8")

    def write(line: str) -> None:
        print(f"{time.monotonic():.6f} {line}", file=file, flush=True)

    return Tracer(who, write)


async def serve(port: str, place: str, journal: str, lease: str, trace: str) -> None:
    limits = sansmcp.Limits(
        max_stored_entries=1_000_000, max_stored_bytes=2**30, lease_timeout=float(lease)
    )
    is_redis = place.startswith("redis:")
    store = RedisStore.from_url(place) if is_redis else SqliteStore(place, limits)
    app = make_app(Journal(Path(journal)))
    await sansmcp_asyncio.serve(
        app,
        http=("127.0.0.1", int(port)),
        store=store,
        limits=limits,
        retry=0.1,
        trace=trace_to(Path(trace), str(os.getpid())) if trace else None,
    )


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
