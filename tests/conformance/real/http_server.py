"""A server over HTTP of both eras, of the Python SDK or of FastMCP (argument: sdk or fastmcp).

It writes a line with its port, and one for each call that was begun or aborted.
"""

import asyncio
import json
import socket
import sys

import uvicorn


def say(**line):
    print(json.dumps(line), flush=True)


if sys.argv[1] == "fastmcp":
    from fastmcp import Context, FastMCP

    server = FastMCP("far")
    application = server.http_app()
else:
    from mcp.server.mcpserver import Context, MCPServer

    server = MCPServer("far")
    application = server.streamable_http_app()


@server.tool()
async def echo(text: str) -> str:
    """Gives its text back."""
    return text


@server.tool()
async def steps(ctx: Context) -> str:
    """Reports progress twice."""
    await ctx.report_progress(1, 2)
    await ctx.report_progress(2, 2)
    return "done"


@server.tool()
async def hold(mark: str) -> str:
    """Works until it is cancelled."""
    say(begun=mark)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        say(aborted=mark)
        raise
    return mark


listener = socket.create_server(("127.0.0.1", 0))
say(listening=listener.getsockname()[1])
config = uvicorn.Config(application, log_level="error", lifespan="on")
uvicorn.Server(config).run(sockets=[listener])
