"""A server of the Python SDK with a tool for each question to its client, and one that logs."""

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("asking")


class Name(BaseModel):
    """The answer to a form."""

    value: str


@server.tool()
async def elicit(ctx: Context) -> str:
    """Asks for a name."""
    answer = await ctx.elicit("Your name?", Name)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool()
async def sample(ctx: Context) -> str:
    """Asks for a completion."""
    words = TextContent(type="text", text="Say hello.")
    message = SamplingMessage(role="user", content=words)
    answer = await ctx.session.create_message(messages=[message], max_tokens=10)
    return str(answer.content)


@server.tool()
async def roots(ctx: Context) -> str:
    """Asks for the roots."""
    answer = await ctx.session.list_roots()
    return " ".join(str(root.uri) for root in answer.roots)


@server.tool()
async def log(ctx: Context) -> str:
    """Writes a log line."""
    await ctx.info("a line")
    return "logged"


server.run("stdio")
