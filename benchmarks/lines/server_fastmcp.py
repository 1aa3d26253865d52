"""A server with two tools and a question to the user: FastMCP."""

# pyright: basic
from fastmcp import Context, FastMCP  # type: ignore[import-not-found]

server = FastMCP("printer")


@server.tool  # type: ignore[untyped-decorator]
def pages(words: int, per_page: int = 300) -> int:
    """Count the pages of a text."""
    return -(-words // per_page)


@server.tool  # type: ignore[untyped-decorator]
async def print_file(name: str, context: Context) -> str:
    """Print a file as often as the user wants."""
    answer = await context.elicit(f"How many copies of {name}?", int)
    return f"{answer.data} copies" if answer.action == "accept" else "not printed"


server.run()
