"""A server made from functions: a tool that asks the user, a template of resources, and a prompt.

python examples/tools.py           # prints its URL; --stdio for standard input and output
sansmcp call http://127.0.0.1:8000/mcp add_task '{"title": "Buy tea"}'
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

import sansmcp_tools
from sansmcp_tools import Accepted, Context, ToolError

tools = sansmcp_tools.Tools("to-do list", "1.0")
tasks: dict[str, str] = {}


@tools.tool
def add_task(
    title: Annotated[str, Meta(min_length=1)], urgency: Literal["now", "later"] = "later"
) -> dict[str, str]:
    """Add a task.

    Args:
        title: what is to be done
        urgency: when it is to be done
    """
    if title in tasks:
        raise ToolError(f"{title!r} is on the list already")
    tasks[title] = urgency
    tools.resource_updated("tasks://all")
    return tasks


@tools.tool(destructive=True)
async def clear(context: Context) -> str:
    """Remove all tasks, if the user agrees."""
    answer = await context.elicit(bool, f"Remove {len(tasks)} tasks?")
    if isinstance(answer, Accepted) and answer.value:
        tasks.clear()
        return "all removed"
    return "nothing removed"


@tools.resource("tasks://all")
def all_tasks() -> dict[str, str]:
    """All tasks, with their urgency."""
    return tasks


@tools.resource("tasks://{urgency}/list")
def some_tasks(urgency: Literal["now", "later"]) -> list[str]:
    """The tasks of an urgency."""
    return [title for title, own in tasks.items() if own == urgency]


@tools.prompt
def plan(hours: int = 8) -> str:
    """Plan a day."""
    return f"Plan {hours} hours for these tasks: {', '.join(tasks)}"


if __name__ == "__main__":
    sansmcp_tools.run(tools)
