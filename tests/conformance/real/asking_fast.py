"""A server of FastMCP with a tool that asks its client, and one that logs."""

from fastmcp import Context, FastMCP

server = FastMCP("asking")


@server.tool
async def elicit(ctx: Context) -> str:
    """Asks for a name."""
    answer = await ctx.elicit("Your name?", str)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool
async def log(ctx: Context) -> str:
    """Writes a log line."""
    await ctx.info("a line")
    return "logged"


server.run("stdio", show_banner=False)
