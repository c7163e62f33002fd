"""The official Python client, unmodified, drives ceased.

usage: python client.py SETUP   (see `Setup` in sdk.rs)
"""

import asyncio
import os
import shutil
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path

import anyio
from kit import (
    SETUP,
    Connection,
    check,
    fresh_mark,
    is_gone,
    processes,
    refusal,
    run,
    same,
    tree_is_up,
    until,
)
from mcp import types

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
REQUEST_TIMEOUT = 408  # The SDK's own, never on the wire.
TASK_CANCELLED = -31001

connection = Connection("main")


def tasks():
    return connection.session.experimental


def start(name, arguments, **options):
    """A call that runs in the background."""
    return asyncio.create_task(connection.session.call_tool(name, arguments, **options))


def text(result):
    return "".join(part.text for part in result.content)


async def create_task(name, arguments):
    return (await tasks().call_tool_as_task(name, arguments, ttl=60_000)).task


async def task_ends(task_id):
    """Polls a task until it is terminal, as the SDK does it."""
    async for task in tasks().poll_task(task_id):
        same(task.taskId, task_id)
    return task


def was_told(task_id, status):
    """Whether a status notification reported this status."""
    told = connection.of_type(types.TaskStatusNotification)
    return any((n.params.taskId, n.params.status) == (task_id, status) for n in told)


async def initialize():
    await connection.open()
    found = connection.initialized
    same(found.protocolVersion, types.LATEST_PROTOCOL_VERSION)
    same(found.protocolVersion, "2025-11-25")
    same(found.serverInfo.name, "ceased")
    check(found.capabilities.tools.listChanged)
    check(found.capabilities.logging is not None)
    # TSK-01
    capability = found.capabilities.tasks
    check(capability.list is not None and capability.cancel is not None)
    check(capability.requests.tools.call is not None)
    await connection.session.set_logging_level("warning")


async def list_tools():
    tools = {tool.name: tool for tool in (await connection.session.list_tools()).tools}
    support = {name: tool.execution.taskSupport for name, tool in tools.items()}
    same(
        support,
        {
            "echo": "forbidden",
            "sleep": "optional",
            "steps": "optional",
            "tree": "optional",
            "gate": "optional",
            "fail": "optional",
            "count": "forbidden",
            "report": "required",
            "silent": "forbidden",
        },
    )
    same(tools["gate"].inputSchema["properties"]["file"]["type"], "string")
    same(sorted(tools["gate"].inputSchema["required"]), ["file", "label"])


async def echo():
    said = 'ünï \U0001f600 "quoted"\\\n\t\u2028 done'
    result = await connection.session.call_tool("echo", {"text": said})
    check(not result.isError)
    same(text(result), said)


async def progress():
    seen = []

    async def on_progress(value, total, message):
        seen.append((value, total, message))

    result = await connection.session.call_tool("steps", {}, progress_callback=on_progress)
    same(text(result), "done\n")
    same(result.structuredContent["exitCode"], 0)
    same(seen, [(n, 5, f"step {n}") for n in range(1, 6)])


# CAN-06, CAN-08, STOP-01
async def abort():
    mark = fresh_mark("abort")
    with anyio.CancelScope() as scope:

        async def cancel_when_up():
            await tree_is_up(mark)
            scope.cancel()

        watcher = asyncio.create_task(cancel_when_up())
        await connection.session.call_tool("tree", {"mark": mark})
    check(scope.cancelled_caught)
    await watcher
    await connection.cancel(mark, "no longer needed")
    took = await is_gone(mark)
    await connection.session.send_ping()
    return f"gone after {took} ms"


async def timeout():
    mark = fresh_mark("timeout")
    # Long enough for the tree to start, so that processes exist to be ended.
    call = start("tree", {"mark": mark}, read_timeout_seconds=timedelta(seconds=5))
    await tree_is_up(mark)
    await refusal(call, REQUEST_TIMEOUT)
    await connection.cancel(mark, "timed out")
    return f"gone after {await is_gone(mark)} ms"


async def failing_tool():
    result = await connection.session.call_tool("fail", {})
    check(result.isError)
    same(text(result), "to stdout\nto stderr\nexited with code 3")
    found = dict(result.structuredContent)
    check(found.pop("durationMs") >= 0)
    same(
        found,
        {
            "exitCode": 3,
            "signal": None,
            "truncated": False,
            "bytes": 20,
        },
    )


