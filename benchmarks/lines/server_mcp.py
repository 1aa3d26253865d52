"""A server with two tools and a question to the user: the official SDK."""

# pyright: basic
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("printer")


class Copies(BaseModel):
    value: int


@server.tool()
def pages(words: int, per_page: int = 300) -> int:
    """Count the pages of a text."""
    return -(-words // per_page)


@server.tool()
async def print_file(name: str, context: Context) -> str:
    """Print a file as often as the user wants."""
    answer = await context.elicit(f"How many copies of {name}?", Copies)
    return f"{answer.data.value} copies" if answer.action == "accept" else "not printed"


server.run()
