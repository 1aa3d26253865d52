"""The application that the suite talks to: ``content.json`` says what there is and what it does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from sansmcp import (
    App,
    BaseCall,
    Handler,
    InputRequest,
    InputRequired,
    JsonRpcError,
    ServerCall,
)
from sansmcp.app import TaskRule
from sansmcp.skills import EXTENSION, GET, LIST, READ_DIRECTORY
from sansmcp_tools import Tools

from .steps import Script

Content: TypeAlias = Mapping[str, Any]

CONTENT: Content = json.loads(Path(__file__).with_name("content.json").read_text())

OFFERED = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "extensions": {EXTENSION: {"directoryRead": True}},
}

ASKS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling"}
"""The capability that a client needs to be asked."""


class Application:
    """The application, for an adapter that turns scripts into its kind of handlers."""

    def __init__(
        self, adapt: Callable[[Script], Handler], sleep: Callable[[Any, float], Any]
    ) -> None:
        self._sleep = sleep
        """Sleeps in the handler of a call; a script yields what it returns."""
        self.publish: Callable[[str], None]
        """Tells subscribers of a change; the adapter's server has it, once it runs."""
        self._tools = {tool["definition"]["name"]: tool for tool in CONTENT["tools"]}
        self._prompts = {prompt["definition"]["name"]: prompt for prompt in CONTENT["prompts"]}
        self.app = App("sansmcp-conformance", "1.0", None, OFFERED, self._input_schema)
        for method, key, entries in (
            ("tools/list", "tools", CONTENT["tools"]),
            ("resources/templates/list", "resourceTemplates", CONTENT["templates"]),
            ("prompts/list", "prompts", CONTENT["prompts"]),
        ):
            self._answer(method, {key: [entry["definition"] for entry in entries]})
        for method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
            self._answer(method, {})
        self._answer("completion/complete", {"completion": {"values": CONTENT["completions"]}})
        self._skills = Tools("skills")
        self._skills.skills(Path(__file__).with_name("skills"))
        for method in (LIST, GET, READ_DIRECTORY):
            self.app.handler(method)(self._ask_skills)
        self.app.handler("resources/list")(self._list_resources)
        self.app.handler("resources/read")(self._read_resource)
        self.app.handler("tools/call", task=self._task_rule)(
            adapt(lambda call: self._perform(self._tools, call))
        )
        self.app.handler("prompts/get")(adapt(lambda call: self._perform(self._prompts, call)))

    def _answer(self, method: str, result: Mapping[str, Any]) -> None:
        def answer(call: BaseCall[Any, Any]) -> Mapping[str, Any]:
            return result

        self.app.handler(method)(answer)

    def _ask_skills(self, call: BaseCall[Any, Any]) -> Any:
        handler = self._skills.handler_of(call.method)
        assert handler is not None
        return handler(call)

    def _list_resources(self, call: BaseCall[Any, Any]) -> dict[str, Any]:
        listed = [entry["definition"] for entry in CONTENT["resources"]]
        return {"resources": [*listed, *self._ask_skills(call)["resources"]]}

    def _read_resource(self, call: BaseCall[Any, Any]) -> Any:
        is_of_skill = str(call.params["uri"]).startswith("skill://")
        return self._ask_skills(call) if is_of_skill else read_resource(call)

    def _input_schema(self, tool: str) -> Mapping[str, Any] | None:
        entry = self._tools.get(tool)
        return entry and entry["definition"]["inputSchema"]

    def _task_rule(self, call: ServerCall) -> TaskRule:
        """When a call of a tool becomes a task; most do not."""
        entry = self._tools.get(str((call.request.params or {}).get("name")), {})
        rule: TaskRule = entry.get("task", "never")
        return rule

    def _perform(
        self, entries: Mapping[str, Content], call: BaseCall[Any, Any]
    ) -> Generator[Any, Any, Any]:
        """Ask what has to be asked, take the steps, and give the result."""
        name = str(call.params.get("name"))
        if name not in entries:
            raise JsonRpcError(-32602, f"There is nothing of the name {name!r}")
        entry = entries[name]
        required = next_round(entry, call)
        if required is not None:
            return required
        words = {
            **call.params.get("arguments", {}),
            "answer": json.dumps(dict(call.input_responses)),
        }
        for step in entry.get("steps", ()):
            match step:
                case {"progress": progress, "total": total}:
                    yield call.progress(progress, total)
                case {"notify": method, "params": params}:
                    yield call.notify(method, params)
                case {"ask": method, "params": params}:
                    words["answer"] = json.dumps((yield call.ask(method, fill(params, words))))
                case {"disconnect": retry}:
                    yield call.disconnect(retry=retry)
                case {"publish": method}:
                    self.publish(method)
                case {"become_task": True}:
                    yield call.become_task()
                case {"sleep": seconds}:
                    yield self._sleep(call, float(fill(seconds, words)))
                case {"error": {"code": code, "message": message}}:
                    raise JsonRpcError(code, message)
                case _:
                    raise ValueError(f"There is no step {step}")
        return fill(entry["result"], words)


def next_round(entry: Content, call: BaseCall[Any, Any]) -> InputRequired | None:
    """The questions that are open.

    What is saved is the number of rounds that were asked; answers without it are to the first.
    """
    rounds = [questions(entry, number, call) for number in range(len(entry.get("rounds", ())))]
    asked: int = call.saved_state or int(bool(call.input_responses))
    if asked and not all(
        isinstance(call.input_responses.get(key), dict) for key in rounds[asked - 1]
    ):
        asked -= 1
    return InputRequired(rounds[asked], asked + 1) if asked < len(rounds) else None


def questions(entry: Content, number: int, call: BaseCall[Any, Any]) -> dict[str, InputRequest]:
    """The questions of a round; an entry may want those only that the client can be asked."""
    declared = call.peer.client_capabilities
    return {
        key: InputRequest(question["method"], question["params"])
        for key, question in entry["rounds"][number].items()
        if not entry.get("only_declared") or ASKS[question["method"]] in declared
    }


def read_resource(call: BaseCall[Any, Any]) -> dict[str, Any]:
    """The contents of a resource, or of one that a template describes."""
    uri: str = call.params["uri"]
    for entry in (*CONTENT["resources"], *CONTENT["templates"]):
        template: str = entry["definition"].get("uri") or entry["definition"]["uriTemplate"]
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(template))
        found = re.fullmatch(pattern, uri)
        if found is not None:
            return {"contents": [{"uri": uri, **fill(entry["contents"], found.groupdict())}]}
    raise JsonRpcError(-32602, f"There is no resource {uri!r}", {"uri": uri})


def fill(value: Any, words: Mapping[str, Any]) -> Any:
    """A JSON value, with ``{name}`` in its strings replaced by what the words say."""

    def replace(found: re.Match[str]) -> str:
        return json.dumps(str(words.get(found[1], found[0])))[1:-1]

    return json.loads(re.sub(r"\{(\w+)\}", replace, json.dumps(value)))
