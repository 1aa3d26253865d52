"""Clients that can follow tasks, and servers in virtual time that make them."""

from __future__ import annotations

from typing import Any

from sansmcp import App, InputRequest, InputRequired, Limits, MemoryStore, ServerCall
from sansmcp.events import CallCancelled, CallReceived
from sansmcp.meta_keys import LISTEN
from sansmcp.tasks import CANCEL, EXTENSION, GET, TASK_IDS, UPDATE

from ...handlers import nothing
from ..harness import RawExchange
from .harness import ModernServerHarness, meta, modern

EPOCH = 1_800_000_000.0
"""The time of day at the beginning of each test."""

TASKS: dict[str, Any] = {"extensions": {EXTENSION: {}}}
"""The capabilities of a client that can follow tasks."""

ASKABLE: dict[str, Any] = {**TASKS, "elicitation": {}}
NAME = InputRequest("elicitation/create", {"message": "Name?", "requestedSchema": {}})
AGE = InputRequest("elicitation/create", {"message": "Age?", "requestedSchema": {}})
ADA = {"action": "accept", "content": {"name": "Ada"}}
RESULT = {"content": [{"type": "text", "text": "done"}]}


def task_app(**options: Any) -> App:
    """An application with tools whose calls become tasks; the test answers them by hand."""
    app = App("bench", "1")
    options.setdefault("task", 0)
    app.handler("tools/call", **options)(nothing)
    app.handler("tools/list")(nothing)
    return app


class TaskHarness(ModernServerHarness):
    """A server whose calls become tasks."""

    def __init__(self, app: App | None = None, **settings: Any) -> None:
        settings = {"wall_clock": lambda: EPOCH + self.now, **settings}
        super().__init__(app or task_app(), **settings)

    def call_tool(
        self, capabilities: Any = ASKABLE, *, principal: str = "", **params: Any
    ) -> tuple[RawExchange, ServerCall]:
        """A call of a tool."""
        asked = modern(next(self.ids), about=meta(capabilities), **params)
        talk = self.ask(asked, principal=principal)
        return talk, self.entered()

    def entered(self) -> ServerCall:
        """Return the call whose handler was entered last."""
        received = [event for event in self.events if isinstance(event, CallReceived)]
        return received[-1].call

    def new_task(self, *, principal: str = "", **params: Any) -> tuple[str, ServerCall]:
        """A call that is a task, and the id that the client got."""
        talk, call = self.call_tool(principal=principal, **params)
        return task_id(talk), call

    def about(
        self,
        method: str,
        id: Any,
        capabilities: Any = TASKS,
        *,
        principal: str = "",
        **params: Any,
    ) -> RawExchange:
        """A request about a task."""
        asked = modern(next(self.ids), method, meta(capabilities), taskId=id, **params)
        return self.ask(asked, {"mcp-name": id}, principal=principal)

    def get(self, id: str, **options: Any) -> Any:  # type: ignore[override]
        """The result of ``tasks/get``."""
        return self.about(GET, id, **options).json["result"]

    def status(self, id: str, **options: Any) -> str:
        status: str = self.get(id, **options)["status"]
        return status

    def update(self, id: str, responses: Any, **options: Any) -> RawExchange:
        return self.about(UPDATE, id, inputResponses=responses, **options)

    def cancel(self, id: str, **options: Any) -> RawExchange:
        return self.about(CANCEL, id, **options)

    def listen(
        self, *ids: Any, capabilities: Any = TASKS, principal: str = "", **more: Any
    ) -> RawExchange:
        """Subscribe to the states of tasks."""
        wanted = {TASK_IDS: list(ids), **more}
        asked = modern(next(self.ids), LISTEN, meta(capabilities), notifications=wanted)
        return self.ask(asked, principal=principal)

    def ask_input(self, call: ServerCall, state: Any = None, **requests: InputRequest) -> None:
        """Let the handler ask for input."""
        self.run_action(call.respond, InputRequired(requests, state))

    def cancelled(self, call: ServerCall) -> bool:
        """Whether the handler was told to stop."""
        return any(isinstance(event, CallCancelled) and event.call is call for event in self.events)


def task_id(talk: RawExchange) -> str:
    """The id in a handle."""
    result = talk.messages[-1] if talk.header("content-type") != "application/json" else talk.json
    assert result["result"]["resultType"] == "task", result
    id: str = result["result"]["taskId"]
    return id


class TaskInstances(list[TaskHarness]):
    """Instances of one server that share a store."""

    def __init__(self, count: int = 2, app: App | None = None, **settings: Any) -> None:
        limits: Limits = settings.setdefault("limits", Limits())
        self.store = settings.pop("store", None) or MemoryStore(limits)
        super().__init__(
            TaskHarness(
                app, store=self.store, tokens=f"instance-{number}", shared_store=True, **settings
            )
            for number in range(count)
        )

    def wait(self, seconds: float, *alive: TaskHarness) -> None:
        """Let time pass for all, or for those that live, a little at a time."""
        for _ in range(round(seconds / 0.25)):
            for harness in alive or self:
                harness.wait(0.25)
            for harness in self:
                harness.now = max(each.now for each in self)
