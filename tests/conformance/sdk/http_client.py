"""The official Python client, unmodified, drives ceased over Streamable HTTP.

usage: python http_client.py SETUP   (see `Setup` in sdk/http.rs)
"""

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx
from common import SETUP, check, fresh_time, is_gone, processes, run, same, until
from cutter import Cutter
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client

# Processes of one call of the tool `family`.
FAMILY = 6

stack = AsyncExitStack()
session = None
cutter = Cutter(urlsplit(SETUP["url"]).hostname, urlsplit(SETUP["url"]).port)
# Messages that the client has posted.
posted = []
questions = []
answer = types.ElicitResult(action="accept", content={})


def text(result):
    return "".join(part.text for part in result.content)


async def note_request(request):
    if request.method == "POST":
        posted.append(json.loads(request.content))


async def on_question(context, params):
    questions.append(params.message)
    return answer


def call(name, arguments, **options):
    return session.call_tool(name, arguments, **options)


async def family_is_up(mark):
    await until(f"the family {mark} is up", lambda: len(processes(mark)) >= FAMILY)


async def connect():
    global session
    port = await cutter.start()
    client = httpx.AsyncClient(event_hooks={"request": [note_request]}, timeout=60, trust_env=False)
    http = await stack.enter_async_context(client)
    url = f"http://127.0.0.1:{port}/mcp"
    streams = await stack.enter_async_context(streamable_http_client(url, http_client=http))
    read, write, session_id = streams
    made = ClientSession(read, write, elicitation_callback=on_question)
    session = await stack.enter_async_context(made)
    hello = await session.initialize()
    same((hello.serverInfo.name, hello.protocolVersion), ("ceased", "2025-11-25"))
    check(session_id(), "a session id")


async def echo():
    said = 'ünï \U0001f600 "quoted"\\\n\t\u2028 done'
    same(text(await call("echo", {"text": said})), said)


async def progress():
    seen = []

    async def progressed(step, total, message):
        seen.append(step)

    await call("count", {"n": 5}, progress_callback=progressed)
    check(seen and seen == sorted(seen), seen)


async def parallel():
    calls = [call("echo", {"text": str(number)}) for number in range(20)]
    same([text(result) for result in await asyncio.gather(*calls)], [str(n) for n in range(20)])


def request_of(mark):
    """The id of the call with this mark."""
    calls = [m for m in posted if mark in json.dumps(m.get("params") or {})]
    same(len(calls), 1)
    return calls[0]["id"]


async def cancel(mark, reason):
    """In this SDK neither the cancel of a waiting coroutine nor a time-out tells the server, so the
    check sends the notification."""
    params = types.CancelledNotificationParams(requestId=request_of(mark), reason=reason)
    cancelled = types.CancelledNotification(params=params)
    await session.send_notification(types.ClientNotification(cancelled))


# CAN-02, STOP-01
async def abort():
    mark = fresh_time()
    running = asyncio.create_task(call("family", {"t": mark}))
    await family_is_up(mark)
    running.cancel()
    await cancel(mark, "enough")
    took = await is_gone(mark)
    try:
        await running
        raise AssertionError("an aborted call has no result")
    except asyncio.CancelledError:
        pass
    return f"gone after {took} ms"


async def timeout():
    mark = fresh_time()
    try:
        await call("family", {"t": mark}, read_timeout_seconds=timedelta(seconds=2))
        raise AssertionError("the call has a result")
    except McpError as error:
        check("Timed out" in str(error), error)
    await cancel(mark, "timed out")
    return f"gone after {await is_gone(mark)} ms"


# HTTP-07: a call goes on without its connection, and its answer is read by Last-Event-ID.
async def reconnect():
    file = Path(SETUP["folder"], "python-gate")
    steps = []

    async def progressed(step, total, message):
        steps.append(step)

    running = asyncio.create_task(call("gate", {"file": str(file)}, progress_callback=progressed))
    await until("the call runs", lambda: 1 in steps)
    check(cutter.cut() >= 1)
    file.touch()
    same(text(await running), "through\n")
    same(steps, [1, 2])
    check(any("last-event-id:" in head.lower() for head in cutter.heads), cutter.heads)


async def elicitation():
    global answer
    answer = types.ElicitResult(action="accept", content={})
    same(text(await call("asks", {"what": "one"})), "one\n")
    answer = types.ElicitResult(action="decline")
    declined = await call("asks", {"what": "two"})
    check(declined.isError, declined)
    same(questions, ["Really one?", "Really two?"])


async def task():
    tasks = session.experimental
    file = Path(SETUP["folder"], "python-task-gate")
    made = await tasks.call_tool_as_task("gate", {"file": str(file)}, ttl=60_000)
    same(made.task.status, "working")
    waiting = asyncio.create_task(tasks.get_task_result(made.task.taskId, types.CallToolResult))
    same((await tasks.get_task(made.task.taskId)).status, "working")
    file.touch()
    same(text(await waiting), "through\n")
    same((await tasks.get_task(made.task.taskId)).status, "completed")


async def task_cancel():
    tasks = session.experimental
    mark = fresh_time()
    made = await tasks.call_tool_as_task("family", {"t": mark}, ttl=60_000)
    await family_is_up(mark)
    same((await tasks.cancel_task(made.task.taskId)).status, "cancelled")
    return f"gone after {await is_gone(mark)} ms"


# HTTP-04: the client ends its session, and with it a call that no task keeps.
async def close():
    mark = fresh_time()
    steps = []

    async def progressed(step, total, message):
        steps.append(step)

    running = asyncio.create_task(call("family", {"t": mark}, progress_callback=progressed))
    # This SDK ends with an exception if it closes before a response has begun.
    await until("its response has begun", lambda: steps)
    await family_is_up(mark)
    await stack.aclose()
    took = await is_gone(mark)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    cutter.close()
    return f"gone after {took} ms"


CHECKS = [
    ("connect", connect),
    ("echo", echo),
    ("progress", progress),
    ("parallel", parallel),
    ("abort", abort),
    ("timeout", timeout),
    ("reconnect", reconnect),
    ("elicitation", elicitation),
    ("task", task),
    ("task_cancel", task_cancel),
    ("close", close),
]

anyio.run(run, CHECKS)