async def invalid_arguments():
    session = connection.session
    # SEP-1303: the model can correct them.
    wrong = await session.call_tool("count", {"n": "seven"})
    check(wrong.isError and "arguments/n" in text(wrong), wrong)
    missing = await session.call_tool("count", {})
    check(missing.isError and '"n"' in text(missing), missing)
    same(text(await session.call_tool("count", {"n": 7})), "7\n")


async def unknown_tool():
    session = connection.session
    error = await refusal(session.call_tool("no-such-tool", {}), INVALID_PARAMS)
    check("no-such-tool" in error.message, error)
    # A method this server does not have.
    await refusal(session.list_prompts(), METHOD_NOT_FOUND)


# TSK-05, TSK-06
async def task_misuse():
    forbidden = await refusal(create_task("echo", {"text": "x"}), METHOD_NOT_FOUND)
    check("echo" in forbidden.message, forbidden)
    required = await refusal(connection.session.call_tool("report", {}), METHOD_NOT_FOUND)
    check("report" in required.message, required)


async def parallel_calls():
    labels = ["a", "b", "c", "d", "e", "f"]
    file = Path(SETUP["record"], "gate")
    up = []

    async def on_progress(*step):
        up.append(step)

    calls = [
        start("gate", {"file": str(file), "label": label}, progress_callback=on_progress)
        for label in labels
    ]
    # All trees run before one of them may end.
    await until("all are up", lambda: len(up) == len(labels))
    check(not any(call.done() for call in calls), "one ended before all were up")
    file.touch()
    same([text(result) for result in await asyncio.gather(*calls)], labels)


async def ping_while_busy():
    mark = fresh_mark("ping")
    call = start("tree", {"mark": mark})
    await tree_is_up(mark)
    begin = time.monotonic()
    for _ in range(20):
        async with asyncio.timeout(5):
            await connection.session.send_ping()
    took = round((time.monotonic() - begin) * 1000)
    check(not call.done())
    call.cancel()
    await connection.cancel(mark, "enough")
    await is_gone(mark)
    return f"20 pings in {took} ms"


# TSK-09, TSK-33
async def task_steps():
    seen = []
    # This SDK drops a call's progress callback with its answer, so the check has its own token.
    meta = {"progressToken": "steps of a task"}
    created = await tasks().call_tool_as_task("steps", {}, ttl=60_000, meta=meta)
    task = created.task
    same((task.status, task.ttl, task.pollInterval), ("working", 60_000, 100))
    ended = await task_ends(task.taskId)
    same(ended.status, "completed")
    result = await tasks().get_task_result(task.taskId, types.CallToolResult)
    same(text(result), "done\n")
    for note in connection.of_type(types.ProgressNotification):
        if note.params.progressToken == "steps of a task":
            seen.append((note.params.progress, note.params.total, note.params.message))
    same(seen, [(n, 5, f"step {n}") for n in range(1, 6)])


async def task_by_hand():
    file = Path(SETUP["record"], "gate-task")
    task = await create_task("gate", {"file": str(file), "label": "through"})
    same(task.status, "working")
    check(isinstance(task.createdAt, datetime) and task.createdAt <= task.lastUpdatedAt)
    same((await tasks().get_task(task.taskId)).status, "working")
    # TSK-15: the request blocks while others are answered.
    waiting = asyncio.create_task(tasks().get_task_result(task.taskId, types.CallToolResult))
    for _ in range(10):
        same((await tasks().get_task(task.taskId)).status, "working")
    check(not waiting.done())
    file.touch()
    value = await waiting
    same(text(value), "through")
    # TSK-16
    same(value.meta["io.modelcontextprotocol/related-task"], {"taskId": task.taskId})
    done = await tasks().get_task(task.taskId)
    same((done.status, done.createdAt), ("completed", task.createdAt))
    # TSK-14: the result can be fetched repeatedly.
    same(await tasks().get_task_result(task.taskId, types.CallToolResult), value)
    # TSK-18
    await until("a status notification", lambda: was_told(task.taskId, "completed"))


# TSK-17, TSK-23, TSK-24, TSK-25
async def task_cancel():
    mark = fresh_mark("cancel")
    task_id = (await create_task("tree", {"mark": mark})).taskId
    await tree_is_up(mark)
    result = tasks().get_task_result
    waiting = asyncio.create_task(refusal(result(task_id, types.CallToolResult), TASK_CANCELLED))
    cancelled = await tasks().cancel_task(task_id)
    same((cancelled.taskId, cancelled.status), (task_id, "cancelled"))
    took = await is_gone(mark)
    await waiting
    same((await tasks().get_task(task_id)).status, "cancelled")
    error = await refusal(result(task_id, types.CallToolResult), TASK_CANCELLED)
    check("cancelled" in error.message, error)
    again = await refusal(tasks().cancel_task(task_id), INVALID_PARAMS)
    check("cancelled" in again.message, again)
    await until("a status notification", lambda: was_told(task_id, "cancelled"))
    return f"gone after {took} ms"


