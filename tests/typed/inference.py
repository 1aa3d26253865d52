"""What type checkers infer: mypy and pyright check this file with the others; it is never run."""

from __future__ import annotations

from typing import Any

from typing_extensions import assert_type

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_httpx
import sansmcp_pytest
import sansmcp_trio

from .test_results import Model, Plain, Struct, Typed


async def loops(
    client: sansmcp_asyncio.Client | sansmcp_trio.Client | sansmcp_httpx.Client,
) -> None:
    assert_type(await client.call_tool("add"), Any)
    assert_type(await client.call_tool("add", result_type=Struct), Struct)
    assert_type(await client.call_tool("add", {}, result_type=Plain, timeout=1), Plain)
    assert_type(await client.call("tools/list", result_type=Typed), Typed)
    async for tool in client.tools():
        assert_type(tool, sansmcp.schema.Tool)
        assert_type(tool["name"], str)
    async for resource in client.resources():
        assert_type(resource, sansmcp.schema.Resource)
    assert_type(await client.list_tools(), sansmcp.schema.ListToolsResult)
    assert_type(await client.list_resources("c"), sansmcp.schema.ListResourcesResult)
    templates = await client.list_resource_templates()
    assert_type(templates, sansmcp.schema.ListResourceTemplatesResult)
    assert_type(await client.list_prompts(), sansmcp.schema.ListPromptsResult)
    assert_type(await client.read_resource("a:b"), sansmcp.schema.ReadResourceResult)
    assert_type(await client.get_prompt("p", {"a": "b"}), sansmcp.schema.GetPromptResult)


def threads(
    client: sansmcp_blocking.Client | sansmcp_httpx.BlockingClient, simulated: sansmcp_pytest.Client
) -> None:
    assert_type(client.call_tool("add"), Any)
    assert_type(client.call_tool("add", result_type=Model), Model)
    assert_type(client.call("tools/list", result_type=Typed), Typed)
    for prompt in client.prompts():
        assert_type(prompt, sansmcp.schema.Prompt)
    assert_type(client.list_tools(), sansmcp.schema.ListToolsResult)
    assert_type(client.list_resources("c"), sansmcp.schema.ListResourcesResult)
    templates = client.list_resource_templates()
    assert_type(templates, sansmcp.schema.ListResourceTemplatesResult)
    assert_type(client.list_prompts(), sansmcp.schema.ListPromptsResult)
    assert_type(client.read_resource("a:b"), sansmcp.schema.ReadResourceResult)
    assert_type(client.get_prompt("p", {"a": "b"}), sansmcp.schema.GetPromptResult)
    assert_type(simulated.call_tool("add"), Any)
    assert_type(simulated.call_tool("add", result_type=Model), Model)
    assert_type(simulated.call("tools/list", result_type=Typed), Typed)


async def groups(
    group: sansmcp_asyncio.ClientGroup | sansmcp_trio.ClientGroup,
    blocking: sansmcp_blocking.ClientGroup,
) -> None:
    assert_type(await group.call_tool("add"), Any)
    assert_type(await group.call_tool("add", {}, result_type=Struct, timeout=1), Struct)
    assert_type(blocking.call_tool("add"), Any)
    assert_type(blocking.call_tool("add", {}, result_type=Model), Model)
