"""The server of the Python SDKs: server.py python-1|python-2|fastmcp-4

`anyio.run_process` ends its process when the task of the call is cancelled.
"""

import sys

import anyio

if sys.argv[1] == "python-1":
    from mcp.server.fastmcp import FastMCP as Server
elif sys.argv[1] == "python-2":
    from mcp.server import MCPServer as Server
else:
    from fastmcp import FastMCP as Server

server = Server(sys.argv[1])


@server.tool()
def echo(text: str) -> str:
    return text


@server.tool()
async def sleep(seconds: float) -> str:
    done = await anyio.run_process(["sleep", str(seconds)], check=False)
    return f"exit code {done.returncode}"


@server.tool()
async def stubborn(seconds: float) -> str:
    script = f"trap '' TERM; sleep {seconds} & wait"
    done = await anyio.run_process(["sh", "-c", script], check=False)
    return f"exit code {done.returncode}"


server.run(**({"show_banner": False} if sys.argv[1] == "fastmcp-4" else {}))