# TSK-43
async def task_failed():
    task_id = (await create_task("fail", {})).taskId
    task = await task_ends(task_id)
    same(task.status, "failed")
    check(task.statusMessage)
    result = await tasks().get_task_result(task_id, types.CallToolResult)
    check(result.isError)
    same(result.structuredContent["exitCode"], 3)


# TSK-27
async def task_unknown():
    task_id = "00000000-0000-4000-8000-000000000000"
    await refusal(tasks().get_task(task_id), INVALID_PARAMS)
    await refusal(tasks().get_task_result(task_id, types.CallToolResult), INVALID_PARAMS)
    await refusal(tasks().cancel_task(task_id), INVALID_PARAMS)
    await refusal(tasks().get_task("no id at all"), INVALID_PARAMS)


# TSK-19, TSK-20, TSK-21, TSK-22
async def task_list():
    made = [(await create_task("report", {})).taskId for _ in range(5)]
    listed, pages, cursor = [], 0, None
    while pages == 0 or cursor is not None:
        page = await tasks().list_tasks(cursor)
        check(0 < len(page.tasks) <= 2, "page_size is 2")
        listed += [task.taskId for task in page.tasks]
        cursor = page.nextCursor
        pages += 1
    same(len(set(listed)), len(listed))
    check(set(made) <= set(listed), "a task is missing")
    same(pages, (len(listed) + 1) // 2)
    for task_id in made:
        same((await task_ends(task_id)).status, "completed")
    await refusal(tasks().list_tasks("no cursor of yours"), INVALID_PARAMS)
    return f"{len(listed)} tasks on {pages} pages"


async def reload():
    session, up = connection.session, []

    async def on_progress(*step):
        up.append(step)

    file = Path(SETUP["record"], "gate-reload")
    arguments = {"file": str(file), "label": "kept"}
    running = start("gate", arguments, progress_callback=on_progress)
    await until("the call is up", lambda: up)
    await refusal(session.call_tool("newcomer", {}), INVALID_PARAMS)
    shutil.copyfile(SETUP["reload"]["next"], SETUP["reload"]["config"])
    os.kill(SETUP["reload"]["pid"], signal.SIGHUP)
    changed = types.ToolListChangedNotification
    await until("tools/list_changed", lambda: connection.of_type(changed))
    names = [tool.name for tool in (await session.list_tools()).tools]
    check("newcomer" in names and "count" not in names, names)
    same(text(await session.call_tool("newcomer", {})), "new\n")
    await refusal(session.call_tool("count", {"n": 7}), INVALID_PARAMS)
    file.touch()
    same(text(await running), "kept")


async def no_errors():
    same(connection.errors, [])


# A client that ends leaves nothing running, except the tasks of a daemon.
async def close():
    call_mark, task_mark = fresh_mark("left-call"), fresh_mark("left-task")
    left = start("tree", {"mark": call_mark})
    task_id = (await create_task("tree", {"mark": task_mark})).taskId
    await tree_is_up(call_mark)
    await tree_is_up(task_mark)
    took = await connection.close()
    left.cancel()
    await is_gone(call_mark)
    if SETUP["survives"]:
        check(processes(task_mark), "the task went with its client")
        other = await Connection("other").open()
        again = other.session.experimental
        same((await again.get_task(task_id)).status, "working")
        same((await again.cancel_task(task_id)).status, "cancelled")
        await is_gone(task_mark)
        await other.close()
    else:
        await is_gone(task_mark)
    return f"the server ended after {took} ms"


CHECKS = [
    ("initialize", initialize),
    ("tools_list", list_tools),
    ("echo", echo),
    ("progress", progress),
    ("abort", abort),
    ("timeout", timeout),
    ("failing_tool", failing_tool),
    ("invalid_arguments", invalid_arguments),
    ("unknown_tool", unknown_tool),
    ("task_misuse", task_misuse),
    ("parallel_calls", parallel_calls),
    ("ping_while_busy", ping_while_busy),
    ("task_steps", task_steps),
    ("task_by_hand", task_by_hand),
    ("task_cancel", task_cancel),
    ("task_failed", task_failed),
    ("task_unknown", task_unknown),
    ("task_list", task_list),
    *([("reload", reload)] if SETUP["reload"] else []),
    ("no_errors", no_errors),
    ("close", close),
]

anyio.run(run, CHECKS)
