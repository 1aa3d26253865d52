"""A server with two tools and a question to the user: sansmcp."""

from sansmcp_tools import Accepted, Context, Tools, run

tools = Tools("printer")


@tools.tool
def pages(words: int, per_page: int = 300) -> int:
    """Count the pages of a text."""
    return -(-words // per_page)


@tools.tool
async def print_file(name: str, context: Context) -> str:
    """Print a file as often as the user wants."""
    answer = await context.elicit(int, f"How many copies of {name}?")
    return f"{answer.value} copies" if isinstance(answer, Accepted) else "not printed"


run(tools)
