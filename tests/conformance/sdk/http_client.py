"""The official Python client, unmodified, drives ceased over Streamable HTTP.

usage: python http_client.py SETUP   (see `Setup` in sdk/http.rs)
"""

import json
import sys

import anyio
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

with open(sys.argv[1], encoding="utf-8") as file:
    SETUP = json.load(file)


def text(result):
    return "".join(part.text for part in result.content)


async def main():
    done = []
    async with streamable_http_client(SETUP["url"]) as (read, write, session_id):
        async with ClientSession(read, write) as session:
            hello = await session.initialize()
            assert hello.serverInfo.name == "ceased", hello
            assert session_id(), "a session id"
            done.append("connect")

            said = 'ünï \U0001f600 "quoted"\\\n\t\u2028 done'
            assert text(await session.call_tool("echo", {"text": said})) == said
            done.append("echo")

            seen = []

            async def progressed(progress, total, message):
                seen.append(progress)

            await session.call_tool("count", {"n": 5}, progress_callback=progressed)
            assert seen and seen == sorted(seen), seen
            done.append("progress")

            answers = {}

            async def one(number):
                answers[number] = text(await session.call_tool("echo", {"text": str(number)}))

            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(one, number)
            assert answers == {number: str(number) for number in range(20)}, answers
            done.append("parallel")
    done.append("close")
    print(json.dumps({"done": done, "failures": 0}), flush=True)


anyio.run(main)
