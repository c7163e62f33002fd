"""The official Python client of 2026-07-28, unmodified, uses the example server over Streamable HTTP.

usage: python modern_client.py URL
"""

import json
import sys

import anyio
from mcp.client import Client
from mcp_types import ElicitResult

DONE = []


def text(result):
    return "".join(part.text for part in result.content)


async def accept(context, params):
    return ElicitResult(action="accept", content={"name": "Alice"})


async def main():
    async with Client(sys.argv[1], elicitation_callback=accept) as client:
        assert client.protocol_version == "2026-07-28", client.protocol_version
        assert client.server_info.name == "ceased", client.server_info
        DONE.append("connect")

        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "greet" in names, names
        assert text(await client.call_tool("greet", {"name": "World"})) == "Hello, World!"
        DONE.append("call")

        seen = []

        async def progressed(progress, total, message):
            seen.append((progress, total))

        await client.call_tool("test_tool_with_progress", {}, progress_callback=progressed)
        assert seen == [(0, 100), (50, 100), (100, 100)], seen
        DONE.append("progress")

        name = "test_input_required_result_elicitation"
        assert "Alice" in text(await client.call_tool(name, {}))
        DONE.append("input")

        read = await client.read_resource("test://template/7/data")
        assert json.loads(read.contents[0].text)["id"] == "7", read
        templates = (await client.list_resource_templates()).resource_templates
        assert "test://template/{id}/data" in [each.uri_template for each in templates]
        DONE.append("resources")

        arguments = {"arg1": "a", "arg2": "b"}
        prompt = await client.get_prompt("test_prompt_with_arguments", arguments)
        assert prompt.messages[0].content.text == "Prompt with arguments: arg1='a', arg2='b'"
        DONE.append("prompts")

        # The end of a request is its cancel; the client goes on.
        with anyio.move_on_after(1) as scope:
            await client.call_tool("slow_compute", {"seconds": 600})
        assert scope.cancelled_caught
        assert text(await client.call_tool("greet", {"name": "again"})) == "Hello, again!"
        DONE.append("abort")
    DONE.append("close")


anyio.run(main)
print(json.dumps({"done": DONE, "failures": 0}), flush=True)
