"""The clients of the Python SDKs: client.py python-1|python-2|fastmcp-4 SERVER...

A call is aborted by cancelling its scope, as `asyncio.timeout` and `anyio.move_on_after` do.
"""

import asyncio
import contextlib
import datetime
import sys

import anyio

NAME, COMMAND, ARGS = sys.argv[1], sys.argv[2], sys.argv[3:]


@contextlib.asynccontextmanager
async def python_1():
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    def call(tool, limit=None):
        return session.call_tool(tool, {}, limit and datetime.timedelta(seconds=limit))

    async with stdio_client(StdioServerParameters(command=COMMAND, args=ARGS)) as streams:
        async with ClientSession(*streams) as session:
            with anyio.fail_after(3):
                await session.initialize()
            yield call


@contextlib.asynccontextmanager
async def python_2():
    from mcp import Client, StdioServerParameters

    def call(tool, limit=None):
        return client.call_tool(tool, {}, read_timeout_seconds=limit)

    async with contextlib.AsyncExitStack() as stack:
        client = Client(StdioServerParameters(command=COMMAND, args=ARGS))
        async with asyncio.timeout(3):
            await stack.enter_async_context(client)
        yield call


@contextlib.asynccontextmanager
async def fastmcp_4():
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    def call(tool, limit=None):
        return client.call_tool(tool, {}, timeout=limit)

    transport = StdioTransport(command=COMMAND, args=ARGS, keep_alive=False)
    async with Client(transport, init_timeout=3) as client:
        yield call


async def main():
    connect = {"python-1": python_1, "python-2": python_2, "fastmcp-4": fastmcp_4}[NAME]
    async with connect() as call:
        with anyio.move_on_after(1):
            await call("abort")
        with contextlib.suppress(Exception):
            await call("timeout", 1)
        await call("echo")


asyncio.run(main())
