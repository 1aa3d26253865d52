"""Requests that are answered by questions, round after round."""

from __future__ import annotations

from typing import Any

from sansmcp import InputRequest, InputRequired, StateSigner

from .harness import ModernServerHarness, meta, modern, modern_app, new_seal

ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
NAME = InputRequest("elicitation/create", {"message": "Your name?", "requestedSchema": {}})
MODEL = InputRequest("sampling/createMessage", {"messages": [], "maxTokens": 1})
ROOTS = InputRequest("roots/list")
ACCEPTED = {"action": "accept", "content": {"name": "Eve"}}


def new_bench(seal: StateSigner | None = None) -> ModernServerHarness:
    return ModernServerHarness(modern_app(), state_signer=seal or new_seal())


def asking(id: Any = 1, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    if method == "resources/read":
        params.setdefault("uri", "test://a")
    elif method == "prompts/get":
        params.setdefault("name", "greet")
    return modern(id, method, about=meta(ALL), **params)


def first_round(harness: ModernServerHarness, state: Any = "saved", **options: Any) -> str:
    """Ask for input once; returns the sealed state."""
    talk, call = harness.start(asking(**options))
    harness.run_action(call.respond, InputRequired({"name": NAME}, state))
    sealed: str = talk.json["result"]["requestState"]
    return sealed
