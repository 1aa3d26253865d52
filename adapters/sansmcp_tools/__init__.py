"""Tools, resources and prompts from functions: schemas from signatures, typed arguments.

    tools = sansmcp_tools.Tools("adder")

    @tools.tool
    def add(a: int, b: int) -> int:
        return a + b

    if __name__ == "__main__":
        sansmcp_tools.run(tools)

``Tools`` is a :class:`sansmcp.App`, which any adapter serves.
"""

from ._content import (
    Audio,
    Content,
    EmbeddedResource,
    Image,
    Message,
    ResourceLink,
    ToolResult,
)
from ._context import Context, Level, ThreadContext
from ._entries import Completer, Icons
from ._errors import ToolError
from ._forms import Accepted, Cancelled, Declined, Elicited
from ._run import run
from ._tools import Tools

__all__ = [
    "Accepted",
    "Audio",
    "Cancelled",
    "Completer",
    "Content",
    "Context",
    "Declined",
    "Elicited",
    "EmbeddedResource",
    "Icons",
    "Image",
    "Level",
    "Message",
    "ResourceLink",
    "ThreadContext",
    "ToolError",
    "ToolResult",
    "Tools",
    "run",
]
