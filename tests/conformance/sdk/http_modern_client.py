"""The official Python client of 2026-07-28, unmodified, drives ceased over Streamable HTTP: first
without a session, then with one of 2025-11-25.

usage: python http_modern_client.py SETUP   (see `Setup` in sdk/http.rs)
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from common import SETUP, check, fresh_time, is_gone, processes, run, same, until
from cutter import Cutter
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

# Processes of one call of the tool `family`.
FAMILY = 6

stack = AsyncExitStack()
client = None
cutter = Cutter(urlsplit(SETUP["url"]).hostname, urlsplit(SETUP["url"]).port)
questions = []
answer = None


def text(result):
    return "".join(part.text for part in result.content)


async def on_question(context, params):
    questions.append(params.message)
    return answer


async def family_is_up(mark):
    await until(f"the family {mark} is up", lambda: len(processes(mark)) >= FAMILY)


async def begun(mark):
    """A call of `family` whose response has begun: this SDK's transport ends with an exception if
    the connection of a request ends before."""
    steps = []

    async def progressed(step, total, message):
        steps.append(step)

    asked = client.call_tool("family", {"t": mark}, progress_callback=progressed)
    running = asyncio.create_task(asked)
    await until("its response has begun", lambda: steps)
    await family_is_up(mark)
    return running


async def connect():
    global client
    url = f"http://127.0.0.1:{await cutter.start()}/mcp"
    client = await stack.enter_async_context(Client(url, elicitation_callback=on_question))
    same((client.protocol_version, client.server_info.name), ("2026-07-28", "ceased"))


async def echo():
    said = 'ünï \U0001f600 "quoted"\\\n\t\u2028 done'
    same(text(await client.call_tool("echo", {"text": said})), said)


async def progress():
    seen = []

    async def progressed(step, total, message):
        seen.append(step)

    await client.call_tool("count", {"n": 5}, progress_callback=progressed)
    check(seen and seen == sorted(seen), seen)


async def parallel():
    calls = [client.call_tool("echo", {"text": str(number)}) for number in range(20)]
    same([text(result) for result in await asyncio.gather(*calls)], [str(n) for n in range(20)])


# CAN-02, MOD-06, STOP-01: this client ends the request, or posts the cancel in a session.
async def abort():
    mark = fresh_time()
    running = asyncio.create_task(client.call_tool("family", {"t": mark}))
    await family_is_up(mark)
    running.cancel()
    took = await is_gone(mark)
    await asyncio.gather(running, return_exceptions=True)
    check(running.cancelled(), running)
    await echo()
    return f"gone after {took} ms"


async def timeout():
    mark = fresh_time()
    try:
        await client.call_tool("family", {"t": mark}, read_timeout_seconds=2)
        raise AssertionError("the call has a result")
    except MCPError as error:
        check("imed out" in str(error), error)
    took = await is_gone(mark)
    await echo()
    return f"gone after {took} ms"


# MOD-07, or a request of the server in a session
async def elicitation():
    global answer
    questions.clear()
    answer = ElicitResult(action="accept", content={})
    same(text(await client.call_tool("asks", {"what": "one"})), "one\n")
    answer = ElicitResult(action="decline")
    declined = await client.call_tool("asks", {"what": "two"})
    check(declined.is_error, declined)
    same(questions, ["Really one?", "Really two?"])


# MOD-06: the end of the connection is the cancel, and the next request has a new connection.
async def cut():
    mark = fresh_time()
    running = await begun(mark)
    check(cutter.cut() >= 1)
    took = await is_gone(mark)
    (error,) = await asyncio.gather(running, return_exceptions=True)
    check(isinstance(error, Exception), error)
    await echo()
    return f"gone after {took} ms"


async def close():
    mark = fresh_time()
    running = await begun(mark)
    await stack.aclose()
    took = await is_gone(mark)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return f"gone after {took} ms"


async def session_connect():
    global client
    url = f"http://127.0.0.1:{cutter.server.sockets[0].getsockname()[1]}/mcp"
    made = Client(url, elicitation_callback=on_question, mode="legacy")
    client = await stack.enter_async_context(made)
    same((client.protocol_version, client.server_info.name), ("2025-11-25", "ceased"))


# HTTP-07: a call goes on without its connection, and its answer is read by Last-Event-ID.
async def reconnect():
    file = Path(SETUP["folder"], "python-modern-gate")
    steps = []

    async def progressed(step, total, message):
        steps.append(step)

    asked = client.call_tool("gate", {"file": str(file)}, progress_callback=progressed)
    running = asyncio.create_task(asked)
    await until("the call runs", lambda: 1 in steps)
    check(cutter.cut() >= 1)
    file.touch()
    same(text(await running), "through\n")
    same(steps, [1, 2])
    check(any("last-event-id:" in head.lower() for head in cutter.heads), cutter.heads)


async def session_close():
    took = await close()
    cutter.close()
    return took


CHECKS = [
    ("connect", connect),
    ("echo", echo),
    ("progress", progress),
    ("parallel", parallel),
    ("abort", abort),
    ("timeout", timeout),
    ("elicitation", elicitation),
    ("cut", cut),
    ("close", close),
    ("session_connect", session_connect),
    ("session_echo", echo),
    ("session_progress", progress),
    ("session_parallel", parallel),
    ("session_abort", abort),
    ("session_timeout", timeout),
    ("session_elicitation", elicitation),
    ("reconnect", reconnect),
    ("session_close", session_close),
]

anyio.run(run, CHECKS)
