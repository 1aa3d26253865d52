"""What our client does in the scenarios of the suite, as a user would write it."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Generator, Mapping
from typing import Any, TypeAlias

import sansmcp_local
from sansmcp import ServerRequest, Skill, SkillMismatch

from .steps import Script

Handle: TypeAlias = sansmcp_local.BlockingClient | sansmcp_local.Client
Steps: TypeAlias = Generator[Any, Any, None]

CAPABILITIES: dict[str, Any] = {"elicitation": {}}


def accept(request: ServerRequest) -> dict[str, Any]:
    """Answer a question of the user's: take the form's defaults, and say yes to the rest."""
    properties: Mapping[str, Any] = request.params["requestedSchema"]["properties"]
    filled_in = {name: schema.get("default", True) for name, schema in properties.items()}
    return {"action": "accept", "content": filled_in}


def calling(*names: str, **arguments: Any) -> Script:
    """List the tools, and call some of them."""

    def run(client: Handle) -> Steps:
        yield client.list_tools()
        for name in names:
            yield client.call_tool(name, arguments)

    return run


def use_everything(client: Handle) -> Steps:
    """List what there is, and use all of it."""
    for tool in (yield client.list_tools())["tools"]:
        yield client.call_tool(tool["name"], arguments_for(tool))
    for resource in (yield client.list_resources())["resources"]:
        yield client.read_resource(resource["uri"])
    for prompt in (yield client.list_prompts())["prompts"]:
        yield client.get_prompt(prompt["name"])


def call_all_tools(client: Handle) -> Steps:
    """Call every tool that the client has been told of."""
    for tool in (yield client.list_tools())["tools"]:
        yield client.call_tool(tool["name"], arguments_for(tool))


def make_given_calls(client: Handle) -> Steps:
    """List the tools, and make the calls that the suite asks for."""
    context = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    yield client.list_tools()
    for call in context["toolCalls"]:
        yield client.call_tool(call["name"], call["arguments"])


def echo_schema(client: Handle) -> Steps:
    """Send the schema of one tool to the other, as it came."""
    tools = {tool["name"]: tool for tool in (yield client.list_tools())["tools"]}
    schema = tools["json_schema_2020_12_tool"]["inputSchema"]
    yield client.call_tool("json_schema_echo", {"schema": schema})


def list_skills(client: Handle) -> Steps:
    """List the skills, and read none of their files."""
    yield client.call("skills/list")


def skills_of(client: Handle) -> list[Skill] | Awaitable[list[Skill]]:
    """All skills that the server lists."""
    if isinstance(client, sansmcp_local.BlockingClient):
        return [*client.skills()]

    async def listed() -> list[Skill]:
        return [skill async for skill in client.skills()]

    return listed()


def read_skill(client: Handle) -> Steps:
    """Read a skill that is not what its entry says, and stop there."""
    (skill,) = yield skills_of(client)
    try:
        yield client.read_skill(skill)
    except SkillMismatch:
        return
    yield client.read_skill(skill, "references/FORMS.md")


def arguments_for(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Values for what a tool requires."""
    examples = {"string": "text", "integer": 1, "number": 1, "boolean": True}
    schema: Mapping[str, Any] = tool["inputSchema"]
    properties = schema.get("properties", {})
    return {name: examples[properties[name]["type"]] for name in schema.get("required", ())}


TEST_TOOL = calling("test-tool")
"""What a client does in all scenarios of OAuth."""

SCRIPTS: Mapping[str, Script] = {
    "initialize": calling(),
    "tools_call": calling("add_numbers", a=5, b=3),
    "elicitation-sep1034-client-defaults": calling("test_client_elicitation_defaults"),
    "sse-retry": calling("test_reconnection"),
    "request-metadata": calling("add_numbers", a=5, b=3),
    "sep-2322-client-request-state": calling(
        "test_mrtr_echo_state",
        "test_mrtr_unrelated",
        "test_mrtr_no_state",
        "test_mrtr_no_result_type",
    ),
    "http-standard-headers": use_everything,
    "http-custom-headers": make_given_calls,
    "http-invalid-tool-headers": call_all_tools,
    "json-schema-ref-no-deref": calling(),
    "json-schema-2020-12-preservation": echo_schema,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": read_skill,
    "sep-2640-client-verify-frontmatter": read_skill,
    "sep-2640-client-verify-size": read_skill,
}

QUIET = ("sse-retry",)
"""Where our client opens no standalone stream: the suite takes any GET for the one it waits for."""
