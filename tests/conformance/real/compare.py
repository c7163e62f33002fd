"""The official Python client takes the steps of a plan with each server, and prints what came.

All servers at the same time, the steps of one in their order.
usage: python compare.py SETUP   (see `Setup` in real.rs)
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, MCPError, StdioServerParameters, types
from mcp.client.stdio import stdio_client

with open(sys.argv[1]) as file:
    SETUP = json.load(file)

PATIENCE = 30


def plain(value):
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def take(session, step, notes):
    op, params = step["op"], step.get("params", {})
    if op == "tools":
        return plain(await session.list_tools())
    if op == "prompts":
        return plain(await session.list_prompts())
    if op == "resources":
        return plain(await session.list_resources())
    if op == "templates":
        return plain(await session.list_resource_templates())
    if op == "call":
        steps = []

        async def on_progress(progress, total, message):
            steps.append({"progress": progress, "total": total, "message": message})

        callback = on_progress if step.get("progress") else None
        result = await session.call_tool(
            params["name"], params.get("arguments", {}), progress_callback=callback
        )
        return {**plain(result), "steps": steps} if callback else plain(result)
    if op == "prompt":
        return plain(await session.get_prompt(params["name"], params.get("arguments")))
    if op == "read":
        return plain(await session.read_resource(params["uri"]))
    if op == "complete":
        ref = params["ref"]
        if ref["type"] == "ref/prompt":
            ref = types.PromptReference(type="ref/prompt", name=ref["name"])
        else:
            ref = types.ResourceTemplateReference(type="ref/resource", uri=ref["uri"])
        return plain(await session.complete(ref, params["argument"]))
    if op == "level":
        return plain(await session.set_logging_level(params["level"]))
    if op == "subscribe":
        return plain(await session.subscribe_resource(params["uri"]))
    if op == "ping":
        return plain(await session.send_ping())
    raise ValueError(op)


async def wait_for(notes, method):
    for _ in range(PATIENCE * 50):
        for note in notes:
            if note.get("method") == method:
                return note
        await asyncio.sleep(0.02)
    return f"Error: {method}: not within {PATIENCE} s"


def asked_by(capabilities):
    """Answers to requests of servers, where a server may make them."""

    async def sample(context, params):
        text = f"to {len(params.messages)} messages"
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="tester")

    async def elicit(context, params):
        return types.ElicitResult(action="decline")

    async def roots(context):
        root = types.Root(uri=f"file://{SETUP['folder']}", name="folder")
        return types.ListRootsResult(roots=[root])

    callbacks = {
        "sampling": ("sampling_callback", sample),
        "elicitation": ("elicitation_callback", elicit),
        "roots": ("list_roots_callback", roots),
    }
    return dict(callbacks[name] for name in capabilities)


async def drive(server):
    command, *args = server["command"]
    env = {"PATH": os.environ["PATH"], **server["env"]}
    parameters = StdioServerParameters(command=command, args=args, env=env, cwd=SETUP["folder"])
    notes = []

    async def on_message(message):
        if not isinstance(message, Exception):
            notes.append(plain(message))

    async with stdio_client(parameters) as (read, write):
        asked = asked_by(server["capabilities"])
        async with ClientSession(read, write, message_handler=on_message, **asked) as session:
            seen = {"initialize": plain(await session.initialize())}
            for step in server["steps"]:
                try:
                    found = {"result": await take(session, step, notes)}
                except MCPError as error:
                    found = {"error": plain(error.error)}
                if step.get("awaits"):
                    found["note"] = await wait_for(notes, step["awaits"])
                seen[step["label"]] = found
    return seen


async def main():
    servers = SETUP["servers"]
    seen = await asyncio.gather(*(drive(server) for server in servers))
    print(json.dumps(dict(zip((server["name"] for server in servers), seen))))


asyncio.run(main())
